"""When are two µGraphs the same graph: a hash of wiring, operators, attributes, shapes, types, strides and schedule.

Invariant: names, the order of independent nodes, the numbering of a block graph's operands and the order of commutative
operands do not enter it; everything else does. It is computed with `hashlib` from text, so it is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import assert_never

from workbench.core.tensors import DeviceTensor
from workbench.ops.spec import AttributeValue
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import (
    Accumulator,
    GraphDefinedNode,
    InputIterator,
    OpNode,
    OutputSaver,
    RunningMax,
    Tensor,
    ThreadNode,
)
from workbench.ugraph.thread_graph import ThreadGraph

DIGEST_BYTES = 16
_Port = tuple[int, int]  # vertex, number of its result


def digest(*parts: str) -> str:
    """Return the hash of a sequence of texts as 32 hexadecimal digits; no two sequences run into each other."""
    encoded = [part.encode() for part in parts]
    return blake2b(b"".join([b"%d:%b" % (len(part), part) for part in encoded]), digest_size=DIGEST_BYTES).hexdigest()


def wiring_hash(graph: KernelGraph | BlockGraph | ThreadGraph) -> str:
    """Return the hash of a graph of any level, 32 hexadecimal digits.

    Joined: renamed tensors, renumbered nodes and operands, commuted operands. Separated: x / y from y / x, exchanged
    inputs or outputs, a shared node from two equal ones, other attributes, shapes, types, strides, maps, counts, thread
    graphs. The order of a block or thread graph's operands and results counts when it is hashed on its own.

    By colour refinement, forwards and backwards: what it cannot tell apart are graphs whose outputs are the same terms
    and which share equal subterms in another, equally regular pattern.
    """
    wiring = _Wiring()
    match graph:
        case KernelGraph():
            wiring.kernel_graph(graph)
        case BlockGraph():
            operands = [wiring.vertex(f"operand {i} {tensor_text(tensor)}") for i, tensor in enumerate(graph.operands)]
            for number, saver in enumerate(wiring.block_graph(graph, [(vertex, 0) for vertex in operands])):
                wiring.edge(saver, wiring.vertex(f"result {number}"), "0")
        case ThreadGraph():
            inputs = [wiring.vertex(f"operand {number}") for number in range(len(graph.inputs))]
            wiring.edge(wiring.thread_graph(graph, [(vertex, 0) for vertex in inputs]), wiring.vertex("result"), "0")
        case _:
            assert_never(graph)
    return digest(type(graph).__name__, *wiring.refined())


def tensor_text(tensor: Tensor) -> str:
    """Return shape, type and, in device memory, strides of a tensor."""
    text = f"{tensor.dtype.value}{list(tensor.shape)}"
    return f"{text}/{list(tensor.strides)}" if isinstance(tensor, DeviceTensor) else text


def attributes_text(attributes: Sequence[tuple[str, AttributeValue]]) -> str:
    """Return the attributes of a node as text, fractions exact, text and numbers told apart."""
    return " ".join(f"{name}={value!r}" for name, value in sorted(attributes))


class _Wiring:
    """A coloured graph: vertices with labels, edges with the place where they end; vertices stand after what they read."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.into: list[list[tuple[_Port, str]]] = []
        self.out_of: list[list[tuple[int, int, str]]] = []

    def vertex(self, label: str) -> int:
        self.labels.append(label)
        self.into.append([])
        self.out_of.append([])
        return len(self.labels) - 1

    def edge(self, source: _Port, target: int, place: str) -> None:
        self.into[target].append((source, place))
        self.out_of[source[0]].append((target, source[1], place))

    def refined(self) -> list[str]:
        """Return the sorted colours of the coarsest stable colouring that is finer than the labels."""
        colours = [digest(label) for label in self.labels]
        classes = 0
        while len(set(colours)) > classes:
            classes = len(set(colours))
            for v in range(len(colours)):
                colours[v] = digest(colours[v], *sorted(f"{p} {n} {colours[s]}" for (s, n), p in self.into[v]))
            for v in reversed(range(len(colours))):
                colours[v] = digest(colours[v], *sorted(f"{p} {n} {colours[t]}" for t, n, p in self.out_of[v]))
        return sorted(colours)

    # ------------------------------------------------------------------------------------------------ graphs to vertices
    def kernel_graph(self, graph: KernelGraph) -> None:
        made: dict[str, _Port] = {}
        for number, tensor in enumerate(graph.inputs):
            made[tensor.name] = (self.vertex(f"input {number} {tensor_text(tensor)}"), 0)
        for node in graph.nodes:
            operands = [made[name] for name in node.operands]
            match node:
                case OpNode():
                    results = self.operator(node, operands)
                case GraphDefinedNode():
                    results = self.block_graph(node.block, operands)
                    for (saver, _), tensor in zip(results, node.results, strict=True):
                        self.labels[saver] += f" {tensor_text(tensor)}"
                case _:
                    assert_never(node)
            made.update(zip((tensor.name for tensor in node.results), results, strict=True))
        for number, name in enumerate(graph.output_names):
            self.edge(made[name], self.vertex(f"output {number}"), "0")

    def operator(self, node: OpNode, operands: Sequence[_Port]) -> list[_Port]:
        results = " ".join(tensor_text(tensor) for tensor in node.results)
        vertex = self.vertex(f"{node.op} {attributes_text(node.attributes)} -> {results}")
        for position, operand in enumerate(operands):
            self.edge(operand, vertex, "any" if node.spec.commutative else str(position))
        return [(vertex, number) for number in range(len(node.results))]

    def block_graph(self, block: BlockGraph, operands: Sequence[_Port]) -> list[_Port]:
        """Add a block graph that reads these values; returns its output savers. All its vertices hang on one."""
        launch = self.vertex(
            f"block graph {block.grid_dims} {block.block_dims} {block.forloop_range} {block.cluster_dims}"
        )
        for operand in dict.fromkeys(operands):
            self.edge(operand, launch, "operand")
        made: dict[str, _Port] = {}
        savers: list[_Port] = []
        for node in block.nodes:
            read = [made[name] for name in node.operands]
            match node:
                case InputIterator():
                    vertex = self.vertex(f"load {node.imap} {node.fmap} -> {tensor_text(node.result)}")
                    self.edge(operands[node.operand], vertex, "0")
                    results = [(vertex, 0)]
                case OpNode():
                    results = self.operator(node, read)
                case Accumulator():
                    label = f"accumulate {node.kind.value} {node.columns} {node.eps} -> {tensor_text(node.result)}"
                    results = [(self.reader(label, read), 0)]
                case RunningMax():
                    vertex = self.reader(f"running max -> {tensor_text(node.maximum)} {tensor_text(node.shift)}", read)
                    results = [(vertex, 0), (vertex, 1)]
                case ThreadNode():
                    root = self.thread_graph(node.graph, read)
                    results = [(self.reader(f"thread graph -> {tensor_text(node.results[0])}", [root]), 0)]
                case OutputSaver():
                    results = [(self.reader(f"save {node.omap}", read), 0)]
                    savers += results
                case _:
                    assert_never(node)
            self.edge((launch, 0), results[0][0], "inside")
            made.update(zip((tensor.name for tensor in node.results), results, strict=False))
        return savers

    def thread_graph(self, graph: ThreadGraph, operands: Sequence[_Port]) -> _Port:
        """Add a thread graph that reads these values; returns its root."""
        made = {
            register.name: (self.reader(f"register {tensor_text(register)}", [operand]), 0)
            for register, operand in zip(graph.inputs, operands, strict=True)
        }
        for node in graph.nodes:
            results = self.operator(node, [made[name] for name in node.operands])
            made.update(zip((tensor.name for tensor in node.results), results, strict=True))
        return made[graph.output]

    def reader(self, label: str, operands: Sequence[_Port]) -> int:
        vertex = self.vertex(label)
        for position, operand in enumerate(operands):
            self.edge(operand, vertex, str(position))
        return vertex
