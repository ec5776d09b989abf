"""Which abstract expressions the outputs of a finished µGraph are, and how far they are from a program's.

Each axis is taken apart into the parts that some launch cuts it into; a fold in a loop takes a tile's part, its
accumulator the loop's. Invariant: a µGraph that computes the program, as far as A_eq goes, has distance 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import assert_never

from workbench.core.tensors import DeviceTensor
from workbench.domains import abstract_expr as expr
from workbench.domains import abstract_print
from workbench.domains.abstract_building import AxesBuilder
from workbench.domains.abstract_expr import Axis, Part, Term
from workbench.domains.abstract_goals import Goals, Judgement
from workbench.domains.abstract_normal_form import Algebra
from workbench.domains.abstract_readback import Readback
from workbench.errors import NotApplicableError
from workbench.ops.attributes import integer
from workbench.ops.spec import Dim, Factor
from workbench.ugraph.axes import AxisAnalysis, DimAxes, analyze_axes
from workbench.ugraph.dataflow import Step, flatten
from workbench.ugraph.expand import expand
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import Accumulator, AccumulatorKind, InputIterator, OpNode, OutputSaver, RunningMax

_Names = dict[str, list[str | int]]
_Cuts = dict[str, set[Part]]


@dataclass(frozen=True, slots=True)
class OutputDistance:
    """How an output of a µGraph stands to a program's. Attributes: judgement; expression, goal: in the lecture's notation."""

    judgement: Judgement
    expression: str
    goal: str

    @property
    def distance(self) -> int:
        """0 when they are equal under A_eq, FAR when it is no part of the program's, else the operators between them."""
        return self.judgement.distance


def distances(program: KernelGraph, candidate: KernelGraph) -> tuple[OutputDistance, ...]:
    """Return per output how far a candidate's expression is from the program's.

    Raises: NotApplicableError where a µGraph has no abstract expression here (running maxima, cuts of merged axes).
    """
    names = _names_of(program)
    reader = _Reader(candidate, names, None)
    found = reader.outputs()
    wanted = _Reader(program, names, reader.cuts).outputs()
    result = []
    for mine, theirs in zip(found, wanted, strict=True):
        algebra = Algebra()
        goal, value = algebra.normalize(theirs), algebra.normalize(mine)
        goals, readback = Goals(algebra, [goal]), Readback(algebra)
        texts = (abstract_print.to_text(readback.term(each)) for each in (value, goal))
        result.append(OutputDistance(goals.judge(value), *(_named(text, program) for text in texts)))
    return tuple(result)


def _named(text: str, program: KernelGraph) -> str:
    """Return a text with the program's names for its inputs."""
    for position in reversed(range(len(program.inputs))):
        text = text.replace(f"in{position}", program.inputs[position].name)
    return text


def _names_of(program: KernelGraph) -> _Names:
    """Return per input the names of its dimensions, so that another graph over the same inputs has the same axes."""
    analysis = analyze_axes(program)
    names: _Names = {}
    for tensor in program.inputs:
        dims = analysis.dims(tensor.name)
        if all(len(dim) == 1 or extent == 1 for dim, extent in zip(dims, tensor.shape, strict=True)):
            names[tensor.name] = [dim[0] if dim else 1 for dim in dims]
    return names


class _Reader:
    """Builds the term of every value. cuts: per axis the parts that launches cut off; None: those of the graph itself."""

    def __init__(self, graph: KernelGraph, names: Mapping[str, Sequence[str | int]], cuts: _Cuts | None) -> None:
        self.graph = expand(graph)
        self.flow = flatten(self.graph)
        self.analysis: AxisAnalysis = analyze_axes(self.graph, names)
        self.cuts = self._own_cuts() if cuts is None else cuts
        self.terms: dict[int, Term] = {}
        self._inputs = 0

    def _own_cuts(self) -> _Cuts:
        cuts: _Cuts = {}
        for launch in range(len(self.analysis.blocks)):
            for name, part in self._cut_off(launch):
                if name not in self.analysis.axes:
                    raise NotApplicableError(f"a launch cuts the axes {name} together")
                cuts.setdefault(name, set()).add(part)
        return cuts

    def _cut_off(self, launch: int) -> set[tuple[str, Part]]:
        """Return which parts of which axes a launch spreads over blocks or iterations (one block cuts nothing)."""
        axes, block = self.analysis.blocks[launch], self.flow.block(launch)
        grid = {
            (name, Part.GRID) for names, n in zip(axes.grid, block.grid_dims, strict=True) if n > 1 for name in names
        }
        return grid | {(name, Part.LOOP) for name in axes.loop if block.forloop_range > 1}

    def outputs(self) -> tuple[Term, ...]:
        """Return the terms of the outputs. Raises: NotApplicableError."""
        for step in self.flow.steps:
            self._step(step)
        return tuple(self.terms[value] for value in self.flow.outputs)

    # ---------------------------------------------------------------------------------------------------------- axes
    def _whole(self, name: str) -> list[Axis]:
        """Return every part of an axis, outermost first."""
        axis = self.analysis.axes.get(name)
        if axis is not None and axis.parts:
            return [part for each in axis.parts for part in self._whole(each)]
        cut = self.cuts.get(name)
        if not cut:
            return [Axis(name)]
        return [Axis(name, part) for part in (Part.GRID, Part.LOOP) if part in cut] + [Axis(name, Part.TILE)]

    def _parts(self, name: str, launch: int | None) -> list[Axis]:
        """Return the parts that an axis of a tensor or tile stands for."""
        base = self.analysis.axis(name).part_of
        if base is None:
            return self._whole(name)
        label = name.removeprefix(f"{base}.")
        if label.startswith("loop"):
            return [Axis(base, Part.LOOP)]
        if not label.startswith("tile"):
            return [Axis(base, Part.GRID)]
        if launch is None:
            raise NotApplicableError(f"the tile {name} stands outside a launch")
        off = self._cut_off(launch)
        return [axis for axis in self._whole(base) if (base, axis.part) not in off]

    def _group(self, member: Dim | Factor, step: Step, seen: Sequence[tuple[DimAxes, ...]]) -> list[Axis]:
        dim = member if isinstance(member, Dim) else member.dim
        names: Sequence[str] = seen[dim.operand][dim.axis]
        if isinstance(member, Factor):
            names = names[member.position : member.position + 1]
        return [axis for name in names for axis in self._parts(name, step.launch)]

    def _as_seen(self, value: int, step: Step, seen: tuple[DimAxes, ...]) -> Term:
        """Return a term with its axes named as a step sees them (X in X @ X^T)."""
        term = self.terms[value]
        own = self.analysis.tensors[self.flow.paths[value]]
        pairs: dict[Axis, Axis] = {}
        for dim, other in zip(own, seen, strict=True):
            for old, new in zip(dim, other, strict=False):
                if old != new:
                    pairs |= dict(zip(self._parts(old, step.launch), self._parts(new, step.launch), strict=False))
        return expr.rename_axes(term, pairs) if pairs else term

    # --------------------------------------------------------------------------------------------------------- steps
    def _step(self, step: Step) -> None:
        node, result = step.node, step.results[0]
        match node:
            case DeviceTensor():
                dims = self.analysis.tensors[step.path]
                wide = zip(dims, node.shape, strict=True)
                axes = [axis for dim, extent in wide if extent > 1 for name in dim for axis in self._parts(name, None)]
                self.terms[result] = expr.symbol(f"in{self._inputs}", axes)
                self._inputs += 1
            case InputIterator():
                self.terms[result] = self._as_seen(step.operands[0], step, self.analysis.operands[step.path, 0])
            case OutputSaver():
                self.terms[result] = self.terms[step.operands[0]]
            case Accumulator():
                self.terms[result] = self._accumulated(node, step)
            case RunningMax():
                raise NotApplicableError("a running maximum has no abstract expression of its own")
            case OpNode():
                self._operator(node, step)
            case _:
                assert_never(node)

    def _accumulated(self, node: Accumulator, step: Step) -> Term:
        assert step.launch is not None
        axes = [Axis(name, part) for name, part in self._cut_off(step.launch) if part is Part.LOOP]
        axes.sort(key=str)
        term = self.terms[step.operands[0]]
        count = self.flow.block(step.launch).forloop_range
        match node.kind:
            case AccumulatorKind.SUM if axes:
                return expr.sum_over(axes, term)
            case AccumulatorKind.SUM:
                return expr.mul(expr.constant(Fraction(count)), term) if count > 1 else term
            case AccumulatorKind.MAX:
                return expr.max_over(axes, term) if axes else term
        raise NotApplicableError(f"an accumulator {node.kind.value} has no abstract expression here")

    def _operator(self, node: OpNode, step: Step) -> None:
        shapes = tuple(self.flow.shapes[value] for value in step.operands)
        seen = [self.analysis.operands[step.path, position] for position in range(len(shapes))]
        terms = tuple(self._as_seen(value, step, dims) for value, dims in zip(step.operands, seen, strict=True))
        if len(step.results) > 1:
            for number, result in enumerate(step.results):
                attributes = "".join(f" {name}={value}" for name, value in node.attributes)
                self.terms[result] = expr.apply(f"{node.op} {number}{attributes}", *terms)
            return
        groups = [self._group(group[0], step, seen) for group in node.spec.axes(shapes, node.attribute_map).reduced]
        builder = AxesBuilder(groups)
        if node.op == "concat":
            at = integer(node.attribute_map, "axis")
            joined = self.analysis.tensors[step.path][at]
            builder = AxesBuilder(
                groups, concatenated="*".join(joined), parts=[Axis("*".join(dims[at])) for dims in seen]
            )
        self.terms[step.results[0]] = node.spec.abstract(builder, terms, shapes, node.attribute_map)
