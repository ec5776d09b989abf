"""The best candidate of a run as its folder keeps it: the graph with the very schedule that was ranked first.

Invariant: graph and schedule belong together; a folder whose two files disagree is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.codegen.cuda.schedule import Schedule
from workbench.errors import FormatError
from workbench.pipeline.kernel_schedules import choice_from_json, schedules_of
from workbench.pipeline.passes import choices_from_json
from workbench.pipeline.run_folder import BEST, RESULT
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.serialize import load


@dataclass(frozen=True, slots=True)
class KeptBest:
    """What a run found best. Attributes: graph; schedules: by a kernel's first result; device; certificate: plain form."""

    graph: KernelGraph
    schedules: Mapping[str, Schedule]
    device: str
    certificate: Mapping[str, object]


def load_best(folder: Path) -> KeptBest | None:
    """Return the best candidate of a run's folder, None where there is a graph without a result.

    Raises: FormatError for a result that cannot be read or is of another graph; OSError.
    """
    graph = load(folder / BEST)[0]
    file = folder / RESULT
    if not file.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        first = found["candidates"][0]
        choices = tuple(choice_from_json(one) for one in first["choices"])
        passes = tuple(choices_from_json(one) for one in first["kernel_choices"])
        device, certificate, of = found["device"], first["certificate"], first["hash"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise FormatError(f"{file}: is no result of a run with a candidate ({error}); give {BEST} itself") from error
    if of != graph.hash:
        raise FormatError(f"{file} is of µGraph {of[:12]}, {BEST} beside it is {graph.hash[:12]}; give {BEST} itself")
    return KeptBest(graph, schedules_of(graph, choices, passes), device, certificate)
