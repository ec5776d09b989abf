"""One random test, tensor by tensor: the values of both programs in Z_p x Z_q, as data that a page can step through.

Invariant: the point is one that `run_tests` could have drawn, and the last values are what it compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from workbench.core.shapes import Shape
from workbench.domains.field_pairs import FieldPair, field_pair
from workbench.domains.finite_field import FieldArithmetic
from workbench.errors import UsageError
from workbench.interpret.arrays import Tile
from workbench.interpret.field import FieldDomain, FieldPoint, evaluate_in_field
from workbench.interpret.walk import Observer
from workbench.ops.spec import Array
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.verify.probabilistic import Mismatch, first_mismatch
from workbench.verify.sampling import Sampler, features

Side = Literal["program", "candidate"]


@dataclass(frozen=True, slots=True, eq=False)
class ValueStep:
    """One tensor of one program at the point.

    Attributes: side; path: names from the kernel graph inwards; level: "kernel" or "block"; shape: of the tensor, or for a
    tile (grid x, y, z, loop, *tile); p, q: residues, q None after exp; is_input, is_output.
    """

    side: Side
    path: tuple[str, ...]
    level: Literal["kernel", "block"]
    shape: Shape
    p: Array
    q: Array | None
    is_input: bool
    is_output: bool


@dataclass(frozen=True, slots=True, eq=False)
class Walkthrough:
    """One random test of two programs, all values kept.

    Attributes: pair; omega: the root of unity that exp uses; steps: in order of computation, the program's first;
    resampled: parts of inputs drawn again; mismatch: where the outputs differ, None if they agree.
    """

    pair: FieldPair
    omega: int
    steps: tuple[ValueStep, ...]
    resampled: int
    mismatch: Mismatch | None

    def side(self, side: Side) -> tuple[ValueStep, ...]:
        """Return the steps of one program."""
        return tuple(step for step in self.steps if step.side == side)


def walk_through(
    program: KernelGraph,
    candidate: KernelGraph,
    *,
    pair: FieldPair | str = "w31",
    seed: int = 0,
    max_elements: int = 1 << 20,
) -> Walkthrough:
    """Return every tensor's residues at one random point, for both programs.

    Meant for reduced instances. Raises: UsageError when a program's inputs have more than `max_elements` elements;
    NotApplicableError when no point has a meaning; OutsideLaxError.
    """
    elements = sum(int(np.prod(tensor.shape)) for tensor in program.inputs)
    if elements > max_elements:
        raise UsageError(
            f"the inputs have {elements} elements; walk through a reduced instance (at most {max_elements})"
        )
    chosen = field_pair(pair) if isinstance(pair, str) else pair
    rng = np.random.default_rng(seed)
    arithmetic = FieldArithmetic(chosen, chosen.random_omega(rng))
    with_real = any(features(graph).piecewise for graph in (program, candidate))
    key = int(rng.integers(2**31))
    draw = Sampler((program, candidate), arithmetic, rng, with_real=with_real).draw(key)
    steps: list[ValueStep] = []
    sides: tuple[tuple[Side, KernelGraph], ...] = (("program", program), ("candidate", candidate))
    for side, graph in sides:
        evaluate_in_field(graph, draw.points, FieldDomain(arithmetic, seed=key), observe=_notes(steps, side, graph))
        arithmetic.take_faults()
    return Walkthrough(chosen, arithmetic.omega, tuple(steps), draw.resampled, first_mismatch(draw, arithmetic))


def _notes(steps: list[ValueStep], side: Side, graph: KernelGraph) -> Observer:
    """Return an observer that writes every value down as a step of one side."""
    inputs = {tensor.name for tensor in graph.inputs}

    def note(path: tuple[str, ...], value: object) -> None:
        point = value.value if isinstance(value, Tile) else value
        assert isinstance(point, FieldPoint)
        at_kernel = len(path) == 1
        steps.append(
            ValueStep(
                side=side,
                path=path,
                level="kernel" if at_kernel else "block",
                shape=point.residues.shape,
                p=point.residues.p,
                q=point.residues.q,
                is_input=at_kernel and path[0] in inputs,
                is_output=at_kernel and path[0] in graph.output_names,
            )
        )

    return note
