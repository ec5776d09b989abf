"""Programs that are studied, and the good µGraphs that the literature knows for them."""

from __future__ import annotations

from workbench.programs.record import Parameter, Program, Style
from workbench.programs.registry import describe, get, infer_sizes, known_good, names, parameters, program

__all__ = [
    "Parameter",
    "Program",
    "Style",
    "describe",
    "get",
    "infer_sizes",
    "known_good",
    "names",
    "parameters",
    "program",
]
