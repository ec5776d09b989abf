"""Building µGraphs by hand: one builder per level. Invariant: a builder infers every tensor; the user never states a tile.

Long because the three builders mirror each other method by method.

kernel = KernelBuilder("rms")
X, W = kernel.input("X", (16, 4096)), kernel.input("W", (4096, 4096))
block = kernel.block(X, W, grid=(64,), loop=64)
x, w = block.load(X, fmap=1), block.load(W, imap=(1,), fmap=0)
block.save(block.accumulate(x @ w) / block.accumulate(x, "rms"), omap=(1,))
kernel.output(*block.finish())
graph = kernel.build()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from operator import index
from typing import SupportsIndex, assert_never

from workbench.core.dtypes import DType, as_dtype
from workbench.core.layouts import Strides
from workbench.core.tensors import DeviceTensor, RegisterTensor, SharedTensor
from workbench.errors import (
    AttributeValueError,
    FmapError,
    LaunchDimsError,
    LegalityError,
    OmapError,
    ResultMismatchError,
    SaverError,
    ThreadGraphError,
    UnknownTensorError,
    UsageError,
)
from workbench.ops.attributes import complete_attributes
from workbench.ops.registry import operator
from workbench.ops.spec import OpKind
from workbench.ugraph import inference
from workbench.ugraph.block_graph import BlockGraph, launch_dims
from workbench.ugraph.inference import Place
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import (
    Accumulator,
    AccumulatorKind,
    BlockNode,
    GraphDefinedNode,
    InputIterator,
    KernelNode,
    OpNode,
    OutputSaver,
    RunningMax,
    Tensor,
    ThreadNode,
    dim_map,
)
from workbench.ugraph.thread_graph import ThreadGraph
from workbench.ugraph.value import Value, as_number


class _Names:
    """Gives out names that no tensor of the graph bears yet."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self._count = 0

    def claim(self, name: str | None) -> str:
        if name is None:
            name = f"t{self._count}"
            while name in self.taken:
                self._count += 1
                name = f"t{self._count}"
        if name in self.taken:
            from workbench.errors import DuplicateNameError

            raise DuplicateNameError(f"{name!r} names two tensors", name, "rename one")
        self.taken.add(name)
        return name


def _check_restated(old: Sequence[Tensor], new: Sequence[Tensor], names: _Names) -> None:
    """Free the old names and claim the new ones, once shapes and raggedness agree."""
    if len(old) != len(new):
        raise ResultMismatchError(
            f"{len(new)} results are stated, the node yields {len(old)}", old[0].name, "state each result"
        )
    for made, stated in zip(old, new, strict=True):
        if made.shape != stated.shape:
            raise ResultMismatchError(
                f"stated shape {stated.shape}, the node yields {made.shape}", stated.name, "state that shape, or none"
            )
        if getattr(made, "ragged", ()) != getattr(stated, "ragged", ()):
            raise ResultMismatchError(
                "stated as cut otherwise than the node yields it", stated.name, "state its cuts, or no type"
            )
    names.taken -= {made.name for made in old}
    for stated in new:
        names.claim(stated.name)


def _result_names(name: str | None, count: int) -> list[str | None]:
    """Return the names of an operator's results: the one given, numbered if there are several."""
    return [name] if count == 1 else [f"{name}{number}" if name else None for number in range(count)]


def _rename(names: set[str], old: str, new: str) -> None:
    if old in names:
        names.remove(old)
        names.add(new)


def _is_checked(node: BlockNode) -> bool:
    """Return whether a node broke no rule of a block graph when it was added; others are checked once more at the end."""
    match node:
        case OpNode():
            return "block" in node.spec.levels
        case Accumulator():
            return node.rescale is None
        case InputIterator() | OutputSaver():
            return True
    return False


class KernelBuilder:
    """Builds a kernel graph, node by node."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.inputs: list[DeviceTensor] = []
        self.nodes: list[KernelNode] = []
        self.outputs: list[str] = []
        self._names = _Names()
        self._tensors: dict[str, DeviceTensor] = {}
        self._constants: dict[Fraction, Value] = {}
        self._literals: set[str] = set()

    def input(
        self, name: str, shape: Sequence[int], dtype: DType | str = DType.FLOAT16, strides: Strides | None = None
    ) -> Value:
        """Add a program input of this shape, type and strides (in elements; row-major by default) and return it.

        Raises: ShapeError, DTypeError, DuplicateNameError.
        """
        tensor = DeviceTensor(self._names.claim(name), tuple(shape), as_dtype(dtype), strides or ())
        self.inputs.append(tensor)
        return self._add(tensor)

    def apply_all(
        self, op: str, *operands: Value | int | float | Fraction, name: str | None = None, **attributes: object
    ) -> tuple[Value, ...]:
        """Add a predefined operator and return all its results. Raises: ShapeError, AttributeValueError, UnknownNameError."""
        values = [self.value(operand) for operand in operands]
        tensors = [self._tensors[value.name] for value in values]
        spec = operator(op)
        shapes = tuple(tensor.shape for tensor in tensors)
        checked = complete_attributes(spec, attributes, shapes)
        results = spec.infer_shapes(shapes, checked)
        typed = [tensor for tensor in tensors if tensor.name not in self._literals] or tensors
        dtype = inference.promote([tensor.dtype for tensor in typed], where=op) if typed else DType.FLOAT32
        names = _result_names(name, len(results))
        made = tuple(
            DeviceTensor(self._names.claim(given), shape, dtype) for given, shape in zip(names, results, strict=True)
        )
        self.nodes.append(OpNode(op, tuple(value.name for value in values), made, tuple(sorted(checked.items()))))
        if spec.kind is OpKind.CONSTANT:
            self._literals.update(tensor.name for tensor in made)
        return tuple(self._add(tensor) for tensor in made)

    def apply(
        self, op: str, *operands: Value | int | float | Fraction, name: str | None = None, **attributes: object
    ) -> Value:
        """Add a predefined operator with one result and return it. Raises: as `apply_all`."""
        (result,) = self.apply_all(op, *operands, name=name, **attributes)
        return result

    def block(
        self,
        *operands: Value,
        grid: Sequence[int] = (1,),
        loop: int = 1,
        threads: Sequence[int] = (128,),
        cluster: Sequence[int] = (1,),
    ) -> BlockBuilder:
        """Return a builder of a graph-defined operator over these tensors; `finish()` adds it to this graph."""
        tensors = tuple(self._tensors[self.value(operand).name] for operand in operands)
        return BlockBuilder(tensors, grid=grid, loop=loop, threads=threads, cluster=cluster, kernel=self)

    def graph_defined(
        self,
        block: BlockGraph,
        operands: Sequence[Value],
        *,
        names: Sequence[str | None] | None = None,
        dtypes: Sequence[DType | str] | None = None,
        name: str = "",
    ) -> tuple[Value, ...]:
        """Add a graph-defined operator and return its results (types: widest of the operands unless given)."""
        tensors = [self._tensors[value.name] for value in operands]
        count = len(block.savers)
        kinds = (
            [as_dtype(dtype) for dtype in dtypes]
            if dtypes
            else [inference.promote([tensor.dtype for tensor in tensors], where="graph-defined operator")] * count
        )
        given = list(names) if names else [None] * count
        if len(given) != count or len(kinds) != count:
            raise UsageError(f"the block graph stores {count} results; give as many names and dtypes, or none")
        made = tuple(
            DeviceTensor(self._names.claim(given_name), shape, dtype)
            for given_name, shape, dtype in zip(given, block.result_shapes, kinds, strict=True)
        )
        self.nodes.append(GraphDefinedNode(block, tuple(value.name for value in operands), made, name))
        return tuple(self._add(tensor) for tensor in made)

    def restate(self, *tensors: DeviceTensor) -> tuple[Value, ...]:
        """Give the results of the node added last other names, types or strides, and return them.

        Raises: ResultMismatchError when a shape or the number of results differs, DuplicateNameError.
        """
        node = self.nodes[-1]
        _check_restated(node.results, tensors, self._names)
        for old, new in zip(node.results, tensors, strict=True):
            del self._tensors[old.name]
            _rename(self._literals, old.name, new.name)
        self.nodes[-1] = replace(node, results=tensors)
        return tuple(self._add(tensor) for tensor in tensors)

    def output(self, *values: Value) -> None:
        """Mark outputs, in order. Raises: UnknownTensorError for a value of another graph."""
        self.outputs += [self.value(value).name for value in values]

    def build(self) -> KernelGraph:
        """Return the finished, checked kernel graph. Raises: LegalityError."""
        return KernelGraph(tuple(self.inputs), tuple(self.nodes), tuple(self.outputs), self.name)

    # ------------------------------------------------------------------------------------------------------ internals
    def value(self, operand: Value | int | float | Fraction) -> Value:
        """Return a value of this graph; a number becomes a constant. Raises: UnknownTensorError, UsageError."""
        if isinstance(operand, Value):
            if operand.builder is not self:
                raise UnknownTensorError(f"{operand.name!r} belongs to another graph", operand.name, "load it first")
            return operand
        number = as_number(operand, "neither a tensor of the graph nor a number; pass tensors by input()")
        if number not in self._constants:
            self._constants[number] = self.apply("constant", value=number)
        return self._constants[number]

    def _add(self, tensor: DeviceTensor) -> Value:
        self._tensors[tensor.name] = tensor
        return Value(self, tensor.name, tensor.shape)


class BlockBuilder:
    """Builds a block graph, node by node; tiles and places are inferred as they are added."""

    def __init__(
        self,
        operands: Sequence[DeviceTensor],
        *,
        grid: Sequence[int] = (1,),
        loop: int = 1,
        threads: Sequence[int] = (128,),
        cluster: Sequence[int] = (1,),
        kernel: KernelBuilder | None = None,
    ) -> None:
        if not isinstance(loop, int | SupportsIndex) or index(loop) < 1:
            raise LaunchDimsError(f"forloop_range {loop} must be at least 1", "block graph", "1 means no loop")
        self.operands = tuple(operands)
        self.grid_dims = launch_dims(grid, what="grid_dims")
        self.loop, self.threads, self.cluster, self.kernel = index(loop), threads, cluster, kernel
        self.nodes: list[BlockNode] = []
        self._names = _Names()
        self._tiles: dict[str, SharedTensor] = {}
        self._places: dict[str, Place] = {}
        self._constants: dict[Fraction, Value] = {}
        self._literals: set[str] = set()

    def load(
        self,
        operand: Value | int | str,
        *,
        imap: Sequence[int | None] = (),
        fmap: int | None = None,
        name: str | None = None,
    ) -> Value:
        """Add an input iterator over an operand (value, position or name) and return its tile.

        imap: per grid axis the dimension it splits, None for replica; fmap: the dimension the loop splits.
        Raises: ImapError, FmapError, UnknownTensorError.
        """
        position = self._position(operand)
        tensor = self.operands[position]
        maps = dim_map(imap)
        if fmap is not None and not isinstance(fmap, int | SupportsIndex):
            raise FmapError(
                f"{fmap!r} is no dimension of {tensor.name}", f"load of {tensor.name}", "use 0, 1, ... or None"
            )
        loop_dim = None if fmap is None or index(fmap) < 0 else index(fmap)
        label = self._names.claim(name or self._fresh(tensor.name.lower()))
        shape, ragged = inference.tile_of(
            tensor, maps, loop_dim, self.grid_dims, self.loop, node=f"input iterator {label}"
        )
        node = InputIterator(position, maps, loop_dim, SharedTensor(label, shape, tensor.dtype, ragged))
        return self._add(node, Place.INVARIANT if loop_dim is None else Place.LOOP)[0]

    def apply_all(
        self, op: str, *operands: Value | int | float | Fraction, name: str | None = None, **attributes: object
    ) -> tuple[Value, ...]:
        """Add an operator and return all its tiles. Raises: ShapeError, PlaceError, RaggedTileError, AttributeValueError."""
        values = [self.value(operand) for operand in operands]
        tiles = [self._tiles[value.name] for value in values]
        spec = operator(op)
        checked = complete_attributes(spec, attributes, tuple([tile.shape for tile in tiles]))
        results = inference.apply_operator(spec, checked, tiles, node=op)
        place = inference.merge_places([self._places[value.name] for value in values], node=op)
        typed = [tile for tile in tiles if tile.name not in self._literals] or tiles if self._literals else tiles
        dtype = inference.promote([tile.dtype for tile in typed], where=op) if typed else DType.FLOAT32
        names = _result_names(name, len(results))
        made: tuple[Tensor, ...] = tuple(
            [
                SharedTensor(self._names.claim(given), shape, dtype, ragged)
                for given, (shape, ragged) in zip(names, results, strict=True)
            ]
        )
        if spec.kind is OpKind.CONSTANT:
            self._literals.update(tile.name for tile in made)
        node = OpNode(op, tuple([value.name for value in values]), made, tuple(sorted(checked.items())))
        return self._add(node, place)

    def apply(
        self, op: str, *operands: Value | int | float | Fraction, name: str | None = None, **attributes: object
    ) -> Value:
        """Add an operator with one result and return its tile. Raises: as `apply_all`."""
        (result,) = self.apply_all(op, *operands, name=name, **attributes)
        return result

    def accumulate(
        self,
        operand: Value,
        kind: AccumulatorKind | str = AccumulatorKind.SUM,
        *,
        rescale: Value | None = None,
        columns: int | None = None,
        eps: float | Fraction = 0,
        name: str | None = None,
    ) -> Value:
        """Add an accumulator of a loop-body value and return the tile it leaves after the loop.

        kind: see `AccumulatorKind`; columns: D of sum_to_columns; eps: of rms. Raises: AccumulatorError, RaggedTileError.
        """
        try:
            kind = AccumulatorKind(kind)
        except ValueError as error:
            known = ", ".join(member.value for member in AccumulatorKind)
            raise AttributeValueError(f"unknown accumulator {kind!r}; use one of {known}") from error
        tile = self._tiles[self.value(operand).name]
        factor = None if rescale is None else self._tiles[self.value(rescale).name]
        label = self._names.claim(name)
        number = as_number(eps)
        shape, ragged = inference.accumulate(
            kind,
            tile,
            place=self._places[tile.name],
            rescale=factor,
            columns=columns,
            node=f"accumulator {label}",
            eps=number,
        )
        result = SharedTensor(label, shape, inference.accumulator_dtype(tile.dtype), ragged)
        node = Accumulator(kind, tile.name, result, factor.name if factor else None, columns, number)
        return self._add(node, Place.AFTER)[0]

    def running_max(self, operand: Value, *, name: str | None = None) -> tuple[Value, Value]:
        """Add a running maximum over the last axis; returns (maximum so far, shift of the maximum), see `RunningMax`."""
        tile = self._tiles[self.value(operand).name]
        shape, ragged = inference.accumulate(
            AccumulatorKind.MAX_DIM, tile, place=self._places[tile.name], rescale=None, columns=None, node="running max"
        )
        label = self._names.claim(name)
        node = RunningMax(
            tile.name,
            SharedTensor(label, shape, tile.dtype, ragged),
            SharedTensor(self._names.claim(f"{label}_shift"), shape, tile.dtype, ragged),
        )
        maximum, shift = self._add(node, Place.LOOP)
        return maximum, shift

    def thread(self, graph: ThreadGraph, *operands: Value, name: str | None = None) -> Value:
        """Add a graph-defined block operator and return its tile."""
        values = [self.value(operand) for operand in operands]
        if len(values) != len(graph.inputs):
            raise ThreadGraphError(
                f"it takes {len(graph.inputs)} operands, got {len(values)}", graph.output, "give one operand per input"
            )
        tiles = {register.name: self._tiles[value.name] for register, value in zip(graph.inputs, values, strict=True)}
        for inner in graph.nodes:
            operands_ = [tiles[operand] for operand in inner.operands]
            results = inference.apply_operator(inner.spec, inner.attribute_map, operands_, node=inner.op)
            for tensor, (shape, ragged) in zip(inner.results, results, strict=True):
                tiles[tensor.name] = SharedTensor(tensor.name, shape, tensor.dtype, ragged)
        root = tiles[graph.output]
        place = inference.merge_places([self._places[value.name] for value in values], node="thread graph")
        dtype = inference.promote([self._tiles[value.name].dtype for value in values], where="thread graph")
        result = SharedTensor(self._names.claim(name), root.shape, dtype, root.ragged)
        return self._add(ThreadNode(graph, tuple(value.name for value in values), (result,)), place)[0]

    def save(self, value: Value, *, omap: Sequence[int | None] = ()) -> None:
        """Add an output saver of a tile of after the loop. Raises: OmapError, SaverError, RaggedTileError."""
        tile = self._tiles[self.value(value).name]
        maps = dim_map(omap, OmapError)
        if self._places[tile.name] is Place.LOOP:
            raise SaverError(
                "a value of the loop body is stored", f"output saver of {tile.name}", "accumulate it first"
            )
        inference.saved_shape(tile, maps, self.grid_dims, node=f"output saver of {tile.name}")
        self.nodes.append(OutputSaver(tile.name, maps))

    def restate(self, *tiles: SharedTensor) -> tuple[Value, ...]:
        """Give the tiles of the node added last other names or types, and return them.

        Raises: ResultMismatchError when a shape, raggedness or the number of tiles differs, DuplicateNameError.
        """
        node = self.nodes[-1]
        if isinstance(node, OutputSaver):
            raise UsageError("an output saver makes no tile that could be restated")
        _check_restated(node.results, tiles, self._names)
        self.nodes.pop()
        place = self._places[node.results[0].name]
        for old, new in zip(node.results, tiles, strict=True):
            del self._tiles[old.name], self._places[old.name]
            _rename(self._literals, old.name, new.name)
        match node:
            case OpNode() | ThreadNode():
                return self._add(replace(node, results=tiles), place)
            case InputIterator() | Accumulator():
                return self._add(replace(node, result=tiles[0]), place)
            case RunningMax():
                return self._add(replace(node, maximum=tiles[0], shift=tiles[1]), place)
            case _:
                assert_never(node)

    def build(self) -> BlockGraph:
        """Return the finished, checked block graph. Raises: LegalityError."""
        threads = launch_dims(self.threads, what="block_dims")
        cluster = launch_dims(self.cluster, what="cluster_dims")
        nodes = tuple(self.nodes)
        if all(map(_is_checked, nodes)):
            return BlockGraph.inferred(
                dict(self._places), self.operands, nodes, self.grid_dims, self.loop, threads, cluster
            )
        return BlockGraph(self.operands, nodes, self.grid_dims, self.loop, threads, cluster)

    def finish(
        self,
        *,
        names: Sequence[str | None] | None = None,
        dtypes: Sequence[DType | str] | None = None,
        name: str = "",
    ) -> tuple[Value, ...]:
        """Add the block graph to the kernel builder it came from and return its results. Raises: UsageError, LegalityError."""
        if self.kernel is None:
            raise UsageError("this block builder belongs to no kernel graph; use build()")
        operands = [Value(self.kernel, tensor.name, tensor.shape) for tensor in self.operands]
        return self.kernel.graph_defined(self.build(), operands, names=names, dtypes=dtypes, name=name)

    # ------------------------------------------------------------------------------------------------------ internals
    def value(self, operand: Value | int | float | Fraction) -> Value:
        """Return a tile of this block; a number becomes a constant. Raises: UnknownTensorError, UsageError."""
        if isinstance(operand, Value):
            if operand.builder is not self:
                raise UnknownTensorError(f"{operand.name!r} is not a tile of this block", operand.name, "load it first")
            return operand
        number = as_number(operand, "neither a tile of the block nor a number; load tensors first")
        if number not in self._constants:
            self._constants[number] = self.apply("constant", value=number)
        return self._constants[number]

    def tile(self, value: Value) -> SharedTensor:
        """Return the tile that a value of this block stands for. Raises: UnknownTensorError."""
        return self._tiles[self.value(value).name]

    def place(self, value: Value) -> Place:
        """Return when a value of this block exists. Raises: UnknownTensorError."""
        return self._places[self.value(value).name]

    def _position(self, operand: Value | int | str) -> int:
        if isinstance(operand, int):
            if not 0 <= operand < len(self.operands):
                raise UnknownTensorError(
                    f"there is no operand {operand}",
                    f"operand {operand}",
                    f"{len(self.operands)} operands, counted from 0",
                )
            return operand
        name = operand.name if isinstance(operand, Value) else operand
        for position, tensor in enumerate(self.operands):
            if tensor.name == name:
                return position
        raise UnknownTensorError(f"{name!r} is not an operand", name, f"operands: {[t.name for t in self.operands]}")

    def _fresh(self, name: str) -> str:
        candidate, count = name, 2
        while candidate in self._names.taken:
            candidate, count = f"{name}_{count}", count + 1
        return candidate

    def _add(self, node: BlockNode, place: Place) -> tuple[Value, ...]:
        self.nodes.append(node)
        for tensor in node.results:
            if not isinstance(tensor, SharedTensor):
                raise LegalityError("a tile of a block graph is a SharedTensor", tensor.name, "make it one")
            self._tiles[tensor.name], self._places[tensor.name] = tensor, place
        return tuple([Value(self, tensor.name, tensor.shape) for tensor in node.results])


class ThreadBuilder:
    """Builds a thread graph, node by node, over register values shaped like the tiles they come from."""

    def __init__(self) -> None:
        self.inputs: list[RegisterTensor] = []
        self.nodes: list[OpNode] = []
        self._names = _Names()
        self._registers: dict[str, RegisterTensor] = {}

    def input(self, name: str, shape: Sequence[int], dtype: DType | str = DType.FLOAT32) -> Value:
        """Add an operand of the thread node and return it."""
        tensor = RegisterTensor(self._names.claim(name), tuple(shape), as_dtype(dtype))
        self.inputs.append(tensor)
        return self._add(tensor)

    def apply_all(
        self, op: str, *operands: Value | int | float | Fraction, name: str | None = None, **attributes: object
    ) -> tuple[Value, ...]:
        """Add an operator and return all its results. Raises: ShapeError, AttributeValueError."""
        values = [self.value(operand) for operand in operands]
        spec = operator(op)
        shapes = tuple(value.shape for value in values)
        checked = complete_attributes(spec, attributes, shapes)
        made: tuple[RegisterTensor, ...] = tuple(
            RegisterTensor(self._names.claim(name), shape) for shape in spec.infer_shapes(shapes, checked)
        )
        self.nodes.append(OpNode(op, tuple(value.name for value in values), made, tuple(sorted(checked.items()))))
        return tuple(self._add(tensor) for tensor in made)

    def apply(
        self, op: str, *operands: Value | int | float | Fraction, name: str | None = None, **attributes: object
    ) -> Value:
        """Add an operator with one result and return it. Raises: as `apply_all`."""
        (result,) = self.apply_all(op, *operands, name=name, **attributes)
        return result

    def value(self, operand: Value | int | float | Fraction) -> Value:
        """Return a register value; a number becomes a constant of its own (a tree shares nothing)."""
        if isinstance(operand, Value):
            if operand.builder is not self:
                raise UnknownTensorError(
                    f"{operand.name!r} belongs to another graph", operand.name, "add an input for it"
                )
            return operand
        return self.apply("constant", value=as_number(operand))

    def restate(self, *registers: RegisterTensor) -> tuple[Value, ...]:
        """Give the results of the node added last other names or types, and return them.

        Raises: ResultMismatchError when a shape or the number of results differs, DuplicateNameError.
        """
        node = self.nodes[-1]
        _check_restated(node.results, registers, self._names)
        for tensor in node.results:
            del self._registers[tensor.name]
        self.nodes[-1] = replace(node, results=registers)
        return tuple(self._add(tensor) for tensor in registers)

    def build(self, output: Value) -> ThreadGraph:
        """Return the finished, checked thread graph with this root. Raises: ThreadGraphError."""
        return ThreadGraph(tuple(self.inputs), tuple(self.nodes), self.value(output).name)

    def _add(self, tensor: RegisterTensor) -> Value:
        self._registers[tensor.name] = tensor
        return Value(self, tensor.name, tensor.shape)
