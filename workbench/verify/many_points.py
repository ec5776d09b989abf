"""Random tests by the hundred thousand: two programs at many points at once, to measure how often wrong ones are accepted.

Points at which some denominator is zero or some radicand no square are thrown away whole, which is the distribution that
the bound speaks of. Invariant: a leading axis counts the points; kernels are predefined operators only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.domains.field_pairs import FieldPair
from workbench.domains.finite_field import FieldArithmetic, random_elements
from workbench.errors import NotApplicableError
from workbench.interpret.field import FieldDomain, FieldPoint, evaluate_in_field
from workbench.interpret.walk import Observer
from workbench.ops.spec import OpKind
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import GraphDefinedNode, OpNode

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Trials:
    """How many points had a meaning, and at how many of those all output elements agreed."""

    valid: int
    accepted: int

    @property
    def rate(self) -> float:
        """Accepted per valid point, 0.0 if there was none."""
        return self.accepted / self.valid if self.valid else 0.0

    def standard_error(self, rate: float) -> float:
        """Return the standard deviation of the measured rate if the true one were `rate`."""
        return float(np.sqrt(rate * (1 - rate) / max(1, self.valid)))


class ManyPoints(FieldDomain):
    """Field values with a leading axis of points."""

    def operator(self, node: OpNode, operands: tuple[FieldPoint, ...]) -> tuple[FieldPoint, ...]:
        """Return the results of an operator at every point."""
        if node.spec.kind is OpKind.CONSTANT:
            (value,) = self.rule(node.spec, (), node.attribute_map, 0)
            return (self.map(lambda array: array.reshape(1, *array.shape), value),)
        rank = max(len(self.shape_of(operand)) for operand in operands)
        aligned = []
        for operand in operands:
            missing = rank - len(self.shape_of(operand))
            aligned.append(self.map(lambda a, n=missing: a.reshape(a.shape[0], *(1,) * n, *a.shape[1:]), operand))
        return self.rule(node.spec, tuple(aligned), node.attribute_map, 1)

    def launch(
        self, node: GraphDefinedNode, operands: tuple[FieldPoint, ...], observe: Observer | None
    ) -> tuple[FieldPoint, ...]:
        """Refuse. Raises: NotApplicableError."""
        raise NotApplicableError("block graphs are not evaluated at many points at once; use `probabilistic.run_tests`")


def count_accepted(
    program: KernelGraph,
    candidate: KernelGraph,
    pair: FieldPair,
    points: int,
    rng: np.random.Generator,
    *,
    batch: int = 10_000,
    cell: Sequence[npt.ArrayLike] | None = None,
) -> Trials:
    """Return at how many of some random points two programs agree; each batch has its own root of unity.

    cell: real inputs that choose the pieces of piecewise operators at all points (else each point has its own).
    Raises: NotApplicableError for programs with block graphs.
    """
    valid, accepted = 0, 0
    for start in range(0, points, batch):
        size = min(batch, points - start)
        arithmetic = FieldArithmetic(pair, pair.random_omega(rng))
        inputs = []
        for number, tensor in enumerate(program.inputs):
            shape = (size, *tensor.shape)
            real = rng.standard_normal(shape) if cell is None else np.broadcast_to(cell[number], shape)
            inputs.append(FieldPoint(random_elements(rng, shape, pair), real))
        seed = int(rng.integers(2**31))
        meaning, outputs = np.ones(size, dtype=bool), []
        for graph in (program, candidate):
            domain = ManyPoints(arithmetic, seed=seed)
            outputs.append(evaluate_in_field(graph, inputs, domain))
            for fault in arithmetic.take_faults():
                meaning &= ~_any_element(np.asarray(fault.mask))
        agree = meaning & ~_differ(arithmetic, outputs, size)
        valid += int(meaning.sum())
        accepted += int(agree.sum())
    return Trials(valid, accepted)


def _differ(arithmetic: FieldArithmetic, outputs: Sequence[list[FieldPoint]], size: int) -> Mask:
    """Return at which points some output element differs."""
    found = np.zeros(size, dtype=bool)
    for left, right in zip(*outputs, strict=True):
        found |= _any_element(np.asarray(arithmetic.differs(left.residues, right.residues)))
    return found


def _any_element(mask: Mask) -> Mask:
    """Return per point whether an element is True; one entry for all points if the mask has only that."""
    return np.asarray(mask.reshape(mask.shape[0], -1).any(axis=1), dtype=np.bool_)
