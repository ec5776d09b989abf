"""Programs written twice: pairs that are equal over the reals, and pairs that look equal and are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import workbench as wb
from workbench.ugraph.kernel_graph import KernelGraph

Function = Callable[..., Any]


def traced(function: Function, count: int, shape: tuple[int, ...]) -> KernelGraph:
    """Return a function of `count` tensors of one shape as a kernel graph."""
    if count == 1:
        return wb.trace(lambda x: function(x), x=shape)
    if count == 2:
        return wb.trace(lambda x, y: function(x, y), x=shape, y=shape)
    return wb.trace(lambda x, y, z: function(x, y, z), x=shape, y=shape, z=shape)


def pair(case: tuple[int, Function, Function], shape: tuple[int, ...] = (2, 3)) -> tuple[KernelGraph, KernelGraph]:
    """Return both programs of a case."""
    count, left, right = case
    return traced(left, count, shape), traced(right, count, shape)


SMOOTH_EQUAL: dict[str, tuple[int, Function, Function]] = {
    "e^x e^y = e^(x+y)": (2, lambda x, y: wb.exp(x) * wb.exp(y), lambda x, y: wb.exp(x + y)),
    "sqrt x sqrt y = sqrt xy": (2, lambda x, y: wb.sqrt(x) * wb.sqrt(y), lambda x, y: wb.sqrt(x * y)),
    "sqrt x sqrt x = x": (1, lambda x: wb.sqrt(x) * wb.sqrt(x), lambda x: x),
    "sqrt((x^2+y^2)^2) = x^2+y^2": (
        2,
        lambda x, y: wb.sqrt(wb.square(x * x + y * y)),
        lambda x, y: x * x + y * y,
    ),
    "rms_norm(2x) = rms_norm(x)": (1, lambda x: wb.rms_norm(2 * x, eps=0), lambda x: wb.rms_norm(x, eps=0)),
    "rms_norm(3x) = rms_norm(x)": (1, lambda x: wb.rms_norm(3 * x, eps=0), lambda x: wb.rms_norm(x, eps=0)),
    "layer_norm(2x+5) = layer_norm(x)": (
        1,
        lambda x: wb.layer_norm(2 * x + 5, eps=0),
        lambda x: wb.layer_norm(x, eps=0),
    ),
    "softmax shift": (2, lambda x, m: wb.softmax(x - wb.sum(m)), lambda x, m: wb.softmax(x)),
    "silu(x) - silu(-x) = x": (1, lambda x: wb.silu(x) - wb.silu(-x), lambda x: x),
    "tanh by sigmoid": (1, lambda x: wb.tanh(x) + 1, lambda x: 2 * wb.sigmoid(2 * x)),
    "x / y / z = x / (y z)": (3, lambda x, y, z: x / y / z, lambda x, y, z: x / (y * z)),
    "1/(1/x + 1/y) = xy/(x+y)": (2, lambda x, y: 1 / (1 / x + 1 / y), lambda x, y: x * y / (x + y)),
    "exp of equal quotients": (2, lambda x, y: wb.exp(x / y + y / x), lambda x, y: wb.exp((x * x + y * y) / (x * y))),
    "second exp of equal arguments": (
        2,
        lambda x, y: wb.exp(wb.exp(x + y)),
        lambda x, y: wb.exp(wb.exp(x) * wb.exp(y)),
    ),
    "erf of equal arguments": (2, lambda x, y: wb.gelu((x + y) * (x - y)), lambda x, y: wb.gelu(x * x - y * y)),
    "log of equal arguments": (2, lambda x, y: wb.log(x * y + x), lambda x, y: wb.log(x * (y + 1))),
}

SMOOTH_DIFFERENT: dict[str, tuple[int, Function, Function]] = {
    "sqrt(x^2) = x": (1, lambda x: wb.sqrt(x * x), lambda x: x),
    "sqrt(x^3 y) = x sqrt(xy)": (2, lambda x, y: wb.sqrt(x * x * x * y), lambda x, y: x * wb.sqrt(x * y)),
    "e^(xy) = e^x e^y": (2, lambda x, y: wb.exp(x * y), lambda x, y: wb.exp(x) * wb.exp(y)),
    "rms_norm(2x) with eps": (1, lambda x: wb.rms_norm(2 * x), lambda x: wb.rms_norm(x)),
    "a constant wrong in the sixth digit": (1, lambda x: x * 1.234567, lambda x: x * 1.234566),
    "a constant wrong in the fifteenth": (1, lambda x: x * x, lambda x: x * x + wb.exp(x) * 1e-15),
    "x / y = y / x": (2, lambda x, y: x / y, lambda x, y: y / x),
    "e^e^x = e^x": (1, lambda x: wb.exp(wb.exp(x)), lambda x: wb.exp(x)),
    "both gelus": (1, lambda x: wb.gelu(x), lambda x: wb.gelu(x, approximate="tanh")),
    "erf doubled": (1, lambda x: wb.gelu(2 * x), lambda x: 2 * wb.gelu(x)),
    "softmax scaled": (1, lambda x: wb.softmax(2 * x), lambda x: wb.softmax(x)),
    "a root of a far square": (  # differs only below -10^7
        1,
        lambda x: wb.sqrt(wb.square(x + 10**7)),
        lambda x: x + 10**7,
    ),
    "sum of roots": (2, lambda x, y: wb.sqrt(x + y), lambda x, y: wb.sqrt(x) + wb.sqrt(y)),
    "columns for rows": (1, lambda x: wb.sum(x, axis=-1) * x, lambda x: wb.sum(x, axis=-2) * x),
}


def median(x: Any, y: Any, z: Any) -> Any:
    """Return the middle value."""
    return wb.maximum(wb.minimum(x, y), wb.minimum(wb.maximum(x, y), z))


PIECEWISE_EQUAL: dict[str, tuple[int, Function, Function]] = {
    "relu(2x) = 2 relu(x)": (1, lambda x: wb.relu(2 * x), lambda x: 2 * wb.relu(x)),
    "relu(x) - relu(-x) = x": (1, lambda x: wb.relu(x) - wb.relu(-x), lambda x: x),
    "max + min = x + y": (2, lambda x, y: wb.maximum(x, y) + wb.minimum(x, y), lambda x, y: x + y),
    "max min = x y": (2, lambda x, y: wb.maximum(x, y) * wb.minimum(x, y), lambda x, y: x * y),
    "max(x+z, y+z) = max(x,y) + z": (
        3,
        lambda x, y, z: wb.maximum(x + z, y + z),
        lambda x, y, z: wb.maximum(x, y) + z,
    ),
    "|xy| = |x| |y|": (2, lambda x, y: wb.abs(x * y), lambda x, y: wb.abs(x) * wb.abs(y)),
    "|x|^2 = x^2": (1, lambda x: wb.square(wb.abs(x)), lambda x: x * x),
    "sqrt(x^2) = |x|": (1, lambda x: wb.sqrt(x * x), lambda x: wb.abs(x)),
    "||x| - |y|| = max - min": (
        2,
        lambda x, y: wb.abs(wb.abs(x) - wb.abs(y)),
        lambda x, y: wb.maximum(wb.abs(x), wb.abs(y)) - wb.minimum(wb.abs(x), wb.abs(y)),
    ),
    "softmax with its maximum": (1, lambda x: wb.softmax(x), lambda x: wb.softmax(x - wb.max(x))),
    "clamp twice": (1, lambda x: wb.clamp(wb.clamp(x, -1, 2), -1, 2), lambda x: wb.clamp(x, -1, 2)),
    "clamp by max and min": (
        1,
        lambda x: wb.clamp(x, -1, 2),
        lambda x: wb.minimum(wb.maximum(x, -1), 2),
    ),
    "even exponentials": (
        1,
        lambda x: wb.exp(x) + wb.exp(-x),
        lambda x: wb.exp(wb.abs(x)) + wb.exp(-wb.abs(x)),
    ),
    "the median does not depend on the order": (3, median, lambda x, y, z: median(z, x, y)),
    "the largest square": (
        2,
        lambda x, y: wb.maximum(x * x, y * y),
        lambda x, y: wb.square(wb.maximum(wb.abs(x), wb.abs(y))),
    ),
    "exp grows": (2, lambda x, y: wb.exp(wb.maximum(x, y)), lambda x, y: wb.maximum(wb.exp(x), wb.exp(y))),
    "a positive form": (
        2,
        lambda x, y: wb.relu(x * x + y * y - x * y),
        lambda x, y: x * x + y * y - x * y,
    ),
    "a sigmoid stays between 0 and 1": (1, lambda x: wb.clamp(wb.sigmoid(x), 0, 1), lambda x: wb.sigmoid(x)),
    "e^x is above 1 + x": (1, lambda x: wb.maximum(wb.exp(x), 1 + x), lambda x: wb.exp(x)),
}

PIECEWISE_DIFFERENT: dict[str, tuple[int, Function, Function]] = {
    "relu(x+y) = relu(x) + relu(y)": (2, lambda x, y: wb.relu(x + y), lambda x, y: wb.relu(x) + wb.relu(y)),
    "relu(-2x) = -2 relu(x)": (1, lambda x: wb.relu(-2 * x), lambda x: -2 * wb.relu(x)),
    "clamp(-1,1) = clamp(-1,2)": (1, lambda x: wb.clamp(x, -1, 1), lambda x: wb.clamp(x, -1, 2)),
    "clamp to a thousand": (1, lambda x: wb.clamp(x, -1, 1000), lambda x: wb.clamp(x, -1, 1001)),
    "max = min": (2, lambda x, y: wb.maximum(x, y), lambda x, y: wb.minimum(x, y)),
    "|x+y| = |x| + |y|": (2, lambda x, y: wb.abs(x + y), lambda x, y: wb.abs(x) + wb.abs(y)),
    "max(x+y) = max x + max y": (2, lambda x, y: wb.max(x + y), lambda x, y: wb.max(x) + wb.max(y)),
    "a far cell": (  # differs only where x is between 1000 and 1000.5
        1,
        lambda x: wb.relu(x - 1000) - 2 * wb.relu(x - 1000.25) + wb.relu(x - 1000.5),
        lambda x: x * 0,
    ),
    "a cell that excludes small values": (
        2,
        lambda x, y: wb.relu(wb.minimum(x - 50, 2 * y - 3 * x)),
        lambda x, y: x * 0 + y * 0,
    ),
}
