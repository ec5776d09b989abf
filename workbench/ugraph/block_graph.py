"""Block graphs: what one thread block computes, over a grid of blocks and a loop (paper, section 2.2).

Invariant: a block graph that exists is legal; `__post_init__` infers every tile again and compares.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, SupportsIndex, assert_never

from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor, SharedTensor
from workbench.errors import (
    DuplicateNameError,
    FmapError,
    LaunchDimsError,
    OperatorLevelError,
    PlaceError,
    ResultMismatchError,
    SaverError,
    UnknownTensorError,
    WorkbenchError,
)
from workbench.ugraph import inference
from workbench.ugraph.inference import Place
from workbench.ugraph.nodes import (
    Accumulator,
    AccumulatorKind,
    BlockNode,
    InputIterator,
    OpNode,
    OutputSaver,
    RunningMax,
    ThreadNode,
)

MAX_THREADS = 1024
MAX_CLUSTER = 16


def launch_dims(dims: Sequence[int], *, what: str) -> Shape:
    """Return three launch dimensions, missing ones 1. Raises: LaunchDimsError unless they are 1 to 3 positive integers."""
    if type(dims) is tuple and len(dims) == 3 and all(type(dim) is int and dim > 0 for dim in dims):
        return dims  # checked before; a search builds many block graphs
    if (
        isinstance(dims, str)
        or not hasattr(dims, "__iter__")
        or not all(isinstance(dim, int | SupportsIndex) for dim in dims)
    ):
        raise LaunchDimsError(f"{what} {dims!r} must be one to three positive integers", "block graph", "give a tuple")
    values = tuple(operator.index(dim) for dim in dims)
    if not 1 <= len(values) <= 3 or any(dim < 1 for dim in values):
        raise LaunchDimsError(
            f"{what} {tuple(dims)} must be one to three positive integers",
            "block graph",
            "count the axes x, y, z, each from 1",
        )
    return values + (1,) * (3 - len(values))


@dataclass(frozen=True)
class BlockGraph:
    """The computation of one thread block.

    Attributes:
        operands: the kernel tensors that the graph-defined operator reads, in order.
        nodes: input iterators, operators, accumulators, thread nodes and output savers, each after what it reads.
        grid_dims: blocks along x, y, z.
        forloop_range: iterations of the loop; 1 means no loop.
        block_dims: threads along x, y, z.
        cluster_dims: thread blocks that share the iterations of one cell of the grid and combine their accumulators
            through distributed shared memory (split of the looped axis); the meaning does not change.

    Raises: LegalityError of the rule that is broken, ShapeError from an operator.
    """

    operands: tuple[DeviceTensor, ...]
    nodes: tuple[BlockNode, ...]
    grid_dims: Shape = (1, 1, 1)
    forloop_range: int = 1
    block_dims: Shape = (128, 1, 1)
    cluster_dims: Shape = (1, 1, 1)

    @classmethod
    def inferred(cls, places: dict[str, Place], *fields: Any) -> BlockGraph:
        """Return the block graph of these fields, whose tiles and places a builder inferred node by node.

        They are not inferred again: a search builds thousands of block graphs.
        """
        made = object.__new__(cls)
        made.__dict__["places"] = places
        cls.__init__(made, *fields)
        return made

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid_dims", launch_dims(self.grid_dims, what="grid_dims"))
        object.__setattr__(self, "block_dims", launch_dims(self.block_dims, what="block_dims"))
        object.__setattr__(self, "cluster_dims", launch_dims(self.cluster_dims, what="cluster_dims"))
        if not isinstance(self.forloop_range, int) or self.forloop_range < 1:
            raise LaunchDimsError(
                f"forloop_range {self.forloop_range} must be at least 1", "block graph", "1 means no loop"
            )
        if prod(self.block_dims) > MAX_THREADS:
            raise LaunchDimsError(
                f"{prod(self.block_dims)} threads in a block", "block graph", f"use at most {MAX_THREADS}"
            )
        if prod(self.cluster_dims) > MAX_CLUSTER:
            raise LaunchDimsError(
                f"{prod(self.cluster_dims)} blocks in a cluster", "block graph", f"use at most {MAX_CLUSTER}"
            )
        if prod(self.cluster_dims) > self.forloop_range:
            raise LaunchDimsError(
                f"{prod(self.cluster_dims)} blocks of a cluster share {self.forloop_range} iterations",
                "block graph",
                "use a larger forloop_range or a smaller cluster",
            )
        _ = self.places
        if not self.savers:
            raise SaverError("the block graph stores nothing", "block graph", "add an output saver")

    @cached_property
    def places(self) -> dict[str, Place]:
        """Per tile, when it exists. Computing it checks every rule of definition 2.1."""
        places: dict[str, Place] = {}
        tiles: dict[str, SharedTensor] = {}
        for node in self.nodes:
            where = node_name(node)
            for operand in node.operands:
                if operand not in tiles:
                    raise UnknownTensorError(
                        f"operand {operand!r} is not defined before",
                        where,
                        "define it first; a cycle cannot be ordered",
                    )
            try:
                expected, place = self._infer(node, tiles, places, where)
            except WorkbenchError as error:
                error.add_note(
                    f"in node {where} of a block graph with grid {self.grid_dims}, loop {self.forloop_range}"
                )
                raise
            if len(node.results) != len(expected):
                raise ResultMismatchError(
                    f"{len(node.results)} recorded results, the node yields {len(expected)}", where, "record each, once"
                )
            for tensor, (shape, ragged) in zip(node.results, expected, strict=True):
                if tensor.name in tiles:
                    raise DuplicateNameError(f"{tensor.name!r} names two tiles", where, "rename one")
                if not isinstance(tensor, SharedTensor):
                    raise OperatorLevelError("a tile of a block graph is a SharedTensor", where, "make it one")
                if tensor.shape != shape or tensor.ragged != ragged:
                    raise ResultMismatchError(
                        f"recorded tile {tensor.shape} (ragged {tensor.ragged}), the node yields {shape} (ragged {ragged})",
                        where,
                        "build block graphs with BlockBuilder, which infers tiles",
                    )
                tiles[tensor.name], places[tensor.name] = tensor, place
        return places

    def _infer(
        self, node: BlockNode, tiles: dict[str, SharedTensor], places: dict[str, Place], where: str
    ) -> tuple[list[tuple[Shape, tuple[object, ...]]], Place]:
        match node:
            case InputIterator():
                if not 0 <= node.operand < len(self.operands):
                    raise UnknownTensorError(
                        f"there is no operand {node.operand}", where, f"{len(self.operands)} operands"
                    )
                if node.fmap is not None and node.fmap < 0:
                    raise FmapError(f"the loop splits dimension {node.fmap}", where, "count from 0, or None")
                tile = inference.tile_of(
                    self.operands[node.operand], node.imap, node.fmap, self.grid_dims, self.forloop_range, node=where
                )
                return [tile], Place.INVARIANT if node.fmap is None else Place.LOOP
            case OpNode():
                if "block" not in node.spec.levels:
                    raise OperatorLevelError(
                        f"{node.op} cannot stand in a block graph",
                        where,
                        f"its levels: {', '.join(sorted(node.spec.levels))}",
                    )
                place = inference.merge_places([places[name] for name in node.operands], node=where)
                operands = [tiles[name] for name in node.operands]
                return list(inference.apply_operator(node.spec, node.attribute_map, operands, node=where)), place
            case Accumulator():
                if node.rescale is not None and places[node.rescale] is Place.AFTER:
                    raise PlaceError("the rescaling factor lives after the loop", where, "use a value of the loop body")
                rescale = tiles[node.rescale] if node.rescale is not None else None
                result = inference.accumulate(
                    node.kind,
                    tiles[node.operand],
                    place=places[node.operand],
                    rescale=rescale,
                    columns=node.columns,
                    node=where,
                    eps=node.eps,
                )
                return [result], Place.AFTER
            case RunningMax():
                if places[node.operand] is Place.AFTER:
                    raise PlaceError(
                        "a running maximum belongs into the loop", where, "use the operator max after the loop"
                    )
                shape, ragged = inference.accumulate(
                    AccumulatorKind.MAX_DIM,
                    tiles[node.operand],
                    place=Place.LOOP,
                    rescale=None,
                    columns=None,
                    node=where,
                )
                return [(shape, ragged), (shape, ragged)], Place.LOOP
            case ThreadNode():
                place = inference.merge_places([places[name] for name in node.operands], node=where)
                return self._infer_thread(node, tiles, where), place
            case OutputSaver():
                if places[node.operand] is Place.LOOP:
                    raise SaverError("a value of the loop body is stored", where, "accumulate it first")
                inference.saved_shape(tiles[node.operand], node.omap, self.grid_dims, node=where)
                return [], Place.AFTER
            case _:
                assert_never(node)

    def _infer_thread(
        self, node: ThreadNode, tiles: dict[str, SharedTensor], where: str
    ) -> list[tuple[Shape, tuple[object, ...]]]:
        if len(node.operands) != len(node.graph.inputs) or len(node.results) != 1:
            raise ResultMismatchError(
                f"{len(node.operands)} operands and {len(node.results)} results, its thread graph takes "
                f"{len(node.graph.inputs)} and makes 1",
                where,
                "give one operand per input",
            )
        values = {register.name: tiles[name] for register, name in zip(node.graph.inputs, node.operands, strict=True)}
        for register in node.graph.inputs:
            if register.shape != values[register.name].shape:
                raise ResultMismatchError(
                    f"register input {register.name} has shape {register.shape}, the tile {values[register.name].shape}",
                    where,
                    "build the thread graph over registers shaped like the tiles",
                )
        for inner in node.graph.nodes:
            operands = [values[name] for name in inner.operands]
            results = inference.apply_operator(inner.spec, inner.attribute_map, operands, node=where)
            for tensor, (shape, ragged) in zip(inner.results, results, strict=True):
                values[tensor.name] = SharedTensor(tensor.name, shape, tensor.dtype, ragged)
        root = values[node.graph.output]
        return [(root.shape, root.ragged)]

    # ------------------------------------------------------------------------------------------------- looking around
    @cached_property
    def tiles(self) -> dict[str, SharedTensor]:
        """Every tile by name, in order of definition."""
        return {
            tensor.name: tensor for node in self.nodes for tensor in node.results if isinstance(tensor, SharedTensor)
        }

    @property
    def iterators(self) -> tuple[InputIterator, ...]:
        """The input iterators in order."""
        return tuple(node for node in self.nodes if isinstance(node, InputIterator))

    @property
    def savers(self) -> tuple[OutputSaver, ...]:
        """The output savers; the n-th one makes the n-th result of the graph-defined operator."""
        return tuple(node for node in self.nodes if isinstance(node, OutputSaver))

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The accumulators in order."""
        return tuple(node for node in self.nodes if isinstance(node, Accumulator))

    @cached_property
    def result_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the device tensors that the savers write."""
        return tuple(
            inference.saved_shape(self.tiles[saver.operand], saver.omap, self.grid_dims, node=saver.operand)
            for saver in self.savers
        )

    def producer(self, name: str) -> BlockNode:
        """Return the node that makes this tile. Raises: UnknownTensorError."""
        for node in self.nodes:
            if any(tensor.name == name for tensor in node.results):
                return node
        raise UnknownTensorError(f"no tile {name!r} in the block graph", name, f"tiles: {', '.join(self.tiles)}")

    def consumers(self, name: str) -> Iterator[BlockNode]:
        """Yield the nodes that read this tile, in order."""
        return (node for node in self.nodes if name in node.operands)

    @property
    def num_blocks(self) -> int:
        """Cells of the grid (clusters count as one)."""
        return prod(self.grid_dims)


def node_name(node: BlockNode) -> str:
    """Return how messages call a node: what it is and the tile it makes or stores."""
    match node:
        case InputIterator():
            return f"input iterator {node.result.name}"
        case OpNode():
            return f"{node.op} {', '.join(tensor.name for tensor in node.results)}"
        case Accumulator():
            return f"accumulator {node.result.name}"
        case RunningMax():
            return f"running max {node.maximum.name}"
        case ThreadNode():
            return f"thread graph {', '.join(tensor.name for tensor in node.results)}"
        case OutputSaver():
            return f"output saver of {node.operand}"
        case _:
            assert_never(node)
