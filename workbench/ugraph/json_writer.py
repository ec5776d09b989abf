"""µGraphs as JSON objects. Invariant: everything that a node records is written; exact numbers are strings."""

from __future__ import annotations

from fractions import Fraction
from typing import assert_never

from workbench.core.tensors import DeviceTensor, SharedTensor
from workbench.ops.spec import AttributeValue
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import (
    Accumulator,
    BlockNode,
    GraphDefinedNode,
    InputIterator,
    KernelNode,
    OpNode,
    OutputSaver,
    RunningMax,
    Tensor,
    ThreadNode,
)

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def write_graph(graph: KernelGraph) -> dict[str, Json]:
    """Return a kernel graph as a JSON object (without schema and version)."""
    return {
        "kind": "kernel_graph",
        "name": graph.name,
        "inputs": [_tensor(tensor) for tensor in graph.inputs],
        "nodes": [_kernel_node(node) for node in graph.nodes],
        "outputs": list(graph.output_names),
    }


def _kernel_node(node: KernelNode) -> Json:
    match node:
        case OpNode():
            return _operator(node)
        case GraphDefinedNode():
            return {
                "kind": "block_graph",
                "name": node.name,
                "operands": list(node.operands),
                "results": [_tensor(tensor) for tensor in node.results],
                "block": _block(node.block),
            }
        case _:
            assert_never(node)


def _block(block: BlockGraph) -> dict[str, Json]:
    return {
        "operands": [_tensor(tensor) for tensor in block.operands],
        "grid": list(block.grid_dims),
        "loop": block.forloop_range,
        "threads": list(block.block_dims),
        "cluster": list(block.cluster_dims),
        "nodes": [_block_node(node) for node in block.nodes],
    }


def _block_node(node: BlockNode) -> Json:
    match node:
        case InputIterator():
            return {
                "kind": "load",
                "operand": node.operand,
                "imap": list(node.imap),
                "fmap": node.fmap,
                "results": [_tensor(node.result)],
            }
        case OpNode():
            return _operator(node)
        case Accumulator():
            return {
                "kind": "accumulate",
                "how": node.kind.value,
                "operands": list(node.operands),
                "columns": node.columns,
                "eps": str(node.eps),
                "results": [_tensor(node.result)],
            }
        case RunningMax():
            return {
                "kind": "running_max",
                "operands": list(node.operands),
                "results": [_tensor(tensor) for tensor in node.results],
            }
        case ThreadNode():
            return {
                "kind": "thread_graph",
                "operands": list(node.operands),
                "results": [_tensor(tensor) for tensor in node.results],
                "inputs": [_tensor(tensor) for tensor in node.graph.inputs],
                "nodes": [_operator(inner) for inner in node.graph.nodes],
                "output": node.graph.output,
            }
        case OutputSaver():
            return {"kind": "save", "operands": list(node.operands), "omap": list(node.omap)}
        case _:
            assert_never(node)


def _operator(node: OpNode) -> dict[str, Json]:
    return {
        "kind": "operator",
        "op": node.op,
        "operands": list(node.operands),
        "attributes": {name: _attribute(value) for name, value in node.attributes},
        "results": [_tensor(tensor) for tensor in node.results],
    }


def _attribute(value: AttributeValue) -> Json:
    if isinstance(value, Fraction):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _tensor(tensor: Tensor) -> Json:
    written: dict[str, Json] = {"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype.value}
    if isinstance(tensor, DeviceTensor) and not tensor.is_row_major:
        written["strides"] = list(tensor.strides)
    if isinstance(tensor, SharedTensor) and tensor.is_ragged:
        written["ragged"] = [
            None if split is None else {"extent": split.extent, "cuts": [list(part) for part in split.parts]}
            for split in tensor.ragged
        ]
    return written
