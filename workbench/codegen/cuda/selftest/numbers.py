"""Checks of scalar intrinsics: conversions bit by bit, functions against float64, predicates on NaN."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.codegen.cuda.selftest.case import Array, IntrinsicCase, from_bf16, generator, to_bf16, to_tf32

CONVERT = """
extern "C" __global__ void __launch_bounds__(128) convert(const f16* half, const bf16* brain, const float* x, float* from_half,
    float* from_brain, f16* to_half, bf16* to_brain, u32* tf32, u32* packed, float* unpacked, int n) {
  for (int i = blockIdx.x * 128 + thread_index(); i < n; i += gridDim.x * 128) {
    from_half[i] = to_f32(half[i]);
    from_brain[i] = to_f32(brain[i]);
    to_half[i] = from_f32<f16>(to_f32(x[i]));
    to_brain[i] = from_f32<bf16>(from_f32<float>(x[i]));
    tf32[i] = wb::to_tf32(x[i]) & 0xffffe000u;  // what the tensor core reads
    packed[2 * i] = pack2<f16>(x[i], bits_to_f32(f32_to_bits(x[i]) ^ 0x80000000u));
    packed[2 * i + 1] = pack2<bf16>(x[i], -1.0f);
    unpack2<f16>((u32)half[i].bits | 0x3c000000u, unpacked[4 * i], unpacked[4 * i + 1]);
    unpack2<bf16>((u32)brain[i].bits | 0xbf800000u, unpacked[4 * i + 2], unpacked[4 * i + 3]);
  }
}
"""


def awkward_floats(n: int) -> Array:
    """Return n float32 of all magnitudes: random bits, ties of every rounding, subnormals, infinities, no NaN payloads."""
    rng = generator("awkward")
    bits = rng.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32)
    bits[: n // 4] &= np.uint32(0xFFFFF000)  # ties for fp16 and tf32
    bits[n // 4 : n // 2] &= np.uint32(0xFFFF8000)  # ties for bf16
    x = bits.view(np.float32)
    x[n // 2 : 3 * n // 4] = rng.standard_normal(n // 4).astype(np.float32) * 2.0 ** rng.integers(-28, 18, n // 4)
    x[-8:] = [65504.0, 65519.99, 65520.0, -65536.0, np.inf, -np.inf, 0.0, -0.0]
    x[np.isnan(x)] = 1.5
    return x


def conversion_case() -> IntrinsicCase:
    """All 65,536 values of fp16 and bf16 to float, and awkward floats to fp16, bf16, tf32."""
    n = 65536
    half_bits = np.arange(n, dtype=np.uint16)
    x = awkward_floats(n)
    with np.errstate(over="ignore"):
        half, negative = x.astype(np.float16), (-x).astype(np.float16)
    halves, brains = half_bits.view(np.float16).astype(np.float32), from_bf16(half_bits)
    pairs = np.stack(
        [
            half.view(np.uint16).astype(np.uint32) | negative.view(np.uint16).astype(np.uint32) << 16,
            to_bf16(x).astype(np.uint32) | np.uint32(0xBF800000),
        ],
        axis=1,
    )
    ones = np.ones(n, np.float32)
    unpacked = np.stack([halves, ones, brains, -ones], axis=1)
    outputs = (halves, brains, half, to_bf16(x), to_tf32(x).view(np.uint32), pairs, unpacked)
    infinite = ~np.isfinite(x)
    outputs[4][infinite] = x.view(np.uint32)[infinite]
    return IntrinsicCase(
        name="conversions",
        body=CONVERT,
        launch=LaunchShape(kernel="convert", grid=(4, 1, 1), threads=128),
        arguments=(half_bits.view(np.float16), half_bits, x, *(np.empty_like(a) for a in outputs), np.int32(n)),
        outputs=tuple(range(3, 10)),
        expected=outputs,
    )


FUNCTION = """
extern "C" __global__ void __launch_bounds__(128) function(const float* x, float* fast, float* precise, int n) {{
  const int i = blockIdx.x * 128 + thread_index();
  if (i >= n) return;
  fast[i] = {fast};
  precise[i] = {precise};
}}
"""
N = 2048
erf = np.vectorize(math.erf, otypes=[np.float64])
# name: fast expression, precise expression, float64 meaning, range, tolerance of the largest value
Function = tuple[str, str, Callable[[Array], Array], float, float, float]
FUNCTIONS: dict[str, Function] = {
    "exp": ("fast_exp(x[i])", "precise_exp(x[i])", np.exp, -8.0, 3.0, 1e-6),
    "exp2": ("fast_exp2(x[i])", "precise_pow(2.0f, x[i])", np.exp2, -8.0, 3.0, 1e-6),
    "log": ("fast_log(x[i])", "precise_log(x[i])", np.log, 1e-3, 50.0, 1e-6),
    "rsqrt": ("fast_rsqrt(x[i])", "precise_rsqrt(x[i])", lambda x: 1 / np.sqrt(x), 1e-2, 1e2, 1e-6),
    "sqrt": ("fast_sqrt(x[i])", "precise_sqrt(x[i])", np.sqrt, 1e-2, 1e2, 1e-6),
    "reciprocal": ("fast_reciprocal(x[i])", "1.0f / x[i]", lambda x: 1 / x, 1e-2, 1e2, 1e-6),
    "tanh": ("fast_tanh(x[i])", "precise_tanh(x[i])", np.tanh, -6.0, 6.0, 1e-3),
    "erf": ("fast_erf(x[i])", "precise_erf(x[i])", erf, -4.0, 4.0, 1e-6),
    "sigmoid": ("fast_sigmoid(x[i])", "precise_sigmoid(x[i])", lambda x: 1 / (1 + np.exp(-x)), -20.0, 20.0, 1e-6),
    "silu": ("fast_silu(x[i])", "precise_silu(x[i])", lambda x: x / (1 + np.exp(-x)), -20.0, 20.0, 1e-6),
    "gelu": ("fast_gelu(x[i])", "precise_gelu(x[i])", lambda x: x * (1 + erf(x / math.sqrt(2))) / 2, -6.0, 6.0, 1e-6),
    "maximum": ("maximum(x[i], 0.25f)", "maximum(0.25f, x[i])", lambda x: np.maximum(x, 0.25), -1.0, 1.0, 0.0),
    "minimum": (
        "minimum(x[i], 0.25f)",
        "minimum(0.25f, minimum(infinity(), x[i]))",
        lambda x: np.minimum(x, 0.25),
        -1.0,
        1.0,
        0.0,
    ),
}


def function_case(name: str) -> IntrinsicCase:
    """One function, fast and precise, over its range (NaN among the arguments)."""
    fast, precise, meaning, low, high, tolerance = FUNCTIONS[name]
    x = generator(name).uniform(low, high, N).astype(np.float32)
    x[:4] = [low, high, (low + high) / 2, np.nan]
    want = meaning(x.astype(np.float64))
    return IntrinsicCase(
        name=name,
        body=FUNCTION.format(fast=fast, precise=precise),
        launch=LaunchShape(kernel="function", grid=(N // 128, 1, 1), threads=128),
        arguments=(x, np.empty_like(x), np.empty_like(x), np.int32(N)),
        outputs=(1, 2),
        expected=(want, want),
        tolerance=tolerance,
    )


def cases() -> list[IntrinsicCase]:
    """Return the checks of this file."""
    return [conversion_case(), *(function_case(name) for name in FUNCTIONS)]
