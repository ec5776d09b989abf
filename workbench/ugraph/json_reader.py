"""µGraphs from JSON objects. Invariant: nothing is believed; types, shapes and wiring are checked, and errors name the place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from workbench.core.dtypes import DType, as_dtype
from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor, RaggedSplit, RegisterTensor, SharedTensor
from workbench.errors import UnknownTensorError
from workbench.ops import complete_attributes, operator
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.exact_number import is_number
from workbench.ugraph.json_value import JsonValue
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.location import located
from workbench.ugraph.nodes import (
    Accumulator,
    AccumulatorKind,
    BlockNode,
    DimMap,
    GraphDefinedNode,
    InputIterator,
    KernelNode,
    OpNode,
    OutputSaver,
    RunningMax,
    Tensor,
    ThreadNode,
)
from workbench.ugraph.thread_graph import ThreadGraph

R = TypeVar("R", bound=Tensor)


def read_graph(value: JsonValue) -> KernelGraph:
    """Return the kernel graph of a JSON object. Raises: FormatError, LegalityError, errors of operators, with the place."""
    value.only("kind", "name", "inputs", "nodes", "outputs")
    if value.field("kind").text() != "kernel_graph":
        raise value.field("kind").fail("'kernel_graph'")
    inputs = tuple(_read_device_tensor(entry) for entry in value.field("inputs").items())
    scope = _Scope({tensor.name: tensor.shape for tensor in inputs}, value.field("nodes"))
    nodes: list[KernelNode] = []
    for entry in value.field("nodes").items():
        kind = entry.field("kind")
        if kind.text() == "operator":
            node: KernelNode = _read_operator(entry, scope, _read_device_tensor)
        elif kind.text() == "block_graph":
            entry.only("kind", "name", "operands", "results", "block")
            scope.shapes_of(entry)
            node = GraphDefinedNode(
                _read_block(entry.field("block")),
                entry.field("operands").texts(),
                tuple(_read_device_tensor(result) for result in entry.field("results").items()),
                entry.field("name").text(),
            )
        else:
            raise kind.fail("'operator' or 'block_graph'")
        scope.define(node.results)
        nodes.append(node)
    outputs, name = value.field("outputs").texts(), value.field("name").text()
    with located(value.place):
        return KernelGraph(inputs, tuple(nodes), outputs, name)


def _read_block(value: JsonValue) -> BlockGraph:
    value.only("operands", "grid", "loop", "threads", "cluster", "nodes")
    operands = tuple(_read_device_tensor(entry) for entry in value.field("operands").items())
    scope = _Scope({}, value.field("nodes"))
    nodes = []
    for entry in value.field("nodes").items():
        node = _read_block_node(entry, scope)
        scope.define(node.results)
        nodes.append(node)
    grid, loop = value.field("grid").integers(), value.field("loop").integer()
    threads, cluster = value.field("threads").integers(), value.field("cluster").integers()
    with located(value.place):
        return BlockGraph(operands, tuple(nodes), grid, loop, threads, cluster)


def _read_block_node(entry: JsonValue, scope: _Scope) -> BlockNode:
    kind = entry.field("kind")
    if kind.text() == "operator":
        return _read_operator(entry, scope, _read_tile)
    if kind.text() == "load":
        entry.only("kind", "operand", "imap", "fmap", "results")
        fmap = entry.optional("fmap")
        (tile,) = _results(entry, 1)
        return InputIterator(
            entry.field("operand").integer(),
            _read_map(entry.field("imap")),
            None if fmap is None else fmap.integer(),
            tile,
        )
    scope.shapes_of(entry)
    operands = entry.field("operands")
    match kind.text():
        case "accumulate":
            entry.only("kind", "how", "operands", "columns", "eps", "results")
            return _read_accumulator(entry)
        case "running_max":
            entry.only("kind", "operands", "results")
            maximum, shift = _results(entry, 2)
            return RunningMax(_only_name(operands), maximum, shift)
        case "thread_graph":
            entry.only("kind", "operands", "results", "inputs", "nodes", "output")
            return ThreadNode(_read_thread(entry), operands.texts(), tuple(_results(entry, 1)))
        case "save":
            entry.only("kind", "operands", "omap")
            return OutputSaver(_only_name(operands), _read_map(entry.field("omap")))
        case _:
            raise kind.fail("'operator', 'load', 'accumulate', 'running_max', 'thread_graph' or 'save'")


def _read_accumulator(entry: JsonValue) -> Accumulator:
    how, operands, columns = entry.field("how"), entry.field("operands").texts(), entry.optional("columns")
    known = [kind.value for kind in AccumulatorKind]
    if how.text() not in known:
        raise how.fail(f"one of {', '.join(known)}")
    if not 1 <= len(operands) <= 2:
        raise entry.field("operands").fail("a tile, and a rescaling factor if the kind needs one")
    (result,) = _results(entry, 1)
    rescale = operands[1] if len(operands) > 1 else None
    count = None if columns is None else columns.integer()
    return Accumulator(AccumulatorKind(how.text()), operands[0], result, rescale, count, entry.field("eps").number())


def _read_thread(entry: JsonValue) -> ThreadGraph:
    inputs = tuple(_read_register(tensor) for tensor in entry.field("inputs").items())
    scope = _Scope({tensor.name: tensor.shape for tensor in inputs}, entry.field("nodes"))
    nodes = []
    for inner in entry.field("nodes").items():
        node = _read_operator(inner, scope, _read_register)
        scope.define(node.results)
        nodes.append(node)
    output = entry.field("output").text()
    with located(entry.place):
        return ThreadGraph(inputs, tuple(nodes), output)


# --------------------------------------------------------------------------------------------------------- shared parts
class _Scope:
    """The tensors defined so far in one graph, and the nodes still to come (to tell a cycle from a misspelt name)."""

    def __init__(self, shapes: Mapping[str, Shape], nodes: JsonValue) -> None:
        self._shapes, self._nodes = dict(shapes), nodes

    def define(self, tensors: Sequence[Tensor]) -> None:
        self._shapes.update({tensor.name: tensor.shape for tensor in tensors})

    def shapes_of(self, entry: JsonValue) -> tuple[Shape, ...]:
        """Return the shapes of a node's operands. Raises: UnknownTensorError."""
        names = entry.field("operands").texts()
        for name in names:
            if name in self._shapes:
                continue
            later = any(
                result.has("name") and result.field("name").value == name
                for node in self._nodes.items()
                if node.has("results")
                for result in node.field("results").items()
            )
            if later:
                raise UnknownTensorError(
                    f"operand {name!r} is made only later", entry.place, "the nodes form a cycle or are out of order"
                )
            known = ", ".join(self._shapes) or "none"
            raise UnknownTensorError(f"operand {name!r} is not defined", entry.place, f"defined before: {known}")
        return tuple(self._shapes[name] for name in names)


def _read_operator(entry: JsonValue, scope: _Scope, read: Callable[[JsonValue], R]) -> OpNode:
    entry.only("kind", "op", "operands", "attributes", "results")
    shapes = scope.shapes_of(entry)
    given = {name: _read_attribute(value) for name, value in entry.field("attributes").entries()}
    op = entry.field("op").text()
    with located(entry.place):
        spec = operator(op)
        attributes = complete_attributes(spec, given, shapes)
    results = tuple(read(result) for result in entry.field("results").items())
    return OpNode(spec.name, entry.field("operands").texts(), results, tuple(sorted(attributes.items())))


def _read_attribute(value: JsonValue) -> int | str | Fraction | tuple[int, ...]:
    if isinstance(value.value, list):
        return value.integers()
    if isinstance(value.value, str):
        return value.number() if is_number(value.value) else value.value
    return value.integer()


def _results(entry: JsonValue, count: int) -> list[SharedTensor]:
    results = entry.field("results")
    if len(results.items()) != count:
        raise results.fail(f"{count} result{'s' * (count != 1)}")
    return [_read_tile(result) for result in results.items()]


def _only_name(value: JsonValue) -> str:
    if len(value.items()) != 1:
        raise value.fail("one name")
    return value.texts()[0]


def _read_map(value: JsonValue) -> DimMap:
    entries = value.items()
    if len(entries) != 3:
        raise value.fail("three dimensions or nulls, for grid x, y, z")
    x, y, z = (None if entry.value is None else _position(entry) for entry in entries)
    return x, y, z


def _position(value: JsonValue) -> int:
    if value.integer() < 0:
        raise value.fail("a dimension counted from 0, or null for a replica")
    return value.integer()


def _read_tensor(value: JsonValue) -> tuple[str, Shape, DType]:
    name, shape, dtype = value.field("name").text(), value.field("shape").integers(), value.field("dtype")
    spelled = dtype.text()
    with located(dtype.place):
        return name, shape, as_dtype(spelled)


def _read_device_tensor(value: JsonValue) -> DeviceTensor:
    value.only("name", "shape", "dtype", "strides")
    stated = value.optional("strides")
    strides = () if stated is None else stated.integers()
    name, shape, dtype = _read_tensor(value)
    with located(value.place):
        return DeviceTensor(name, shape, dtype, strides)


def _read_register(value: JsonValue) -> RegisterTensor:
    value.only("name", "shape", "dtype")
    name, shape, dtype = _read_tensor(value)
    with located(value.place):
        return RegisterTensor(name, shape, dtype)


def _read_tile(value: JsonValue) -> SharedTensor:
    value.only("name", "shape", "dtype", "ragged")
    name, shape, dtype = _read_tensor(value)
    cut = value.optional("ragged")
    ragged = () if cut is None else tuple(_read_split(entry) for entry in cut.items())
    if cut is not None and len(ragged) != len(shape):
        raise cut.fail(f"{len(shape)} entries, one per axis")
    with located(value.place):
        return SharedTensor(name, shape, dtype, ragged)


def _read_split(value: JsonValue) -> RaggedSplit | None:
    if value.value is None:
        return None
    value.only("extent", "cuts")
    parts = []
    for entry in value.field("cuts").items():
        pair = entry.integers()
        if len(pair) != 2:
            raise entry.fail("an axis of the cut (0, 1, 2 for grid x, y, z; 3 for the loop) and a count")
        parts.append((pair[0], pair[1]))
    return RaggedSplit(value.field("extent").integer(), tuple(parts))
