"""The text form of µGraphs: every node one line, nested graphs indented; what is printed parses to an equal graph.

```
kernel_graph "rms" {
  input X: float16[16, 4096]
  input W: float16[4096, 4096] strides(1, 4096)
  O: float16[16, 4096] = block_graph(X, W) grid(64) loop(64) threads(128) {
    x: float16[16, 64] = load(X) fmap(1)
    w: float16[64, 64] = load(W) imap(x: 1) fmap(0)
    xw: float16[16, 64] = matmul(x, w)
    sum: float32[16, 64] = accumulate sum(xw)
    rms: float32[16, 1] = accumulate rms(x, eps=1/1000000)
    q: float32[16, 64] = div(sum, rms)
    save(q) omap(x: 1)
  }
  output O
}
```

A type may be left out (it is inferred), `#` starts a comment, a name that is no identifier stands in double quotes as in
JSON. An extent `22 of 64/x:3` is a tile of at most 22 of an axis of 64 that grid axis x cuts into 3 parts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import assert_never

from workbench.core.shapes import Shape
from workbench.core.tensors import DeviceTensor, RaggedSplit, SharedTensor
from workbench.errors import FormatError
from workbench.ops.spec import AttributeValue
from workbench.ugraph.block_graph import BlockGraph
from workbench.ugraph.inference import GRID_AXES, LOOP
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import (
    Accumulator,
    BlockNode,
    DimMap,
    GraphDefinedNode,
    InputIterator,
    OpNode,
    OutputSaver,
    RunningMax,
    Tensor,
    ThreadNode,
)
from workbench.ugraph.text_parser import KEYWORDS, Graph, Parser
from workbench.ugraph.thread_graph import ThreadGraph

INDENT = "  "
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_graph(text: str) -> Graph:
    """Return the graph that a text describes: a kernel, block or thread graph, as its first word says.

    Raises: FormatError naming line, column and what was expected; LegalityError, ShapeError with the line of the node.
    """
    return Parser(text).graph()


def parse_kernel_graph(text: str) -> KernelGraph:
    """Return the kernel graph that a text describes. Raises: as `parse_graph`, FormatError for a graph of another level."""
    graph = parse_graph(text)
    if not isinstance(graph, KernelGraph):
        raise FormatError("line 1, column 1: expected 'kernel_graph', found a graph of a lower level")
    return graph


def print_graph(graph: Graph) -> str:
    """Return the text form of a kernel, block or thread graph, without a final newline."""
    match graph:
        case KernelGraph():
            lines = _kernel_lines(graph)
        case BlockGraph():
            operands = ", ".join(f"{quoted(tensor.name)}: {_type(tensor)}" for tensor in graph.operands)
            lines = [f"block_graph({operands}){_launch(graph)} {{", *_block_body(graph), "}"]
        case ThreadGraph():
            lines = ["thread_graph {", *_thread_body(graph), "}"]
        case _:
            assert_never(graph)
    return "\n".join(lines)


def quoted(name: str) -> str:
    """Return a tensor's name as the text form spells it: bare if it is an identifier and no keyword, else quoted."""
    if _IDENTIFIER.fullmatch(name) and name not in KEYWORDS:
        return name
    return json.dumps(name, ensure_ascii=not name.isprintable())


def _kernel_lines(graph: KernelGraph) -> list[str]:
    label = f" {json.dumps(graph.name, ensure_ascii=not graph.name.isprintable())}" if graph.name else ""
    lines = [f"kernel_graph{label} {{"]
    lines += [f"{INDENT}input {quoted(tensor.name)}: {_type(tensor)}" for tensor in graph.inputs]
    for node in graph.nodes:
        match node:
            case OpNode():
                lines.append(INDENT + _operator_line(node))
            case GraphDefinedNode():
                lines += _indented(_graph_defined_lines(node))
            case _:
                assert_never(node)
    lines.append(f"{INDENT}output {', '.join(quoted(name) for name in graph.output_names)}")
    return [*lines, "}"]


def _graph_defined_lines(node: GraphDefinedNode) -> list[str]:
    names = [tensor.name for tensor in node.block.operands]
    operands = ", ".join(
        quoted(operand) if operand == name else f"{quoted(operand)} as {quoted(name)}"
        for operand, name in zip(node.operands, names, strict=True)
    )
    label = f" name({json.dumps(node.name, ensure_ascii=not node.name.isprintable())})" if node.name else ""
    head = f"{_results(node.results)} = block_graph({operands}){label}{_launch(node.block)} {{"
    return [head, *_block_body(node.block), "}"]


def _launch(block: BlockGraph) -> str:
    parts = f" grid({_dims(block.grid_dims)}) loop({block.forloop_range}) threads({_dims(block.block_dims)})"
    return parts + (f" cluster({_dims(block.cluster_dims)})" if block.cluster_dims != (1, 1, 1) else "")


def _dims(dims: Shape) -> str:
    last = max((axis for axis, count in enumerate(dims) if count > 1), default=0)
    return ", ".join(str(count) for count in dims[: last + 1])


def _block_body(block: BlockGraph) -> list[str]:
    counts = Counter(tensor.name for tensor in block.operands)
    lines: list[str] = []
    for node in block.nodes:
        lines += _indented(_block_node_lines(node, block, counts))
    return lines


def _block_node_lines(node: BlockNode, block: BlockGraph, counts: Counter[str]) -> list[str]:
    match node:
        case InputIterator():
            name = block.operands[node.operand].name
            source = quoted(name) if counts[name] == 1 else str(node.operand)
            loop = "" if node.fmap is None else f" fmap({node.fmap})"
            return [f"{_results(node.results)} = load({source}){_map('imap', node.imap)}{loop}"]
        case OpNode():
            return [_operator_line(node)]
        case Accumulator():
            extra = [quoted(name) for name in node.operands]
            extra += [f"columns={node.columns}"] if node.columns is not None else []
            extra += [f"eps={node.eps}"] if node.eps else []
            return [f"{_results(node.results)} = accumulate {node.kind.value}({', '.join(extra)})"]
        case RunningMax():
            return [f"{_results(node.results)} = running_max({quoted(node.operand)})"]
        case ThreadNode():
            operands = ", ".join(quoted(name) for name in node.operands)
            return [f"{_results(node.results)} = thread_graph({operands}) {{", *_thread_body(node.graph), "}"]
        case OutputSaver():
            return [f"save({quoted(node.operand)}){_map('omap', node.omap)}"]
        case _:
            assert_never(node)


def _thread_body(graph: ThreadGraph) -> list[str]:
    lines = [f"input {quoted(tensor.name)}: {_type(tensor)}" for tensor in graph.inputs]
    lines += [_operator_line(node) for node in graph.nodes]
    return list(_indented([*lines, f"output {quoted(graph.output)}"]))


def _indented(lines: Sequence[str]) -> Iterator[str]:
    return (INDENT + line for line in lines)


def _operator_line(node: OpNode) -> str:
    arguments = [quoted(name) for name in node.operands]
    arguments += [f"{name}={_attribute(value)}" for name, value in node.attributes]
    return f"{_results(node.results)} = {node.op}({', '.join(arguments)})"


def _attribute(value: AttributeValue) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"({', '.join(str(entry) for entry in value)})"
    return str(value)


def _map(word: str, entries: DimMap) -> str:
    mapped = [f"{GRID_AXES[axis]}: {dim}" for axis, dim in enumerate(entries) if dim is not None]
    return f" {word}({', '.join(mapped)})" if mapped else ""


def _results(tensors: Sequence[Tensor]) -> str:
    return ", ".join(f"{quoted(tensor.name)}: {_type(tensor)}" for tensor in tensors)


def _type(tensor: Tensor) -> str:
    splits: Sequence[RaggedSplit | None] = (
        tensor.ragged if isinstance(tensor, SharedTensor) else (None,) * len(tensor.shape)
    )
    extents = [_extent(extent, split) for extent, split in zip(tensor.shape, splits, strict=True)]
    text = f"{tensor.dtype}[{', '.join(extents)}]"
    if isinstance(tensor, DeviceTensor) and not tensor.is_row_major:
        text += f" strides({', '.join(str(stride) for stride in tensor.strides)})"
    return text


def _extent(extent: int, split: RaggedSplit | None) -> str:
    if split is None:
        return str(extent)
    cuts = "".join(f"/{'loop' if axis == LOOP else GRID_AXES[axis]}:{count}" for axis, count in split.parts)
    return f"{extent} of {split.extent}{cuts}"
