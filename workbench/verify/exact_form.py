"""Proof that two programs compute the same at their shapes: every output element by normal form, or a rational counterexample.

Invariant: "proved" holds wherever both programs are defined over the reals; "refuted" carries inputs (exact in float64) at
which both are defined and differ; a budget that ends is "undecided", never a hang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from workbench.core.shapes import Shape
from workbench.display import Displayed
from workbench.domains.exact_arithmetic import ExactValue
from workbench.domains.exact_budget import Budget, Meter
from workbench.domains.exact_expression import ABSENT, ExactTerms
from workbench.domains.exact_numbers import float_values
from workbench.errors import BudgetError, OutsideLaxError, ShapeError
from workbench.interpret.exact import exact_outputs, opaque_value
from workbench.interpret.floats import evaluate
from workbench.ops.spec import Array
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.units import counted
from workbench.verify.cells import Decision, decide
from workbench.verify.exact_points import Difference, confirm, draw_points, most_different, point_at
from workbench.verify.verdict import Witness

__all__ = ["Budget", "Proof", "prove_equal"]

_POINTS = 96  # random points at which all elements are compared in float64 before any proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(Displayed):
    """What the exact form says of two programs at their shapes.

    Attributes:
        kind: "proved", "refuted" or "undecided".
        reason: one sentence; for "undecided" which element and why.
        shapes: the input shapes for which it holds.
        witness: inputs at which the programs differ ("refuted" only).
        elements: output elements; distinct: those that were proved one by one (the rest are the same up to names of inputs).
        cells: cells of piecewise operators (ReLU, max, clamp, abs, running maxima) decided by equal expressions, over all
            distinct elements; a node of the tree of cells whose sides agree counts once, however many cells lie below it.
        cells_infeasible: cells that turned out to have no point.
        ways: how it was decided, with counts: "all pieces at once" (equal arguments), "expressions" (one cell),
            "infeasible by ..." (signs, linear program, Z3), "by construction", "same up to names of inputs".
        seconds: wall time.
    """

    kind: Literal["proved", "refuted", "undecided"]
    reason: str
    shapes: tuple[Shape, ...]
    witness: Witness | None = None
    elements: int = 0
    distinct: int = 0
    cells: int = 0
    cells_infeasible: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def __bool__(self) -> bool:
        """True only for "proved"."""
        return self.kind == "proved"

    def describe(self) -> str:
        """Return the answer in a few lines."""
        shapes = ", ".join(str(list(shape)) for shape in self.shapes)
        lines = [
            f"{self.kind}: {self.reason}",
            f"  shapes {shapes}; {counted(self.elements, 'element')}, {self.distinct} distinct",
        ]
        if self.witness:
            lines.append(f"  witness: {self.witness.describe()}")
        if self.cells:
            lines.append(f"  cells: {self.cells} decided, {self.cells_infeasible} without a point")
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
            "elements": self.elements,
            "distinct": self.distinct,
            "cells": self.cells,
            "cells_infeasible": self.cells_infeasible,
            "ways": dict(self.ways),
            "seconds": self.seconds,
        }


@dataclass(slots=True)
class _Findings:
    """What a `Proof` is made of, as far as the comparison came; the attributes are the proof's."""

    kind: Literal["proved", "refuted", "undecided"] = "proved"
    reason: str = ""
    witness: Witness | None = None
    elements: int = 0
    distinct: int = 0
    cells: int = 0
    cells_infeasible: int = 0
    ways: Counter[str] = field(default_factory=Counter)


def prove_equal(program: KernelGraph, candidate: KernelGraph, budget: Budget | None = None, *, seed: int = 0) -> Proof:
    """Return a proof, a rational counterexample, or why there is neither, at the shapes of the two graphs.

    Inputs and outputs correspond by position. Piecewise operators are decided cell by cell where they have to be. Equality
    is that of functions on the closure of the region where both programs are defined: a lone slice such as y = 0 of
    sqrt(sqrt(y) x), on which x may be negative, is not looked at.
    budget: limits (default `Budget()`); seed: of the points at which a counterexample is sought.
    Raises: ShapeError when the interfaces differ.
    """
    check_interface(program, candidate)
    meter = Meter(budget or Budget())
    found = _Findings()
    try:
        _Comparer(program, candidate, meter, np.random.default_rng(seed), found).run()
    except BudgetError as error:
        found.kind, found.reason = "undecided", f"budget: {error}"
    except OutsideLaxError as error:
        found.kind, found.reason = "undecided", str(error)
    return Proof(
        kind=found.kind,
        reason=found.reason,
        shapes=tuple(tensor.shape for tensor in program.inputs),
        witness=found.witness,
        elements=found.elements,
        distinct=found.distinct,
        cells=found.cells,
        cells_infeasible=found.cells_infeasible,
        ways=dict(+found.ways),
        seconds=meter.seconds,
    )


def check_interface(program: KernelGraph, candidate: KernelGraph) -> None:
    """Raises: ShapeError unless inputs and outputs of two programs agree in number and shape."""
    for what, left, right in (
        ("inputs", program.inputs, candidate.inputs),
        ("outputs", program.outputs, candidate.outputs),
    ):
        shapes = [[tensor.shape for tensor in side] for side in (left, right)]
        if shapes[0] != shapes[1]:
            raise ShapeError(f"{what} differ: {shapes[0]} against {shapes[1]}; compare programs of one interface")


class _Comparer:
    def __init__(
        self, program: KernelGraph, candidate: KernelGraph, meter: Meter, rng: np.random.Generator, result: _Findings
    ) -> None:
        self.graphs = (program, candidate)
        self.meter, self.rng, self.result = meter, rng, result
        self.terms = ExactTerms(meter.budget.expressions)

    def run(self) -> None:
        """Fill in the result: look for a difference at random points first, then prove element by element."""
        result = self.result
        left, right = (exact_outputs(self.terms, graph) for graph in self.graphs)
        self.meter.check()
        pairs = list(self._pairs(left, right))
        result.elements = len(pairs)
        for output, index, a, b in pairs:
            if ABSENT in (a, b):
                result.kind = "undecided"
                result.reason = f"output {output}{list(index)} folds an empty tile, which has no value"
                return
        open_pairs = [pair for pair in pairs if pair[2] != pair[3]]
        result.ways["by construction"] = len(pairs) - len(open_pairs)
        if not open_pairs:
            result.reason = "every element is the same expression by construction"
            return
        if self._differs_somewhere(open_pairs):
            return
        seen: set[tuple[object, ...]] = set()
        for output, index, a, b in open_pairs:
            signature = self.terms.signature((a, b))
            if signature in seen:
                result.ways["same up to names of inputs"] += 1
                continue
            seen.add(signature)
            result.distinct += 1
            decision = decide(
                self.terms, a, b, self.meter, self.rng,
                lambda found, output=output, index=index: self._witness(found, output, index) is not None,  # type: ignore[misc]
            )  # fmt: skip
            result.cells += decision.cells
            result.cells_infeasible += decision.infeasible
            result.ways.update(decision.ways)
            if not self._take(decision, output, index):
                return
        result.reason = "every element has equal normal forms"

    @staticmethod
    def _pairs(left: list[ExactValue], right: list[ExactValue]) -> Iterator[tuple[int, tuple[int, ...], int, int]]:
        for output, (a, b) in enumerate(zip(left, right, strict=True)):
            for index in np.ndindex(a.shape):
                yield output, index, int(a.numbers[index]), int(b.numbers[index])

    def _differs_somewhere(self, pairs: list[tuple[int, tuple[int, ...], int, int]]) -> bool:
        roots = [part for _, _, a, b in pairs for part in (a, b)]
        drawn = draw_points(self.terms, roots, self.rng, _POINTS)
        values = float_values(self.terms, roots, drawn, opaque_value)
        shape = (_POINTS if drawn else 1,)
        left = [np.broadcast_to(values[a], shape) for _, _, a, _ in pairs]
        right = [np.broadcast_to(values[b], shape) for _, _, _, b in pairs]
        for number, position, _ in most_different(left, right)[:8]:
            output, index, a, b = pairs[number]
            found = confirm(self.terms, a, b, point_at(drawn, position) if drawn else {})
            if found and self._witness(found, output, index) is not None:
                self._take(Decision("different", difference=found), output, index)
                return True
        return False

    def _take(self, decision: Decision, output: int, index: tuple[int, ...]) -> bool:
        """Take in an element's decision; False where the comparison ends with it."""
        where = f"output {output}{list(index)}"
        if decision.kind == "equal":
            return True
        if decision.kind == "undecided":
            self.result.kind, self.result.reason = "undecided", f"{where}: {decision.reason}"
            return False
        assert decision.difference is not None
        witness = self._witness(decision.difference, output, index)
        assert witness is not None  # a difference where a program is not defined is not accepted
        self.result.kind, self.result.witness = "refuted", witness
        self.result.reason = f"{where} differs at real inputs"
        return False

    def _witness(self, difference: Difference, output: int, index: tuple[int, ...]) -> Witness | None:
        """Return the difference as inputs of the programs; None where a program yields NaN on them."""
        program = self.graphs[0]
        inputs: list[Array] = []
        for number, tensor in enumerate(program.inputs):
            array = np.full(tensor.shape, 0.5)
            for (owner, element), value in difference.point.items():
                if owner == number:
                    array.flat[element] = float(value)
            inputs.append(array)
        for graph in self.graphs:
            if np.isnan(evaluate(graph, inputs)[output][index]):
                return None
        shapes = tuple(tensor.shape for tensor in program.inputs)
        return Witness(
            output, index, difference.left, difference.right, shapes, tuple(inputs), difference.how, difference.gap
        )
