"""An independent oracle: a block graph run block by block, iteration by iteration, on exact slices, with plain NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np

from workbench.ugraph.nodes import Accumulator, InputIterator, OpNode, RunningMax, ThreadNode

SIMPLE: dict[str, Callable[..., Any]] = {
    "matmul": np.matmul,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "square": np.square,
    "neg": np.negative,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "abs": np.abs,
}


def span(extent: Any, cuts: Any) -> Any:
    """Return (start, stop) of the part that `cuts` [(index, count), ...] single out, each part ceil(length / count)."""
    start, stop, nominal = 0, extent, extent
    for index, count in cuts:
        nominal = ceil(nominal / count)
        start = start + index * nominal
        stop = min(stop, start + nominal)
        start = min(start, stop)
    return start, stop


def run_operator(node: Any, xs: Any) -> Any:
    attributes = dict(node.attributes)
    if node.op in SIMPLE:
        return [SIMPLE[node.op](*xs)]
    if node.op == "constant":
        return [np.float64(attributes["value"])]
    if node.op == "scale":
        return [xs[0] * float(attributes["factor"])]
    if node.op in ("sum", "mean"):
        return [getattr(np, node.op)(xs[0], axis=attributes["axis"], keepdims=True)]
    if node.op == "max":
        return [xs[0].max(axis=attributes["axis"], keepdims=True, initial=-np.inf)]
    if node.op == "softmax":
        e = np.exp(xs[0])
        return [e / e.sum(axis=attributes["axis"], keepdims=True)]
    if node.op == "rms_norm":
        return [xs[0] / np.sqrt(np.mean(xs[0] ** 2, axis=-1, keepdims=True) + float(attributes["eps"]))]
    if node.op == "transpose":
        return [np.swapaxes(xs[0], -1, -2)]
    if node.op == "concat":
        return [np.concatenate(xs, axis=attributes["axis"])]
    if node.op == "split":
        return np.split(xs[0], attributes["parts"], axis=attributes["axis"])
    raise NotImplementedError(node.op)


def run_block(block: Any, operands: Any) -> Any:
    """Return the results of a block graph on float64 arrays."""
    outputs = [np.full(shape, np.nan) for shape in block.result_shapes]
    for cell in itertools.product(*(range(count) for count in block.grid_dims)):
        after: dict[str, Any] = {}
        folds: dict[str, list[Any]] = {}
        running: dict[str, Any] = {}
        for step in range(block.forloop_range):
            env = {}
            for node in block.nodes:
                if isinstance(node, InputIterator):
                    array = operands[node.operand]
                    index = []
                    for dim, extent in enumerate(array.shape):
                        cuts = [(cell[a], block.grid_dims[a]) for a in range(3) if node.imap[a] == dim]
                        if node.fmap == dim:
                            cuts.append((step, block.forloop_range))
                        index.append(slice(*span(extent, cuts)))
                    env[node.result.name] = array[tuple(index)]
                elif isinstance(node, OpNode):
                    if all(name in env for name in node.operands):
                        values = run_operator(node, [env[name] for name in node.operands])
                        env.update({t.name: v for t, v in zip(node.results, values, strict=True)})
                elif isinstance(node, ThreadNode):
                    if all(name in env for name in node.operands):
                        env[node.results[0].name] = run_thread(node, [env[name] for name in node.operands])
                elif isinstance(node, RunningMax):
                    old = running.get(node.maximum.name)
                    new = env[node.operand].max(axis=-1, keepdims=True, initial=-np.inf)
                    new = new if old is None else np.maximum(old, new)
                    env[node.maximum.name] = running[node.maximum.name] = new
                    env[node.shift.name] = np.zeros_like(new) if old is None else old - new
                elif isinstance(node, Accumulator):
                    factor = env[node.rescale] if node.rescale else None
                    folds.setdefault(node.result.name, []).append((env[node.operand], factor))
            after = dict(env)
        for node in block.nodes:
            if isinstance(node, Accumulator):
                after[node.result.name] = fold(node, folds[node.result.name])
            elif isinstance(node, OpNode) and any(t.name not in after for t in node.results):
                values = run_operator(node, [after[name] for name in node.operands])
                after.update({t.name: v for t, v in zip(node.results, values, strict=True)})
            elif isinstance(node, ThreadNode) and node.results[0].name not in after:
                after[node.results[0].name] = run_thread(node, [after[name] for name in node.operands])
        for number, saver in enumerate(block.savers):
            tile, out = after[saver.operand], outputs[number]
            index = []
            for dim, extent in enumerate(out.shape):
                cuts = [(cell[a], block.grid_dims[a]) for a in range(3) if saver.omap[a] == dim]
                index.append(slice(*span(extent, cuts)))
            out[tuple(index)] = tile
    return outputs


def run_thread(node: Any, xs: Any) -> Any:
    env = {t.name: x for t, x in zip(node.graph.inputs, xs, strict=True)}
    for inner in node.graph.nodes:
        env[inner.results[0].name] = run_operator(inner, [env[name] for name in inner.operands])[0]
    return env[node.graph.output]


def fold(node: Any, steps: Any) -> Any:
    kind = node.kind.value
    xs = [x for x, _ in steps]
    if kind == "sum":
        return sum(xs)
    if kind == "sum_dim":
        return sum(x.sum(axis=-1, keepdims=True) for x in xs)
    if kind == "sum_to_columns":
        d = node.columns
        return sum(sum(x[..., k * d : (k + 1) * d] for k in range(x.shape[-1] // d)) for x in xs)
    if kind == "max":
        return np.maximum.reduce(xs)
    if kind == "max_dim":
        return np.maximum.reduce([x.max(axis=-1, keepdims=True, initial=-np.inf) for x in xs])
    if kind == "mean":
        return sum(x.sum(axis=-1, keepdims=True) for x in xs) / sum(x.shape[-1] for x in xs)
    if kind == "rms":
        total = sum((x**2).sum(axis=-1, keepdims=True) for x in xs) / sum(x.shape[-1] for x in xs)
        return np.sqrt(total + float(node.eps))
    total = 0.0
    for x, factor in steps:
        total = total * factor + x
    return total.sum(axis=-1, keepdims=True) if kind == "rescale_sum" else total
