"""The stable softmax rewrite: exponentials get the largest exponent of their row subtracted, which cancels in a quotient.

Invariant: the rewritten graph is equal over the reals; whether it may be written so was decided by `stable_analysis.py`.

In a loop the maximum is a running one, and what was accumulated before it grew is rescaled (Milakov and Gimelshein 2018;
FlashAttention). Where blocks share the axis, they store their maxima too, and the kernel that adds up their results
rescales each part to the common maximum (Flash-Decoding).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import assert_never

from workbench.core.dtypes import DType
from workbench.core.tensors import DeviceTensor
from workbench.optimize.scale_degrees import NotHomogeneous, Scale, joined_parts
from workbench.optimize.stable_analysis import Analysis, Degrees, label_of
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.builder import BlockBuilder, KernelBuilder
from workbench.ugraph.dataflow import Path
from workbench.ugraph.expand import inline_thread_graphs
from workbench.ugraph.inference import Place
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
from workbench.ugraph.rewrite import FreshNames, LevelBuilder, Rewriter, restate
from workbench.ugraph.value import Value


@dataclass(frozen=True, slots=True)
class Stabilised:
    """A graph whose exponentials cannot overflow, what was changed, and what was left and why, in words."""

    graph: KernelGraph
    changes: tuple[str, ...]
    left: tuple[str, ...]


def stabilise_softmax(graph: KernelGraph) -> Stabilised:
    """Return the graph with a maximum subtracted in every exponential whose row factor cancels.

    t1 = exp(t0); t2 = accumulate sum(matmul(t1, v)); t3 = accumulate sum_dim(t1); t4 = div(t2, t3)
      -> m, shift = running_max(t0); t1 = exp(sub(t0, m)); r = exp(shift);
         t2 = accumulate rescale(matmul(t1, v), r); t3 = accumulate rescale(sum(t1), r); t4 = div(t2, t3)

    Thread graphs are taken apart first where there is something to rewrite.
    """
    has_threads = any(isinstance(node, ThreadNode) for launch in graph.graph_defined for node in launch.block.nodes)
    inlined = inline_thread_graphs(graph) if has_threads else graph
    left: dict[str, str] = {}
    while True:
        try:
            degrees = Analysis(inlined, frozenset(left)).run()
            break
        except NotHomogeneous as fault:
            left |= dict.fromkeys(sorted(fault.keys), fault.reason)
    reasons = tuple(f"{key} stays as it is: {reason}" for key, reason in left.items())
    if not degrees.exponentials:
        return Stabilised(graph, (), reasons)
    rewrite = _Stabilise(degrees)
    return Stabilised(rewrite.rewrite(inlined), tuple(rewrite.changes), reasons)


@dataclass
class _Maximum:
    """The maximum of an exponent's rows as a tile, and the rescaling factor where it is a running one."""

    tile: Value
    rescale: Value | None = None


def lowest(dtype: DType) -> Fraction:
    """Return the lowest number of a type, at least that of float32, in which kernels compute."""
    return -Fraction(min(dtype.largest, DType.FLOAT32.largest))


class _Stabilise(Rewriter):
    """Copies the graph with maxima subtracted."""

    def __init__(self, degrees: Degrees) -> None:
        self.degrees = degrees
        self.changes: list[str] = []
        self.tensors: dict[str, str] = {}  # scale -> the kernel tensor of its maxima
        self.label = ""
        self.partial: frozenset[str] = frozenset()  # scales whose maxima the block at hand stores
        self.maxima: dict[str, _Maximum] = {}  # of the block at hand
        self.factors: dict[tuple[str, Fraction], Value] = {}

    def add(self, block: BlockBuilder, op: str, stem: str, *operands: Value, **attributes: object) -> Value:
        """Add an operator under a fresh name."""
        return block.apply(op, *operands, name=self.names(stem), **attributes)

    # ------------------------------------------------------------------------------------------------- inside a block
    def operator(self, builder: LevelBuilder, node: OpNode, operands: list[Value], path: Path) -> list[Value]:
        """Subtract the maximum before an exponential; rescale parts before they are added up."""
        if not isinstance(builder, BlockBuilder):
            return self.plain_operator(builder, node, operands, path)
        name = node.results[0].name
        scale = self.degrees.exponentials.get((self.label, name))
        if scale is not None:
            maximum = self.maximum(builder, operands[0], name, scale)
            operands = [self.add(builder, "sub", f"{name}_exponent", operands[0], maximum.tile)]
        for split, power in self.degrees.of(self.label, node.operands)[0].items() if node.operands else ():
            if joined_parts(node, split, [value.shape for value in operands]) is not None:
                made = self.joined(builder, operands[0], split, self.factor(builder, split, power, name), name)
                return restate(builder, [made], node.results)
        return self.plain_operator(builder, node, operands, path)

    def maximum(self, block: BlockBuilder, exponent: Value, name: str, scale: Scale) -> _Maximum:
        """Return the maximum of an exponent's rows; exponentials of one value share it."""
        if scale.key not in self.maxima:
            if block.place(exponent) is Place.LOOP:
                tile, shift = block.running_max(exponent, name=self.names(f"{name}_max"))
                self.maxima[scale.key] = _Maximum(tile, self.add(block, "exp", f"{name}_rescale", shift))
                how = "a running maximum is subtracted, accumulators are rescaled when it grows"
            else:
                largest = self.add(block, "max", f"{name}_max", exponent, axis=-1)
                if scale.key in self.partial:  # of a part of the row a mask of -inf may leave nothing
                    least = self.add(block, "constant", f"{name}_lowest", value=lowest(block.tile(largest).dtype))
                    largest = self.add(block, "maximum", f"{name}_max_bounded", largest, least)
                self.maxima[scale.key] = _Maximum(largest)
                how = "the row's maximum is subtracted"
            self.changes.append(f"{scale.key}: {how}")
        elif (self.label, name) in self.degrees.borrowed:
            self.changes.append(f"exp {name} of {self.label}: the maximum that {scale.key} found is subtracted")
        return self.maxima[scale.key]

    def factor(self, block: BlockBuilder, split: Scale, power: Fraction, stem: str) -> Value:
        """Return, per row and part, what brings the part's maximum to the common one: shape (..., rows, parts)."""
        key = (split.key, power)
        if key not in self.factors:
            maxima = self.maxima[split.key].tile
            common = self.add(block, "max", f"{stem}_max", maxima, axis=-1)
            difference = self.add(block, "sub", f"{stem}_shift", maxima, common)
            if power != 1:
                difference = self.add(block, "scale", f"{stem}_shift", difference, factor=power)
            self.factors[key] = self.add(block, "exp", f"{stem}_factor", difference)
            self.changes.append(f"{split.key}: the {split.parts} blocks' results are rescaled to their common maximum")
        return self.factors[key]

    def joined(self, block: BlockBuilder, value: Value, split: Scale, factor: Value, stem: str) -> Value:
        """Return the sum over the parts of a value (..., rows, parts * width), each times its factor."""
        rows, width = value.shape[:-1], value.shape[-1] // split.parts
        if width == 1:
            return self.add(block, "sum", stem, self.add(block, "mul", f"{stem}_part", value, factor), axis=-1)
        apart = self.add(block, "reshape", f"{stem}_parts", value, shape=(*rows, split.parts, width))
        column = self.add(block, "reshape", f"{stem}_factors", factor, shape=(*rows, split.parts, 1))
        scaled = self.add(block, "mul", f"{stem}_part", apart, column)
        return self.add(block, "reshape", stem, self.add(block, "sum", stem, scaled, axis=-2), shape=(*rows, width))

    def accumulator(self, block: BlockBuilder, node: Accumulator, operands: list[Value], path: Path) -> Value:
        """Rescale what an accumulator of scaled values has so far."""
        degree = self.degrees.of(self.label, node.operands)[0]
        factors = [
            made.rescale
            for scale in degree
            if (made := self.maxima.get(scale.key)) is not None and made.rescale is not None
        ]
        if not factors:
            return self.plain_accumulator(block, node, operands, path)
        value, stem = operands[0], node.result.name
        if node.kind is AccumulatorKind.SUM_DIM:
            value = self.add(block, "sum", f"{stem}_sum", value, axis=-1)
        elif node.kind is AccumulatorKind.SUM_TO_COLUMNS:
            value = self.add(block, "sum_to_columns", f"{stem}_sum", value, columns=node.columns)
        kept = block.accumulate(value, AccumulatorKind.RESCALE, rescale=factors[0], name=self.names(stem))
        return restate(block, [kept], node.results)[0]

    # ---------------------------------------------------------------------------------------------------- whole blocks
    def graph_defined(
        self, kernel: KernelBuilder, node: GraphDefinedNode, operands: list[Value], number: int
    ) -> list[Value]:
        """Copy a graph-defined operator; maxima that other kernels need are stored and loaded."""
        self.label, self.maxima, self.factors = label_of(node), {}, {}
        known = {tensor.name: tensor for tensor in kernel.inputs}
        known |= {t.name: t for made in kernel.nodes for t in made.results if isinstance(t, DeviceTensor)}
        read = {key: known[self.tensors[key]] for key in sorted(self.degrees.needed.get(self.label, ()))}
        given = [*operands, *(Value(kernel, tensor.name, tensor.shape) for tensor in read.values())]
        tensors = [
            replace(known[value.name], name=tensor.name)
            for value, tensor in zip(operands, node.block.operands, strict=True)
        ]
        taken = FreshNames([tensor.name for tensor in tensors])
        tensors += [
            tensor if all(tensor.name != t.name for t in tensors) else replace(tensor, name=taken(tensor.name))
            for tensor in read.values()
        ]
        stored = self.stored(node)
        self.partial = frozenset(stored)
        positions = {key: len(operands) + place for place, key in enumerate(read)}
        block = self.stable_block(node.block, tensors, positions, stored, number)
        results = [self.names(tensor.name) for tensor in node.results]
        maxima = [self.names(f"{node.results[0].name}_max") for _ in stored]
        self.tensors |= dict(zip(stored, maxima, strict=True))
        made = kernel.graph_defined(block, given, names=[*results, *maxima], name=node.name)
        largest = [
            DeviceTensor(name, value.shape, DType.FLOAT32)
            for name, value in zip(maxima, made[len(results) :], strict=True)
        ]
        return restate(kernel, made, [*node.results, *largest])[: len(results)]

    def has_running_maximum(self, block: BlockGraph) -> bool:
        """Return True when the maximum of an exponent of the loop is subtracted in a block graph."""
        return any(
            block.places[name] is Place.LOOP and (label, name) not in self.degrees.borrowed
            for label, name in self.degrees.exponentials
            if label == self.label
        )

    def stored(self, node: GraphDefinedNode) -> dict[str, DimMap]:
        """Return the scales whose maxima a launch must store, and how they are laid out: as what carries the scale."""
        wanted = {key for keys in self.degrees.needed.values() for key in keys}
        return {
            scale.key: partial.omap
            for tensor in node.results
            if (partial := self.degrees.partial.get(tensor.name)) is not None
            for scale in partial.degree
            if scale.key in wanted
        }

    def stable_block(
        self,
        block: BlockGraph,
        operands: Sequence[DeviceTensor],
        read: Mapping[str, int],
        stored: Mapping[str, DimMap],
        number: int,
    ) -> BlockGraph:
        """Return a block graph over these kernel tensors, maxima loaded from operands `read` and `stored`."""
        launch = self.launch(number, block)
        cluster = launch.cluster
        if prod(cluster) > 1 and self.has_running_maximum(block):
            cluster = (1, 1, 1)
            self.changes.append(f"{self.label}: its clusters are given up, rescaling needs the iterations in order")
        builder = BlockBuilder(operands, grid=launch.grid, loop=launch.loop, threads=launch.threads, cluster=cluster)
        outer, self.names = self.names, FreshNames(block.tiles)
        for key, position in read.items():
            imap, fmap = self.degrees.maps[self.label, key]
            tile = builder.load(position, imap=imap, fmap=fmap, name=self.names("maxima"))
            self.maxima[key] = _Maximum(tile)
        tiles: dict[str, Value] = {}
        for node in block.nodes:
            inputs = [tiles[name] for name in node.operands]
            path = (self.label, *(tensor.name for tensor in node.results[:1]))
            made: list[Value] = []
            match node:
                case InputIterator():
                    loaded = builder.load(node.operand, imap=node.imap, fmap=node.fmap, name=node.result.name)
                    made = restate(builder, [loaded], node.results)
                case OpNode() | Accumulator() | RunningMax() | ThreadNode():
                    made = self.computed(builder, node, inputs, path)
                case OutputSaver():
                    builder.save(inputs[0], omap=node.omap)
                case _:
                    assert_never(node)
            tiles.update(zip((tensor.name for tensor in node.results), made, strict=True))
        for key, omap in stored.items():
            largest = self.maxima[key].tile
            if builder.place(largest) is Place.LOOP:
                largest = builder.accumulate(largest, AccumulatorKind.MAX, name=self.names("maxima"))
            builder.save(largest, omap=omap)
            self.changes.append(f"{key}: each block stores its row maxima beside its results")
        self.names = outer
        return builder.build()
