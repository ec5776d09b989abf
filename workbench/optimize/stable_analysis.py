"""Which exponentials may have a maximum subtracted: those whose row factor cancels in every output of the program.

Invariant: an exponential is taken only if every output has degree 0 in its row factor (`scale_degrees.py`), across kernels
too; for any other, `NotHomogeneous` names it and says where the factor stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import assert_never

from workbench.core.tensors import DeviceTensor
from workbench.optimize.scale_degrees import LINEAR, NONE, Degree, NotHomogeneous, Scale, operator_degree
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.inference import LOOP, Place
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import (
    Accumulator,
    AccumulatorKind,
    DimMap,
    GraphDefinedNode,
    InputIterator,
    OpNode,
    OutputSaver,
    RunningMax,
    ThreadNode,
)

_MAXIMA = (AccumulatorKind.MAX, AccumulatorKind.MAX_DIM)


@dataclass(frozen=True, slots=True)
class Partial:
    """A kernel tensor whose elements carry a scale: its degree, the launch that makes it, how the grid lays it out."""

    degree: Degree
    launch: str
    omap: DimMap


@dataclass
class Degrees:
    """What the analysis found; values and exponentials by the label of their launch and their name.

    Attributes: values: degrees of scaled tiles; partial: kernel tensors that carry a scale; exponentials: those that get
    a maximum subtracted; borrowed: those of them that take another kernel's; maps: per launch and scale, how the launch
    loads its maxima; needed: per launch, the scales whose maxima it loads.
    """

    values: dict[tuple[str, str], Degree] = field(default_factory=dict)
    partial: dict[str, Partial] = field(default_factory=dict)
    exponentials: dict[tuple[str, str], Scale] = field(default_factory=dict)
    borrowed: set[tuple[str, str]] = field(default_factory=set)
    maps: dict[tuple[str, str], tuple[DimMap, int | None]] = field(default_factory=dict)
    needed: dict[str, set[str]] = field(default_factory=dict)

    def of(self, label: str, names: Sequence[str]) -> list[Degree]:
        """Return the degrees of tiles of a launch."""
        return [self.values.get((label, name), NONE) for name in names]


def label_of(node: GraphDefinedNode) -> str:
    """Return what a launch is called: its first result."""
    return node.results[0].name


class Analysis:
    """Finds the degrees of all values when all exponentials but those in `left` (by the key of their scale) are scaled."""

    def __init__(self, graph: KernelGraph, left: frozenset[str]) -> None:
        self.graph, self.left, self.found = graph, left, Degrees()
        self.looped: set[str] = set()
        self.meanings: dict[str, str] = {}

    def run(self) -> Degrees:
        """Return the degrees. Raises: NotHomogeneous for scales that do not cancel."""
        for node in self.graph.nodes:
            match node:
                case OpNode():
                    for name in node.operands:
                        if name in self.found.partial:
                            raise NotHomogeneous(
                                tuple(self.found.partial[name].degree),
                                f"{node.op} {node.results[0].name} reads {name} outside a graph-defined operator",
                            )
                case GraphDefinedNode():
                    self.block(node)
                case _:
                    assert_never(node)
        for name in self.graph.output_names:
            if name in self.found.partial:
                raise NotHomogeneous(
                    tuple(self.found.partial[name].degree),
                    f"output {name} would keep the factor; nothing divides it away",
                )
        return self.found

    def block(self, launch: GraphDefinedNode) -> None:
        """Find the degrees of a block graph's tiles and of its results."""
        block, label, saved = launch.block, label_of(launch), 0
        where = f"in {launch.name or label}"
        for node in block.nodes:
            degrees = self.found.of(label, node.operands)
            degree: Degree = NONE
            match node:
                case InputIterator():
                    degree = self.loaded(launch, node)
                case OpNode():
                    degree = self.operator(launch, node, degrees, where)
                case Accumulator():
                    degree = self.accumulated(node, degrees, where)
                case OutputSaver():
                    self.saved(launch, node, launch.results[saved], degrees[0])
                    saved += 1
                case RunningMax() | ThreadNode():
                    if any(degrees):
                        scales = [scale for each in degrees for scale in each]
                        raise NotHomogeneous(scales, f"{where}: scaled values are read by {node.results[0].name}")
                case _:
                    assert_never(node)
            if degree:
                self.found.values |= {(label, tensor.name): degree for tensor in node.results}

    def operator(self, launch: GraphDefinedNode, node: OpNode, degrees: Sequence[Degree], where: str) -> Degree:
        """Return the degree of an operator's results; of an exponential that is taken, 1 in its own scale."""
        block, label, name = launch.block, label_of(launch), node.results[0].name
        shapes = [block.tiles[operand].shape for operand in node.operands]
        degree = operator_degree(node, degrees, shapes, node.results[0].shape, where=where)
        if node.op != "exp" or not shapes[0] or is_bounded(self.graph, block, node.operands[0]):
            return degree
        if any(cut == LOOP for cuts in block.tiles[node.operands[0]].ragged[:-1] if cuts for cut, _ in cuts.parts):
            return degree  # rows that only some iterations have keep no running maximum
        if not any(True for _ in block.consumers(name)):
            return degree
        scale = Scale(f"exp of {node.operands[0]} in {label}")
        if scale.key in self.left:
            return degree
        meaning = self.meaning(launch, node.operands[0])
        borrowed = self.lender(launch, meaning, shapes[0])
        if borrowed is not None:
            self.found.borrowed.add((label, name))
            self.found.needed.setdefault(label, set()).add(borrowed.key)
            scale = borrowed
        else:
            self.meanings[scale.key] = meaning
            if block.places[node.operands[0]] is Place.LOOP:
                self.looped.add(scale.key)
        self.found.exponentials[label, name] = scale
        return {scale: Fraction(1)}

    def lender(self, launch: GraphDefinedNode, meaning: str, shape: tuple[int, ...]) -> Scale | None:
        """Return the scale of the same exponent in an earlier kernel whose scaled results this launch reads."""
        for node in launch.block.iterators:
            partial = self.found.partial.get(launch.operands[node.operand])
            for scale in partial.degree if partial is not None else ():
                is_same = self.meanings.get(scale.key) == meaning and node.result.shape[:-1] == shape[:-1]
                if is_same and scale.parts == 1 and scale.key not in self.left:
                    return scale
        return None

    def meaning(self, launch: GraphDefinedNode, name: str) -> str:
        """Return a tile as an expression over kernel tensors, so that equal exponents of two kernels are found."""
        node = launch.block.producer(name)
        match node:
            case InputIterator():
                return launch.operands[node.operand]
            case OpNode():
                inner = ", ".join(self.meaning(launch, operand) for operand in node.operands)
                return f"{node.op}{dict(node.attributes) or ''}({inner})"
            case _:
                return f"{label_of(launch)}.{name}"

    def accumulated(self, node: Accumulator, degrees: Sequence[Degree], where: str) -> Degree:
        """Return the degree of an accumulator: that of what it sums."""
        scales = sorted({scale for degree in degrees for scale in degree})
        if not scales:
            return NONE
        looped = [scale for scale in scales if scale.key in self.looped]
        if node.kind not in LINEAR:
            raise NotHomogeneous(scales, f"{where}: accumulator {node.result.name} is of kind {node.kind.value}")
        if any(scale.parts > 1 for scale in scales):
            raise NotHomogeneous(scales, f"{where}: the parts of a split axis are accumulated by {node.result.name}")
        if looped and (len(looped) > 1 or degrees[0][looped[0]] != 1):
            raise NotHomogeneous(scales, f"{where}: accumulator {node.result.name} sums products of exponentials")
        return degrees[0]

    def loaded(self, launch: GraphDefinedNode, node: InputIterator) -> Degree:
        """Return the degree of what an iterator brings; note how the maxima that belong to it are loaded."""
        name, label = launch.operands[node.operand], label_of(launch)
        partial = self.found.partial.get(name)
        if partial is None:
            return NONE
        last = len(self.graph.tensors[name].shape) - 1
        scales = tuple(partial.degree)
        imap: DimMap = tuple(None if dim == last else dim for dim in node.imap)  # type: ignore[assignment]
        fmap = None if node.fmap == last else node.fmap
        if any(scale.parts > 1 for scale in scales):
            if (imap, fmap) != (node.imap, node.fmap):
                raise NotHomogeneous(
                    scales, f"{launch.name or label} cuts the axis of {name} along which its parts lie"
                )
            if any(split is not None for split in node.result.ragged):
                raise NotHomogeneous(scales, f"{launch.name or label} reads {name} in tiles that are not full")
            self.found.needed.setdefault(label, set()).update(scale.key for scale in scales)
        for scale in scales:
            if self.found.maps.setdefault((label, scale.key), (imap, fmap)) != (imap, fmap):
                raise NotHomogeneous(
                    scales, f"{launch.name or label} cuts {name} otherwise than what shares its factor"
                )
        return partial.degree

    def saved(self, launch: GraphDefinedNode, node: OutputSaver, tensor: DeviceTensor, degree: Degree) -> None:
        """Note a result that carries a scale."""
        if not degree:
            return
        label, last, grid = label_of(launch), len(tensor.shape) - 1, launch.block.grid_dims
        if any(not scale.key.endswith(f" in {label}") for scale in degree):
            raise NotHomogeneous(tuple(degree), f"{tensor.name} passes on a factor of another kernel")
        if len(degree) > 1:
            raise NotHomogeneous(tuple(degree), f"{tensor.name} carries several factors")
        ((scale, power),) = degree.items()
        parts = prod(grid[axis] for axis in range(3) if node.omap[axis] == last)
        for other in self.found.partial.values():
            if other.launch == label and scale.key in {each.key for each in other.degree} and other.omap != node.omap:
                raise NotHomogeneous([scale], f"{tensor.name} is laid out otherwise than what shares its factor")
        self.found.partial[tensor.name] = Partial({Scale(scale.key, parts): power}, label, node.omap)


def is_bounded(graph: KernelGraph, block: BlockGraph, name: str) -> bool:
    """Return True for an exponent from which a maximum was subtracted already."""
    node = block.producer(name)
    if isinstance(node, RunningMax):
        return name == node.shift.name
    if not (isinstance(node, OpNode) and node.op == "sub"):
        return False
    value, subtracted = node.operands
    maker = block.producer(subtracted)
    match maker:
        case RunningMax():
            return maker.operand == value and subtracted == maker.maximum.name
        case OpNode():
            return maker.op == "max" and maker.operands == (value,)
        case Accumulator():
            return maker.kind in _MAXIMA
        case InputIterator():
            source = block.operands[maker.operand].name
            makers = [
                launch.block.producer(saver.operand)
                for launch in graph.graph_defined
                for saver, tensor in zip(launch.block.savers, launch.results, strict=True)
                if tensor.name == source
            ]
            return any(isinstance(made, Accumulator) and made.kind in _MAXIMA for made in makers)
        case _:
            return False
