"""Where a program computes softmax(Q K) V: found by its wiring, whatever the program or its tensors are called.

Invariant: a match may be computed by a fused attention with scale 1 without changing any tensor that something else reads.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from workbench.core.layouts import Strides
from workbench.core.tensors import DeviceTensor
from workbench.ugraph.kernel_graph import KernelGraph
from workbench.ugraph.nodes import OpNode


@dataclass(frozen=True, slots=True)
class Attention:
    """result = softmax(query @ keys) @ values over the last axis; `keys`: (..., d, context), transposed for torch.

    covered: names of the tensors that need not exist when it is fused, the result left out.
    """

    query: str
    keys: str
    values: str
    result: str
    covered: frozenset[str]


def find_attention(graph: KernelGraph) -> list[Attention]:
    """Return every attention in a program, in order.

    softmax(Q @ K) @ V, with softmax written out as exp(x) / sum(exp(x)), with or without x - max(x), and the division
    before or after the product with V. Leading axes of Q, K and V must be equal.
    """
    finder = _Finder(graph)
    found = [finder.match(node) for node in graph.nodes if isinstance(node, OpNode)]
    return [attention for attention in found if attention is not None]


class _Finder:
    def __init__(self, graph: KernelGraph) -> None:
        self._graph = graph
        self._makers = {node.results[0].name: node for node in graph.nodes if isinstance(node, OpNode)}
        self._uses = Counter(name for node in graph.nodes for name in node.operands)
        self._uses.update(graph.output_names)

    def _maker(self, name: str, op: str, uses: int | None = 1) -> OpNode | None:
        """Return the node that makes a tensor if it is of this operator and the tensor is read `uses` times."""
        node = self._makers.get(name)
        if node is None or node.op != op or (uses is not None and self._uses[name] != uses):
            return None
        return node

    def _folds_rows(self, node: OpNode) -> bool:
        axis = node.attribute_map["axis"]
        return axis in (-1, len(self._graph.tensor(node.operands[0]).shape) - 1)

    def match(self, node: OpNode) -> Attention | None:
        """Return the attention whose result a node makes, None if it makes none."""
        result = node.results[0].name
        if node.op == "matmul":
            weights, values = node.operands
            softmax = self._maker(weights, "softmax")
            if softmax is not None and self._folds_rows(softmax):
                return self._finish(softmax.operands[0], 1, values, result, {weights})
            quotient = self._maker(weights, "div")
            if quotient is not None and (inner := self._exponentials(quotient.operands[0], quotient.operands[1])):
                logits, uses, covered = inner
                return self._finish(logits, uses, values, result, {weights, *covered})
        if node.op == "div":
            product = self._maker(node.operands[0], "matmul")
            if product is not None and (inner := self._exponentials(product.operands[0], node.operands[1])):
                logits, uses, covered = inner
                return self._finish(logits, uses, product.operands[1], result, {node.operands[0], *covered})
        return None

    def _exponentials(self, weights: str, total: str) -> tuple[str, int, set[str]] | None:
        """Return (logits, how often they are read, covered) if `total` is the row sum of `weights`, exponentials."""
        exponential, folded = self._maker(weights, "exp", uses=2), self._maker(total, "sum")
        if exponential is None or folded is None or folded.operands != (weights,) or not self._folds_rows(folded):
            return None
        argument, covered = exponential.operands[0], {weights, total}
        difference = self._maker(argument, "sub")
        if difference is not None:
            logits, largest = difference.operands
            maximum = self._maker(largest, "max")
            if maximum is not None and maximum.operands == (logits,) and self._folds_rows(maximum):
                return logits, 2, covered | {argument, largest}
        return argument, 1, covered

    def _finish(self, logits: str, uses: int, values: str, result: str, covered: set[str]) -> Attention | None:
        product = self._maker(logits, "matmul", uses)
        if product is None:
            return None
        query, keys = product.operands
        shapes = [self._graph.tensor(name).shape for name in (query, keys, values)]
        if len({shape[:-2] for shape in shapes}) > 1 or any(len(shape) < 2 for shape in shapes):
            return None
        return Attention(query, keys, values, result, frozenset({logits, *covered}))


def key_layouts(graph: KernelGraph, found: list[Attention]) -> dict[int, Strides]:
    """Return strides of the inputs that keys are made of, so that keys lie row by row: (..., context, d) in memory.

    Fused attention wants them so; a program stores them as (..., d, context).
    """
    makers = {tensor.name: node for node in graph.nodes for tensor in node.results}
    positions = {tensor.name: position for position, tensor in enumerate(graph.inputs)}
    layouts: dict[int, Strides] = {}
    for attention in found:
        shape = graph.tensor(attention.keys).shape
        pending = [attention.keys]
        while pending:
            name = pending.pop()
            if graph.tensor(name).shape != shape:
                continue
            if name in positions:
                layouts[positions[name]] = rows_of_columns(graph.tensor(name))
            elif name in makers:
                pending.extend(makers[name].operands)
    return layouts


def rows_of_columns(tensor: DeviceTensor) -> Strides:
    """Return the strides of a tensor whose last two axes lie in memory the other way round, without padding."""
    *leading, rows, columns = tensor.shape
    strides, step = [1, rows], rows * columns
    for extent in reversed(leading):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)
