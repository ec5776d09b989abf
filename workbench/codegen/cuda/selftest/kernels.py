"""Checks of part 3 of the device header (kernels.cuh): extents, zeroing, rounding, slices, scales, short and split operands.

Invariant: what is checked against is computed from the definition, by NumPy, not by the same steps.
"""

from __future__ import annotations

import numpy as np

from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.codegen.cuda.selftest.case import IntrinsicCase, generator, to_bf16

THREADS = 64


def cases() -> list[IntrinsicCase]:
    """Return the checks."""
    products = [
        short_operands(c_type, rows, columns)
        for c_type, rows, columns in (("f16", 3, 5), ("bf16", 7, 12), ("f16", 16, 16))
    ]
    splits = [split_product(rows, columns) for rows, columns in ((3, 5), (16, 16))]
    return [extents(), shared_tiles(), scales(), *products, *splits]


def extents() -> IntrinsicCase:
    """lesser, greater and clamped of every pair of small numbers; magnitude of every kind of float."""
    body = """
extern "C" __global__ void extents(const int* x, int* y, const float* v, float* w) {
  const int i = thread_index();
  y[3 * i] = lesser(x[2 * i], x[2 * i + 1]);
  y[3 * i + 1] = greater(x[2 * i], x[2 * i + 1]);
  y[3 * i + 2] = clamped(x[2 * i], x[2 * i + 1]);
  w[i] = magnitude(v[i]);
}
"""
    pairs = np.array([(left, full) for left in range(-3, 5) for full in range(8)], np.int32)
    numbers = generator("extents").standard_normal(THREADS).astype(np.float32)
    numbers[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, -1e-40]
    expected = np.stack([pairs.min(1), pairs.max(1), np.clip(pairs[:, 0], 0, pairs[:, 1])], axis=1).astype(np.int32)
    return IntrinsicCase(
        name="extents",
        body=body,
        launch=LaunchShape(kernel="extents", grid=(1, 1, 1), threads=THREADS),
        arguments=(pairs.ravel(), np.zeros(3 * THREADS, np.int32), numbers, np.zeros(THREADS, np.float32)),
        outputs=(1, 3),
        expected=(expected.ravel(), np.abs(numbers)),
    )


def shared_tiles() -> IntrinsicCase:
    """zero_shared clears the bytes named and no more; combine_slices adds or maximises; rounded rounds pairs."""
    body = """
extern "C" __global__ void tiles(const float* x, float* sums, float* largest, f16* half_, bf16* brain, float* same) {
  WB_DYNAMIC_SHARED(memory);
  float* const a = reinterpret_cast<float*>(memory);
  float* const b = a + 3 * 4 * 8;
  for (int i = thread_index(); i < 3 * 4 * 8; i += 64) a[i] = b[i] = x[i];
  block_barrier();
  combine_slices<64, 3, 4, 6, 8>(a);
  combine_slices<64, 3, 4, 6, 8, true>(b);
  block_barrier();
  if (thread_index() < 32) { sums[thread_index()] = a[thread_index()]; largest[thread_index()] = b[thread_index()]; }
  block_barrier();
  zero_shared<64>(a, 4 * 8 * 4);
  block_barrier();
  for (int i = thread_index(); i < 3 * 4 * 8; i += 64) same[i] = a[i];
  Vec<float, 4> four;
  for (int i = 0; i < 4; i++) four.value[i] = x[thread_index() % 24 * 4 + i];
  if (thread_index() < 24) {
    register_to_global(half_ + 4 * thread_index(), rounded<f16>(four));
    register_to_global(brain + 4 * thread_index(), rounded<bf16>(four));
  }
}
"""
    x = generator("tiles").standard_normal(96).astype(np.float32)
    slices = x.reshape(3, 4, 8)
    sums, largest = slices[0].copy(), slices[0].copy()
    sums[:, :6] = (slices[0] + slices[1] + slices[2])[:, :6]
    largest[:, :6] = slices.max(axis=0)[:, :6]
    left = slices.copy()
    left[0] = 0
    return IntrinsicCase(
        name="shared tiles of kernels",
        body=body,
        launch=LaunchShape(kernel="tiles", grid=(1, 1, 1), threads=THREADS, shared_bytes=2 * 96 * 4),
        arguments=(
            x, np.zeros(32, np.float32), np.zeros(32, np.float32), np.zeros(96, np.float16), np.zeros(96, np.uint16),
            np.zeros(96, np.float32),
        ),
        outputs=(1, 2, 3, 4, 5),
        expected=(sums.ravel(), largest.ravel(), x.astype(np.float16), to_bf16(x), left.ravel()),
    )  # fmt: skip


def scales() -> IntrinsicCase:
    """The power of two that brings a row's largest element into [2^13, 2^14); quotients of such powers."""
    body = """
extern "C" __global__ void scales(const float* x, float* scale, float* next, float* shrink) {
  const int i = thread_index();
  scale[i] = lesser_scale(largest_scale(), x[i]);
  next[i] = lesser_scale(scale[i], x[63 - i]);
  shrink[i] = shrinkage(next[i], scale[i]);
}
"""
    x = np.exp(generator("scales").uniform(-60, 60, THREADS)).astype(np.float32)
    x[:4] = [0.0, 2.0**-120, 2.0**120, 1.0]
    _, exponent = np.frexp(x.astype(np.float64))  # x = m 2^e with m in [1/2, 1)
    wanted = np.where(x == 0, 127, np.minimum(14 - exponent, 127)).astype(np.float64)
    following = np.minimum(wanted, wanted[::-1])
    shrink = np.where(wanted - following > 126, 0.0, 2.0 ** (following - wanted))
    zeros = np.zeros(THREADS, np.float32)
    return IntrinsicCase(
        name="scales",
        body=body,
        launch=LaunchShape(kernel="scales", grid=(1, 1, 1), threads=THREADS),
        arguments=(x, zeros, zeros.copy(), zeros.copy()),
        outputs=(1, 2, 3),
        expected=tuple(a.astype(np.float32) for a in (2.0**wanted, 2.0**following, shrink)),
    )


def short_operands(c_type: str, rows: int, columns: int) -> IntrinsicCase:
    """A product of tiles with fewer rows than tensor cores read, the second of two matrices of each tile."""
    padded_a, padded_b = -(-rows // 8) * 8, -(-columns // 8) * 8
    body = f"""
extern "C" __global__ void short_{c_type}(const {c_type}* a, const {c_type}* b, float* d) {{
  WB_DYNAMIC_SHARED(memory);
  const SharedTile<{c_type}, {2 * padded_a}, 32> left(memory);
  const SharedTile<{c_type}, {2 * padded_b}, 32> right(memory + {2 * padded_a * 64});
  for (int i = thread_index(); i < {rows * 32}; i += 32) *left.at({padded_a} + i / 32, i % 32) = a[i];
  for (int i = thread_index(); i < {columns * 32}; i += 32) *right.at({padded_b} + i / 32, i % 32) = b[i];
  block_barrier();
  float sum[2][4] = {{}}, single[4] = {{}};
  for (int k = 0; k < 32; k += 16) {{
    u32 fa[4], fb[4], fc[2];
    load_a_rows<{rows}>(fa, left, {padded_a}, 0, k);
    load_b_pair_rows<{columns}>(fb, right, {padded_b}, k, 0);
    load_b_rows<{columns}>(fc, right, {padded_b}, k, 0);
    mma<{c_type}>(sum[0], fa, fb);
    mma<{c_type}>(sum[1], fa, fb + 2);
    mma<{c_type}>(single, fa, fc);
  }}
  for (int n = 0; n < 3; n++)
    for (int i = 0; i < 4; i++) {{
      const int row = mma_row(i), col = mma_col(i) + (n == 1 ? 8 : 0);
      float* const place = d + (n == 2 ? {rows * columns} : 0) + row * {columns} + col;
      if (row < {rows} && col < {columns}) *place = n == 2 ? single[i] : sum[n][i];
    }}
}}
"""
    rng = generator(f"short {c_type} {rows}")
    a, b = (rng.integers(-4, 5, (extent, 32)).astype(np.float32) for extent in (rows, columns))
    stored = [to_bf16(x) if c_type == "bf16" else x.astype(np.float16) for x in (a, b)]
    product = a @ b.T
    alone = np.where(np.arange(columns) < 8, product, 0.0)
    return IntrinsicCase(
        name=f"short operands {c_type} {rows}x{columns}",
        body=body,
        launch=LaunchShape(
            kernel=f"short_{c_type}", grid=(1, 1, 1), threads=32, shared_bytes=2 * 64 * (padded_a + padded_b)
        ),
        arguments=(stored[0].ravel(), stored[1].ravel(), np.zeros(2 * rows * columns, np.float32)),
        outputs=(2,),
        keep=frozenset({2}),
        expected=(np.concatenate([product.ravel(), alone.ravel()]).astype(np.float32),),
    )


def split_product(rows: int, columns: int) -> IntrinsicCase:
    """A float32 product by three tf32 products, of operands kept either way, pairs and single fragments."""
    body = f"""
extern "C" __global__ void split(const float* a, const float* b, float* d) {{
  WB_DYNAMIC_SHARED(memory);
  const SharedTile<float, {rows}, 16> by_rows(memory);
  const SharedTile<float, 16, 16> by_depth(memory + 1024);
  const SharedTile<float, {columns}, 16> right_rows(memory + 2048);
  const SharedTile<float, 16, 16> right_depth(memory + 3072);
  for (int i = thread_index(); i < 256; i += 32) {{
    const int row = i / 16, k = i % 16;
    if (row < {rows}) *by_rows.at(row, k) = a[row * 16 + k];
    *by_depth.at(k, row) = row < {rows} ? a[row * 16 + k] : 0.0f;
    if (row < {columns}) *right_rows.at(row, k) = b[row * 16 + k];
    *right_depth.at(k, row) = row < {columns} ? b[row * 16 + k] : 0.0f;
  }}
  block_barrier();
  float sum[3][4] = {{}};
  for (int k = 0; k < 16; k += 8) {{
    u32 h[4], l[4], g[4], f[4];
    load_a_split<false, {rows}>(h, l, by_rows, 0, 0, k);
    load_b_pair_split<true, {columns}>(g, f, right_rows, 0, k, 0);
    mma_split<true, true>(sum[0], h, l, g, f);
    mma_split<true, true>(sum[1], h, l, g + 2, f + 2);
    load_a_split<true>(h, l, by_depth, 0, 0, k);
    load_b_split<false>(g, f, right_depth, 0, k, 0);
    mma_split<true, true>(sum[2], h, l, g, f);
  }}
  u32 high, low;
  split_element(high, low, by_rows, 0, 3);
  if (thread_index() == 0) d[{2 * rows * columns}] = bits_to_f32(high) + bits_to_f32(low);
  for (int n = 0; n < 3; n++)
    for (int i = 0; i < 4; i++) {{
      const int row = mma_row(i), col = mma_col(i) + (n == 1 ? 8 : 0);
      if (row < {rows} && col < {columns}) d[(n == 2 ? {rows * columns} : 0) + row * {columns} + col] = sum[n][i];
    }}
}}
"""
    rng = generator(f"split {rows}")
    a, b = (rng.standard_normal((extent, 16)).astype(np.float32) for extent in (rows, columns))
    product = a.astype(np.float64) @ b.astype(np.float64).T
    alone = np.where(np.arange(columns) < 8, product, 0.0)
    return IntrinsicCase(
        name=f"split operands {rows}x{columns}",
        body=body,
        launch=LaunchShape(kernel="split", grid=(1, 1, 1), threads=32, shared_bytes=4096),
        arguments=(a.ravel(), b.ravel(), np.zeros(2 * rows * columns + 1, np.float32)),
        outputs=(2,),
        keep=frozenset({2}),
        expected=(np.concatenate([product.ravel(), alone.ravel(), a[0, 3:4]]).astype(np.float32),),
        tolerance=2e-6,
    )
