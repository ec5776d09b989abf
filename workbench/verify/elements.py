"""What an element of each output is, as a form over input elements: one walk over a µGraph of any level and size.

Invariant: tiles, loops and reshapes become indices, so a kernel graph and its tiled version give one form where they fold
in the same way; no tensor is expanded into its elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor
from workbench.errors import NotApplicableError
from workbench.interpret.tiling import cuts_of
from workbench.interpret.walk import Observer, walk, walk_block
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.inference import LOOP
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import (
    Accumulator,
    AccumulatorKind,
    GraphDefinedNode,
    InputIterator,
    OpNode,
    OutputSaver,
    RunningMax,
)
from workbench.verify.element_rules import At, Cell, ElementRules, Tensor, part_lengths, stretched
from workbench.verify.form_atoms import Exponential, Form
from workbench.verify.forms import Forms
from workbench.verify.indices import Index, Var, combine, constant, divide, shift, variable

MAX_UNROLLED = 8  # a rescaled accumulator whose factors do not telescope is unrolled up to this many iterations


@dataclass(frozen=True, slots=True)
class Elements:
    """A program as forms.

    Attributes: outputs: an element of each at `free` indices; shapes: the outputs'; has_q: whether it has a part modulo q;
    divisors, radicands: everything that is divided by or rooted, each with the number of its elements; opaque: names of
    operators taken as random functions; piecewise: whether some operator is.
    """

    outputs: tuple[Form, ...]
    shapes: tuple[Shape, ...]
    has_q: tuple[bool, ...]
    divisors: tuple[tuple[Form, int], ...]
    radicands: tuple[tuple[Form, int], ...]
    opaque: tuple[str, ...]
    piecewise: bool


def elements_of(graph: KernelGraph, forms: Forms, *, root_on_q: bool = True) -> Elements:
    """Return the forms of a program's outputs.

    Raises: NotApplicableError where an operator has none (says which), or no value whatever the inputs are.
    """
    domain = _ElementDomain(forms, root_on_q)
    inputs = [domain.input(number, tensor) for number, tensor in enumerate(graph.inputs)]
    outputs: list[Tensor] = walk(graph, inputs, domain)
    found = tuple(value.at((), _free(value.shape)) for value in outputs)
    divisors, radicands = (tuple(domain.everywhere(seen)) for seen in (domain.divisors, domain.radicands))
    if any(not form.terms for form, _ in divisors):
        raise NotApplicableError("a quotient has no value: what is divided by is zero, whatever the inputs are")
    if any(form.constant is not None and form.constant < 0 for form, _ in radicands):
        raise NotApplicableError("a root has no value: what it is taken of is negative, whatever the inputs are")
    return Elements(
        outputs=found,
        shapes=tuple(value.shape for value in outputs),
        has_q=tuple(value.has_q for value in outputs),
        divisors=divisors,
        radicands=radicands,
        opaque=tuple(domain.opaque),
        piecewise=domain.piecewise,
    )


def have_equal_forms(left: KernelGraph, right: KernelGraph) -> bool:
    """Return True when every output element of two programs is one form: then they are equal, at these shapes.

    That is a proof, at any size, by the identities that `Forms` uses; False says nothing.
    """
    forms = Forms()
    try:
        first, second = elements_of(left, forms), elements_of(right, forms)
    except NotApplicableError:
        return False
    same = all(a is b for a, b in zip(first.outputs, second.outputs, strict=False))
    return first.shapes == second.shapes and same


def _free(shape: Shape) -> tuple[Index, ...]:
    return tuple(variable(Var("free", axis, extent)) for axis, extent in enumerate(shape))


class _ElementDomain(ElementRules):
    """The domain of `walk`: values are `Tensor`s at both levels. Attributes: running: running maxima of the block graphs."""

    def __init__(self, forms: Forms, root_on_q: bool) -> None:
        super().__init__(forms, root_on_q)
        self.running: list[Tensor] = []

    def input(self, number: int, tensor: DeviceTensor) -> Tensor:
        """Return a program input."""
        return Tensor(tensor.shape, lambda cell, index: self.forms.element(number, index), True)

    def everywhere(self, found: list[tuple[Tensor, tuple[int, ...]]]) -> Iterator[tuple[Form, int]]:
        """Yield the recorded tensors' elements as forms, with how many different ones there are at most."""
        for tensor, counts in found:
            cell = tuple(variable(Var("cell", axis, count)) for axis, count in enumerate(counts))
            form = tensor.at(cell, _free(tensor.shape))
            yield form, prod(var.extent for var in form.variables)

    # ------------------------------------------------------------------------------------------------------------ levels
    def operator(self, node: OpNode, operands: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the results of a predefined kernel operator."""
        return self.apply(node.op, node.attribute_map, operands)

    def tile_operator(self, node: OpNode, operands: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the results of an operator on tiles."""
        return self.apply(node.op, node.attribute_map, operands)

    def launch(
        self, node: GraphDefinedNode, operands: tuple[Tensor, ...], observe: Observer | None
    ) -> tuple[Tensor, ...]:
        """Return the results of a graph-defined operator: savers turn an index into cell and index in the tile."""
        block = node.block
        outer, self.counts = self.counts, (*block.grid_dims, block.forloop_range)
        tiles: list[Tensor] = walk_block(block, operands, self)
        self.counts = outer
        return tuple(
            Tensor(shape, self._saved(saver, tile, block), tile.has_q)
            for saver, tile, shape in zip(block.savers, tiles, block.result_shapes, strict=True)
        )

    def _saved(self, saver: OutputSaver, tile: Tensor, block: BlockGraph) -> At:
        cuts = []
        for dim, extent in enumerate(tile.shape):
            axes = [axis for axis in range(LOOP) if saver.omap[axis] == dim and block.grid_dims[axis] > 1]
            counts = [block.grid_dims[axis] for axis in axes]
            split = tile.ragged[dim] if tile.ragged else None
            lengths = part_lengths(extent * prod(counts) if split is None else split.extent, counts)
            cuts.append(list(zip(axes, lengths, counts, strict=True)))

        def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
            cells, inside = [constant(0)] * (LOOP + 1), list(index)
            for dim, parts in enumerate(cuts):
                for axis, length, count in parts:
                    cells[axis], inside[dim] = divide(inside[dim], length, count)
            return tile.at(tuple(cells), tuple(inside))

        return rule

    def load(self, node: InputIterator, value: Tensor, tensor: DeviceTensor, block: BlockGraph) -> Tensor:
        """Return the tiles an input iterator brings."""
        cuts = [
            cuts_of(dim, node.imap, node.fmap, block.grid_dims, block.forloop_range) for dim in range(len(value.shape))
        ]
        lengths = [
            part_lengths(extent, [count for _, count in parts]) for extent, parts in zip(value.shape, cuts, strict=True)
        ]

        def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
            whole = []
            for dim, inside in enumerate(index):
                starts = [(length, cell[axis]) for (axis, _), length in zip(cuts[dim], lengths[dim], strict=True)]
                whole.append(combine([*starts, (1, inside)]))
            return value.at((), tuple(whole))

        return Tensor(node.result.shape, rule, value.has_q, node.result.ragged)

    # ------------------------------------------------------------------------------------------------------ accumulators
    def accumulate(self, node: Accumulator, operand: Tensor, rescale: Tensor | None, block: BlockGraph) -> Tensor:
        """Return what an accumulator leaves after the loop."""
        loop = block.forloop_range
        match node.kind:
            case AccumulatorKind.SUM:
                return self._over_loop(operand, loop)
            case AccumulatorKind.SUM_DIM:
                return self._over_loop(self.call_by_name("sum", operand, axis=-1), loop)
            case AccumulatorKind.SUM_TO_COLUMNS:
                assert node.columns is not None
                return self._over_loop(self.call_by_name("sum_to_columns", operand, columns=node.columns), loop)
            case AccumulatorKind.MAX:
                if any(operand is maximum for maximum in self.running):
                    return self._at_last(operand, loop)
                return self._largest_over_loop(operand, loop)
            case AccumulatorKind.MAX_DIM:
                return self._largest_over_loop(self.call_by_name("max", operand, axis=-1), loop)
            case AccumulatorKind.MEAN:
                return self._mean(operand, loop)
            case AccumulatorKind.RMS:
                mean = self._mean(self.call_by_name("square", operand), loop)
                if node.eps:
                    mean = self.call_by_name("add", mean, self.call_by_name("constant", value=node.eps))
                return self.call_by_name("sqrt", mean)
            case AccumulatorKind.RESCALE:
                assert rescale is not None
                return self._rescaled(operand, rescale, loop)
            case AccumulatorKind.RESCALE_SUM:
                assert rescale is not None
                split = operand.split(-1)
                if split is not None and any(axis == LOOP for axis, _ in split.parts):
                    # where a tile ends is known in its iteration; the factor is constant along such an axis
                    return self._rescaled(self.call_by_name("sum", operand, axis=-1), rescale, loop)
                return self.call_by_name("sum", self._rescaled(operand, rescale, loop), axis=-1)

    def _over_loop(self, tile: Tensor, loop: int) -> Tensor:
        def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
            with self.open(loop) as step:
                return self.forms.sum_over(step, tile.at((*cell[:LOOP], variable(step)), index))

        return Tensor(tile.shape, rule, tile.has_q, tile.ragged)

    def _largest_over_loop(self, tile: Tensor, loop: int) -> Tensor:
        self.piecewise = True

        def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
            with self.open(loop) as step:
                return self.forms.largest("max", step, tile.at((*cell[:LOOP], variable(step)), index))

        return Tensor(tile.shape, rule, tile.has_q, tile.ragged)

    def _at_last(self, tile: Tensor, loop: int) -> Tensor:
        """Return what the last iteration has: of a running maximum, which never falls, the largest of all iterations."""
        return Tensor(
            tile.shape,
            lambda cell, index: tile.at((*cell[:LOOP], constant(loop - 1)), index),
            tile.has_q,
            tile.ragged,
        )

    def _mean(self, tile: Tensor, loop: int) -> Tensor:
        total = self._over_loop(self.call_by_name("sum", tile, axis=-1), loop)
        split = tile.split(-1)
        if split is None:
            return self.call_by_name("scale", total, factor=Fraction(1, tile.shape[-1] * loop))
        if all(axis == LOOP for axis, _ in split.parts):
            return self.call_by_name("scale", total, factor=Fraction(1, split.extent))
        return self.over_count(total, f"length of {split} in {loop} iterations")

    def _rescaled(self, tile: Tensor, factor: Tensor, loop: int) -> Tensor:
        """Return the sum over steps of tile(step) times the factors of all later steps."""
        forms = self.forms

        def rule(cell: Cell, index: tuple[Index, ...]) -> Form:
            place = stretched(index, factor.shape)
            with self.open(loop) as step:
                at = (*cell[:LOOP], variable(step))
                after = _telescoped(forms, factor.at(at, place), step)
                if after is not None:
                    return forms.sum_over(step, forms.mul(tile.at(at, index), after))
            if loop > MAX_UNROLLED:
                raise NotApplicableError(
                    f"a rescaled accumulator over {loop} iterations has factors that are no shifts of a running value"
                )
            total = forms.zero
            for number in range(loop):
                at = (*cell[:LOOP], constant(number))
                kept = total if number == 0 else forms.mul(total, factor.at(at, place))
                total = forms.add(kept, tile.at(at, index))
            return total

        return Tensor(tile.shape, rule, tile.has_q and factor.has_q, tile.ragged)

    def running_max(self, node: RunningMax, operand: Tensor, block: BlockGraph) -> tuple[Tensor, Tensor]:
        """Return the running maximum, and its last change; before the first iteration it is as after it."""
        self.piecewise = True
        forms, loop = self.forms, block.forloop_range

        def largest(cell: Cell, index: tuple[Index, ...], step: Index) -> Form:
            first, second = Var("open", -1, loop), Var("open", -2, operand.shape[-1])
            at, place = (*cell[:LOOP], variable(first)), variable(second)
            limits = self.limits(operand.split(-1), at, place)
            over = {first: "iteration", second: "element"}
            return forms.chosen("running maximum of", operand.at(at, (*index[:-1], place)), over, limits, (step,))

        def maximum(cell: Cell, index: tuple[Index, ...]) -> Form:
            return largest(cell, index, cell[LOOP])

        def change(cell: Cell, index: tuple[Index, ...]) -> Form:
            return forms.sub(largest(cell, index, shift(cell[LOOP], -1)), largest(cell, index, cell[LOOP]))

        results = [
            Tensor(result.shape, rule, operand.has_q, result.ragged)
            for result, rule in ((node.maximum, maximum), (node.shift, change))
        ]
        self.running.append(results[0])
        return results[0], results[1]


def _telescoped(forms: Forms, factor: Form, step: Var) -> Form | None:
    """Return the product of the factors of all later steps, where factor = exp(m(step - 1) - m(step)), else None."""
    if len(factor.terms) != 1 or factor.terms[0][1] != 1 or len(factor.terms[0][0]) != 1:
        return None
    ((atom, power),) = factor.terms[0][0]
    if not isinstance(atom, Exponential) or power != 1:
        return None
    for sign in (1, -1):
        now = forms.form({m: -c for m, c in atom.argument.terms if sign * c < 0})
        before = forms.form({m: c for m, c in atom.argument.terms if sign * c > 0})
        if forms.substitute(before, {step: shift(variable(step), 1)}) is now:
            last = forms.substitute(now, {step: constant(step.extent - 1)})
            return forms.exp(forms.sub(now, last))
    return None
