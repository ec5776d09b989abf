"""Piecewise operators (ReLU, max, clamp, abs, running maxima): are two programs equal in every cell of a reduced instance?

Invariant: "equal" only when every cell with a point was decided by equal expressions (or all at once, by equal arguments
at every piecewise operator); "different" only with real inputs that show it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from workbench.core.shapes import Shape
from workbench.display import Displayed
from workbench.domains.exact_budget import Budget
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.exact_form import compare_exactly
from workbench.verify.verdict import Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceReport(Displayed):
    """What is known of two piecewise programs, cell by cell, at their shapes.

    Attributes:
        kind: "equal", "different" or "undecided".
        reason: one sentence; for "undecided" which element and why.
        shapes: the input shapes for which it holds.
        witness: real inputs that show a difference.
        cells: cells decided by equal expressions, over all distinct output elements; a node of the tree of cells whose
            sides agree counts once, however many cells lie below it.
        cells_infeasible: cells without a point.
        elements, distinct: output elements, and those decided one by one.
        ways: how it was decided, with counts: "all pieces at once" (equal arguments), "expressions" (one cell),
            "infeasible by ..." (signs, linear program, Z3), "by construction", "same up to names of inputs".
        seconds: wall time.
    """

    kind: Literal["equal", "different", "undecided"]
    reason: str
    shapes: tuple[Shape, ...]
    witness: Witness | None = None
    cells: int = 0
    cells_infeasible: int = 0
    elements: int = 0
    distinct: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def __bool__(self) -> bool:
        """True only for "equal"."""
        return self.kind == "equal"

    def describe(self) -> str:
        """Return the answer with its numbers of cells."""
        shapes = ", ".join(str(list(shape)) for shape in self.shapes)
        lines = [
            f"{self.kind}: {self.reason}",
            f"  shapes {shapes}; {self.elements} elements, {self.distinct} distinct",
            f"  cells: {self.cells} decided, {self.cells_infeasible} without a point",
        ]
        if self.witness:
            lines.append(f"  witness: {self.witness.describe()}")
        if self.ways:
            lines.append("  by " + ", ".join(f"{way}: {count}" for way, count in self.ways.items()))
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return the plain form (the witness in words)."""
        return {
            "kind": self.kind,
            "reason": self.reason,
            "shapes": [list(shape) for shape in self.shapes],
            "witness": self.witness.describe() if self.witness else None,
            "cells": self.cells,
            "cells_infeasible": self.cells_infeasible,
            "elements": self.elements,
            "distinct": self.distinct,
            "ways": dict(self.ways),
            "seconds": self.seconds,
        }


def decide_pieces(
    program: KernelGraph, candidate: KernelGraph, budget: Budget | None = None, *, seed: int = 0
) -> PieceReport:
    """Return whether two programs agree in every cell, at the shapes of the two graphs (give reduced instances).

    Inputs and outputs correspond by position. budget: limits of the whole decision (default `Budget()`); seed: of the
    points at which a difference is sought. Raises: ShapeError when the interfaces differ.
    """
    found = compare_exactly(program, candidate, budget or Budget(), seed=seed)
    return PieceReport(
        kind=found.kind,
        reason=found.reason,
        shapes=tuple(tensor.shape for tensor in program.inputs),
        witness=found.witness,
        cells=found.cells,
        cells_infeasible=found.infeasible,
        elements=found.elements,
        distinct=found.distinct,
        ways=dict(+found.ways),
        seconds=found.seconds,
    )
