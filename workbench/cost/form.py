"""A block graph as the cost model reads it: what is loaded, computed, kept and stored, extents as names.

The same form serves one schedule (names stand for numbers) and thousands (names stand for columns), so both are scored by
the same formulas. Invariant: dead operators are left out, as no backend writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, assert_never

import numpy as np

from workbench.core.dtypes import DType
from workbench.core.layouts import TileAccess
from workbench.core.tensors import DeviceTensor, SharedTensor
from workbench.cost.rules import Rule, Shape, rule_of
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.inference import Place, accumulator_dtype
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

Array = np.ndarray[Any, np.dtype[np.float64]]
Dims = tuple[tuple[str, ...], ...]
"""Per dimension the names of the factors whose product it is; none for a dimension of 1."""

Environment = Mapping[str, "Array | float"]


def size_of(dims: Dims, values: Environment) -> Array:
    """Return the number of elements."""
    result = np.asarray(1.0)
    for dim in dims:
        for name in dim:
            result = result * values[name]
    return result


@dataclass(frozen=True, slots=True)
class Load:
    """An input iterator.

    Attributes: tensor: its name; device: dims of the kernel tensor; tile; nbytes of an element;
    looped; cuts: names of the counts that split the tensor over blocks; innermost: names of the contiguous dimension of
    the tile; made: by an earlier kernel of the same program; direct: no product reads it and it is loaded once, so threads
    read it where they need it and it takes no shared memory; unstaged: looped, but no product reads it as it is, so that
    it is staged only in a loop with a product, and if small or there is room; row, piece: names of the dimension with the
    least stride, whatever its extent, of the tensor and of the tile; across: copied element by element, for its layout in
    shared memory runs across device memory.
    """

    tensor: str
    device: Dims
    tile: Dims
    nbytes: int
    looped: bool
    cuts: tuple[str, ...]
    innermost: tuple[str, ...]
    made: bool
    direct: bool
    unstaged: bool
    row: tuple[str, ...]
    piece: tuple[str, ...]
    across: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """An output saver. Attributes: device: dims of the kernel tensor; nbytes of an element; last: result of the program."""

    device: Dims
    nbytes: int
    last: bool


@dataclass(frozen=True, slots=True)
class Task:
    """An operator.

    Attributes: rule; result, operands: dims; looped: done in every iteration; staged: bytes of
    an element of each operand that lies in shared memory, 0 for one in registers; hands_over: what was computed and must
    pass through shared memory (operands of a product, moved elements); dtype: of the result, of a product's operands;
    passes: over the banks in which a product reads each factor, () where there are no conflicts.
    """

    name: str
    rule: Rule
    result: Dims
    operands: tuple[Dims, ...]
    looped: bool
    staged: tuple[int, ...]
    hands_over: tuple[Dims, ...]
    dtype: DType
    passes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """A value held in registers over the loop. Attributes: dims; nbytes; is_product: spread over tensor-core fragments."""

    dims: Dims
    nbytes: int
    is_product: bool


@dataclass(frozen=True, slots=True)
class BlockForm:
    """A block graph's work.

    Attributes: name; loads, stores, tasks; kept: accumulators; counts: names of the counts of
    blocks; looped: some input is loaded in parts.
    """

    name: str
    loads: tuple[Load, ...]
    stores: tuple[Store, ...]
    tasks: tuple[Task, ...]
    kept: tuple[Kept, ...]
    counts: tuple[str, ...]
    looped: bool
    has_ring: bool = True


CutsOf = Callable[[InputIterator], tuple[str, ...]]
Accesses = Mapping[str, TileAccess]
"""Tiles of a block graph whose layouts make warps wait, by name; of others every access is taken to be free of conflicts."""

NO_ACCESSES: Accesses = MappingProxyType({})


def block_form(
    block: BlockGraph,
    *,
    name: str,
    tiles: Mapping[str, Dims],
    operands: Sequence[tuple[DeviceTensor, Dims, bool]],
    results: Sequence[tuple[DeviceTensor, Dims, bool]],
    counts: tuple[str, ...],
    cuts_of: CutsOf,
    accesses: Accesses = NO_ACCESSES,
) -> BlockForm:
    """Return the form of a block graph without thread graphs, composites and sugared accumulators.

    tiles, operands, results: with their dims, and whether a kernel before made the operand, whether the program returns
    the result; accesses: of tiles whose layouts are not the best. Raises: MissingRuleError for an operator without a cost.
    """
    live = _live(block)
    staged_once = _read_by_products(block, live)
    loads: list[Load] = []
    tasks: list[Task] = []
    kept: list[Kept] = []
    staged: dict[str, int] = {}
    fragments: set[str] = set()
    folds: set[str] = set()
    for node in block.nodes:
        if not isinstance(node, OutputSaver) and node.results[0].name not in live:
            continue
        match node:
            case InputIterator():
                tensor, device, made = operands[node.operand]
                dims = tiles[node.result.name]
                inner = dims[_innermost(tensor)] if dims else ()
                looped = node.fmap is not None
                is_operand = node.result.name in staged_once
                loads.append(
                    Load(
                        tensor.name, device, dims, tensor.dtype.nbytes, looped, cuts_of(node), inner, made,
                        direct=not looped and not is_operand, unstaged=looped and not is_operand,
                        row=device[_least_stride(tensor)] if device else (),
                        piece=dims[_least_stride(tensor)] if dims else (),
                        across=accesses.get(node.result.name, TileAccess()).is_across,
                    )
                )  # fmt: skip
                staged[node.result.name] = tensor.dtype.nbytes
            case OpNode():
                tasks.append(_task(node, block, tiles, staged, folds, accesses))
                if node.op == "mean":  # of tiles that end early: a sum, then scaled
                    result, at = tasks[-1].result, tasks[-1].looped
                    tasks.insert(-1, Task("scale", rule_of("scale"), result, (result,), at, (0,), (), tasks[-1].dtype))
                if tasks[-1].rule.shape is Shape.PRODUCT:
                    fragments.add(node.results[0].name)
                if tasks[-1].rule.shape is Shape.FOLD or block.places[node.results[0].name] is Place.AFTER:
                    folds.add(node.results[0].name)
                if tasks[-1].rule.shape in (Shape.FREE, Shape.MOVE) and node.operands:
                    lies = [staged.get(name, 0) for name in node.operands]
                    if all(lies) or tasks[-1].rule.shape is Shape.MOVE:  # other offsets, no copy of what lies there
                        staged.update((tensor.name, max(lies) or 2) for tensor in node.results)
            case Accumulator():
                dims, source, seen = tiles[node.result.name], tiles[node.operand], staged.get(node.operand, 0)
                if (
                    node.kind is AccumulatorKind.MEAN
                ):  # of tiles that end early: as sum, accumulate, scale are elsewhere
                    mean_of = Task("sum", rule_of("sum"), dims, (source,), True, (seen,), (), node.result.dtype)
                    after = Task("scale", rule_of("scale"), dims, (dims,), False, (0,), (), node.result.dtype)
                    tasks += [mean_of, after]
                    source = dims
                folds.add(node.result.name)
                kept.append(Kept(dims, accumulator_dtype(node.result.dtype).nbytes, node.operand in fragments))
                lanes = 2.0 if node.rescale is not None else 0.0 if node.operand in fragments else 1.0
                tasks.append(
                    Task("accumulate", Rule(Shape.FOLD, lanes), dims, (source,), True, (0,), (), node.result.dtype)
                )
            case RunningMax():
                source, best = tiles[node.operand], node.maximum
                tasks.append(
                    Task("running max", Rule(Shape.FOLD, 2.0), tiles[best.name], (source,), True, (0,), (), best.dtype)
                )
            case OutputSaver():
                pass
            case ThreadNode():
                raise AssertionError("thread graphs are inlined before")
            case _:
                assert_never(node)
    stores = tuple(Store(dims, tensor.dtype.nbytes, last) for tensor, dims, last in results)
    looped = any(load.looped for load in loads)
    has_ring = any(task.looped and task.rule.shape is Shape.PRODUCT for task in tasks)
    return BlockForm(name, tuple(loads), stores, tuple(tasks), tuple(kept), counts, looped, has_ring)


def _task(
    node: OpNode,
    block: BlockGraph,
    tiles: Mapping[str, Dims],
    staged: Mapping[str, int],
    folds: set[str],
    accesses: Accesses,
) -> Task:
    rule = rule_of(node.op)
    result = node.results[0]
    assert isinstance(result, SharedTensor)
    looped = block.places[result.name] is Place.LOOP
    hands_over: list[Dims] = []
    dtype = result.dtype
    passes: tuple[int, ...] = ()
    if rule.shape is Shape.PRODUCT:
        # a left operand made element by element is made in the fragments that the product reads
        passed = [node.operands[0] in folds and node.operands[0] not in staged, node.operands[1] not in staged]
        hands_over = [tiles[name] for name, must in zip(node.operands, passed, strict=True) if must]
        dtype = _factor_type(node, block)
        if dtype.nbytes <= 2 and any(name in accesses for name in node.operands):
            passes = tuple(accesses.get(name, TileAccess()).passes for name in node.operands)
    elif rule.shape is Shape.MOVE:
        hands_over = [tiles[name] for name in node.operands if name not in staged]
    return Task(
        node.op,
        rule,
        tiles[result.name],
        tuple(tiles[name] for name in node.operands),
        looped,
        tuple(staged.get(name, 0) for name in node.operands),
        tuple(hands_over),
        dtype,
        passes,
    )


def _factor_type(node: OpNode, block: BlockGraph) -> DType:
    """Return the type in which tensor cores multiply: the factors' own, float32 where they differ or may overflow.

    A left factor worked out of another product of the same pass stays in its fragments, rounded to the right one's type.
    """
    makers: dict[str, BlockNode] = {tensor.name: other for other in block.nodes for tensor in other.results}
    left, right = (block.tiles[name].dtype for name in node.operands)

    def chain(name: str) -> list[OpNode]:
        """Return the elementwise operators behind a factor, and what they start from where that is an operator too."""
        found: list[OpNode] = []
        stack = [name]
        while stack:
            maker = makers[stack.pop()]
            if isinstance(maker, OpNode):
                found.append(maker)
                if rule_of(maker.op).shape in (Shape.ELEMENTWISE, Shape.FREE):
                    stack += maker.operands
        return found

    behind = [chain(name) for name in node.operands]
    place = block.places[node.results[0].name]
    is_handed = any(
        rule_of(other.op).shape is Shape.PRODUCT and block.places[other.results[0].name] is place
        and block.tiles[other.results[0].name].shape == block.tiles[node.operands[0]].shape
        for other in behind[0]
    )  # fmt: skip
    if is_handed and right.nbytes <= 2:
        return right
    if left is not right:
        return max(left, right, key=lambda kind: kind.nbytes)
    may_overflow = left is DType.FLOAT16 and any(other.op in UNBOUNDED for own in behind for other in own)
    return DType.FLOAT32 if may_overflow else left


UNBOUNDED = ("exp",)
"""Elementwise operators whose results may leave the range of float16 though their operands are tame."""


def _innermost(tensor: DeviceTensor) -> int:
    """Return the dimension whose elements lie beside each other."""
    long = [axis for axis, extent in enumerate(tensor.shape) if extent > 1] or [len(tensor.shape) - 1]
    return min(long, key=lambda axis: (tensor.strides[axis], -axis))


def _least_stride(tensor: DeviceTensor) -> int:
    """Return the dimension with the least stride, the last of those."""
    return min(range(len(tensor.shape)), key=lambda axis: (tensor.strides[axis], -axis))


def _read_by_products(block: BlockGraph, live: set[str]) -> set[str]:
    """Return the tiles that a product reads, also through views and moves of them."""
    found: set[str] = set()
    for node in reversed(block.nodes):
        if isinstance(node, OpNode) and node.results[0].name in live:
            shape = rule_of(node.op).shape
            through = shape in (Shape.FREE, Shape.MOVE) and any(tensor.name in found for tensor in node.results)
            if shape is Shape.PRODUCT or through:
                found.update(node.operands)
    return found


def _live(block: BlockGraph) -> set[str]:
    """Return the tiles on which a stored one depends."""
    makers: dict[str, BlockNode] = {tensor.name: node for node in block.nodes for tensor in node.results}
    live: set[str] = set()
    stack = [saver.operand for saver in block.savers]
    while stack:
        name = stack.pop()
        if name not in live:
            node = makers[name]
            live.update(tensor.name for tensor in node.results)
            stack += node.operands
    return live
