"""What the programs compute, written a second time in plain NumPy from their formulas, and inputs to try them on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.ugraph.kernel_graph import KernelGraph

Floats = npt.NDArray[np.float64]


def silu(x: Floats) -> Floats:
    return np.asarray(x / (1 + np.exp(-x)), dtype=np.float64)


def over_rms(x: Floats, axis: int = -1, eps: float = 0.0) -> Floats:
    root = np.sqrt(np.sum(x * x, axis=axis, keepdims=True) / x.shape[axis] + eps)
    return np.asarray(x / root, dtype=np.float64)


def over_length(x: Floats) -> Floats:
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True), dtype=np.float64)


def attention(q: Floats, k: Floats, v: Floats) -> Floats:
    result = np.empty_like(q)
    for group in range(q.shape[0]):
        for row in range(q.shape[1]):
            logits = q[group, row] @ k[group]
            weights = np.exp(logits - logits.max())
            result[group, row] = weights @ v[group] / weights.sum()
    return result


def closed_form(name: str, style: str, inputs: list[Floats]) -> Floats:
    """Return the output of a program on inputs, by position."""
    mirage = style == "mirage"
    match name:
        case "rms_norm_linear":
            x, gain, w = (inputs[0], 1.0, inputs[1]) if mirage else inputs
            return (over_rms(x, eps=0.0 if mirage else 1e-6) * gain) @ w
        case "gated_mlp":
            x, w1, w2 = inputs
            return silu(x @ w1) * (x @ w2)
        case "gated_mlp_down":
            x, w1, w2, w3 = inputs
            return (silu(x @ w1) * (x @ w2)) @ w3
        case "lora":
            x, w, a, b = inputs
            return x @ (w + a @ b)
        case "gqa" | "mha" | "mqa" | "gqa_decode" | "attention_safe":
            return attention(*inputs)
        case "qk_norm_attention":
            q, k, v = inputs
            if mirage:
                return attention(over_rms(q), k, over_rms(v))
            return attention(over_rms(q, eps=1e-6), over_rms(k, axis=1, eps=1e-6), v)
        case "ntrans":
            h, x, alpha = inputs
            if mirage:
                return over_rms(x + alpha * (over_rms(h) + x))
            return over_length((1 - alpha) * x + alpha * over_length(h))
        case "softmax":
            (x,) = inputs
            weights = np.exp(x - x.max(axis=-1, keepdims=True))
            return np.asarray(weights / weights.sum(axis=-1, keepdims=True), dtype=np.float64)
        case "moe_expert":
            x, a, b = inputs
            return np.stack([np.exp(xe @ ae) @ be for xe, ae, be in zip(x, a, b, strict=True)])
    raise AssertionError(name)


def hard_inputs(graph: KernelGraph, rng: np.random.Generator) -> list[Floats]:
    """Return inputs whose rows differ in scale, so that a row divided by another row's statistic is far off."""
    arrays: list[Floats] = []
    for tensor in graph.inputs:
        array = rng.standard_normal(tensor.shape) / np.sqrt(tensor.shape[-1] if len(tensor.shape) > 1 else 1.0)
        if len(tensor.shape) > 1:
            array *= rng.uniform(0.25, 4.0, size=(*tensor.shape[:-1], 1))
        arrays.append(array)
    return arrays


def relative_error(found: npt.NDArray[Any], expected: Floats) -> float:
    """Return the largest error relative to the largest value."""
    assert found.shape == expected.shape
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))
