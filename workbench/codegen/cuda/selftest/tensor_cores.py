"""Checks of the tensor-core intrinsics: fragment layouts element by element, products against float64."""

from __future__ import annotations

import numpy as np

from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.codegen.cuda.selftest.case import Array, IntrinsicCase, from_bf16, generator, to_bf16, to_tf32

LDMATRIX = """
extern "C" __global__ void __launch_bounds__(32) matrices(const u16* from, u32* to) {
  WB_DYNAMIC_SHARED(memory);
  u16* s = reinterpret_cast<u16*>(memory);
  const int l = lane_index();
  for (int i = l; i < 256; i += 32) s[i] = from[i];
  block_barrier();
  u32 r[14];
  ldmatrix_x1(r, s + 8 * (l % 8));
  ldmatrix_x2(r + 1, s + 8 * (l % 16));
  ldmatrix_x4(r + 3, s + 8 * l);
  ldmatrix_x1_transposed(r + 7, s + 8 * (l % 8));
  ldmatrix_x2_transposed(r + 8, s + 8 * (l % 16));
  ldmatrix_x4_transposed(r + 10, s + 8 * l);
  for (int i = 0; i < 14; i++) to[i * 32 + l] = r[i];
}
"""
MMA = """
template <class T> WB_DEVICE u32 pair(const T* p, int step) {{
  if constexpr (sizeof(T) == 4) return wb::to_tf32(*p);
  else return (u32)p[0].bits | (u32)p[step].bits << 16;
}}
extern "C" __global__ void __launch_bounds__(32) product(const {T}* a, const {T}* b, const float* start, float* d) {{
  constexpr int K = MMA_K<{T}>, HALF = K / 2, E = 4 / sizeof({T});  // E: elements of a register
  const int g = lane_index() / 4, t = lane_index() % 4 * E;
  u32 fa[4], fb[2];
  for (int i = 0; i < 4; i++) fa[i] = pair(a + (g + 8 * (i % 2)) * K + t + HALF * (i / 2), 1);
  for (int i = 0; i < 2; i++) fb[i] = pair(b + (t + HALF * i) * 8 + g, 8);
  float acc[4];
  for (int i = 0; i < 4; i++) acc[i] = start[mma_row(i) * 8 + mma_col(i)];
  {mma}(acc, fa, fb);
  for (int i = 0; i < 4; i++) d[mma_row(i) * 8 + mma_col(i)] = acc[i];
}}
"""
# One warp, M = 16, N = 16, two steps of K, operands kept as they are (a: [m][k], b: [k][n]) and transposed.
FRAGMENTS = """
extern "C" __global__ void __launch_bounds__(32) fragments(const {T}* a, const {T}* b, float* d, {T}* rounded) {{
  constexpr int K = MMA_K<{T}>;
  WB_DYNAMIC_SHARED(memory);
  SharedTile<{T}, 16, 2 * K> a_rows(memory);
  SharedTile<{T}, 2 * K, 16> a_cols(memory + 1024);
  SharedTile<{T}, 2 * K, 16> b_rows(memory + 2048);
  SharedTile<{T}, 16, 2 * K> b_cols(memory + 3072);
  global_to_shared_tile<32>(a_rows, a, 2 * K, 1, 16, 2 * K);
  global_to_shared_tile<32>(a_cols, a, 1, 2 * K, 2 * K, 16);
  global_to_shared_tile<32>(b_rows, b, 16, 1, 2 * K, 16);
  global_to_shared_tile<32>(b_cols, b, 1, 16, 16, 2 * K);
  block_barrier();
  float acc[4][2][4] = {{}};
  for (int k = 0; k < 2 * K; k += K) {{
    u32 fa[4], fb[4];
    load_a(fa, a_rows, 0, k);
    load_b_pair(fb, b_rows, k, 0);
    mma<{T}>(acc[0][0], fa, fb);
    mma<{T}>(acc[0][1], fa, fb + 2);
    load_a_transposed(fa, a_cols, 0, k);
    load_b_pair_transposed(fb, b_cols, k, 0);
    mma<{T}>(acc[1][0], fa, fb);
    mma<{T}>(acc[1][1], fa, fb + 2);
    for (int n = 0; n < 2; n++) {{
      load_b(fb, b_rows, k, 8 * n);
      mma<{T}>(acc[2][n], fa, fb);
      load_b_transposed(fb, b_cols, k, 8 * n);
      mma<{T}>(acc[3][n], fa, fb);
    }}
  }}
  for (int way = 0; way < 4; way++)
    for (int n = 0; n < 2; n++)
      for (int i = 0; i < 4; i++) d[(way * 16 + mma_row(i)) * 16 + 8 * n + mma_col(i)] = acc[way][n][i];
  block_barrier();
  SharedTile<{T}, 16, 16> narrow(memory);
  SharedTile<float, 16, 16> wide(memory + 1024);
  for (int n = 0; n < 2; n++) {{
    store_d(narrow, 0, 8 * n, acc[0][n]);
    store_d(wide, 0, 8 * n, acc[1][n]);
  }}
  block_barrier();
  shared_to_global_tile<32, 4>(narrow, rounded, 16, 16, 16);
  shared_to_global_tile<32, 4>(wide, d + 1024, 16, 16, 16);
}}
"""
# (A B) C with the first product staying in registers.
CHAIN = """
extern "C" __global__ void __launch_bounds__(32) chain(const {T}* a, const {T}* b, const {T}* c, float* d) {{
  WB_DYNAMIC_SHARED(memory);
  SharedTile<{T}, 16, 16> at(memory), bt(memory + 512), ct(memory + 1024);
  global_to_shared_tile_async<32>(at, a, 16);
  global_to_shared_tile_async<32>(bt, b, 16);
  global_to_shared_tile_async<32>(ct, c, 16);
  cp_async_commit();
  cp_async_wait<0>();
  block_barrier();
  u32 fa[4], fb[4];
  float first[2][4] = {{}}, second[2][4] = {{}};
  load_a(fa, at, 0, 0);
  load_b_pair(fb, bt, 0, 0);
  for (int n = 0; n < 2; n++) mma<{T}>(first[n], fa, fb + 2 * n);
  accumulators_to_a<{T}>(fa, first[0], first[1]);
  load_b_pair(fb, ct, 0, 0);
  for (int n = 0; n < 2; n++) mma<{T}>(second[n], fa, fb + 2 * n);
  for (int n = 0; n < 2; n++)
    for (int i = 0; i < 4; i++) d[mma_row(i) * 16 + 8 * n + mma_col(i)] = second[n][i];
}}
"""
# Four warps together: 64 x 32 by 32 x N, the left factor in registers, the right one in a swizzled tile.
WARPGROUP = """
extern "C" __global__ void __launch_bounds__(128) together(const {T}* a, const {T}* b, float* d) {{
  WB_DYNAMIC_SHARED(memory);
  SharedTile<{T}, 64, 32> at(memory);
  SharedTile<{T}, 32, {N}> bt(memory + 4096);
  global_to_shared_tile_async<128>(at, a, 32);
  global_to_shared_tile_async<128>(bt, b, {N});
  cp_async_commit();
  cp_async_wait<0>();
  shared_to_warpgroup_fence();
  block_barrier();
  u32 fa[2][4];
  float acc[{N} / 8][4] = {{}};
  for (int i = 0; i < 2; i++) load_a(fa[i], at, 16 * warp_index(), 16 * i);
  warpgroup_begin();
  for (int i = 0; i < 2; i++) warpgroup_mma<{N} / 8>(acc, fa[i], bt, 16 * i);
  warpgroup_arrive();
  warpgroup_end<{N} / 2>(&acc[0][0]);
  for (int n = 0; n < {N} / 8; n++)
    for (int i = 0; i < 4; i++) d[(16 * warp_index() + mma_row(i)) * {N} + 8 * n + mma_col(i)] = acc[n][i];
}}
"""
# A tile of 64 x 64 a block of 4 warps, depth by 32 through three stages, ragged edges predicated.
MATMUL = """
extern "C" __global__ void __launch_bounds__(128) matmul(const {T}* __restrict__ a, const {T}* __restrict__ b,
    float* __restrict__ c, int m, int n, int k) {{
  constexpr int BK = 32, STAGES = 3, STAGE = 2 * 64 * BK * sizeof({T});
  typedef SharedTile<{T}, 64, BK> TileA;
  typedef SharedTile<{T}, BK, 64> TileB;
  WB_DYNAMIC_SHARED(memory);
  const int m0 = blockIdx.y * 64, n0 = blockIdx.x * 64, steps = (k + BK - 1) / BK;
  auto load = [&](int step) {{
    unsigned char* s = memory + step % STAGES * STAGE;
    if (step < steps) {{
      global_to_shared_tile_async<128>(TileA(s), a + (i64)m0 * k + step * BK, k, m - m0, k - step * BK);
      global_to_shared_tile_async<128>(TileB(s + TileA::BYTES), b + (i64)step * BK * n + n0, n, k - step * BK, n - n0);
    }}
    cp_async_commit();
  }};
  for (int step = 0; step < STAGES - 1; step++) load(step);
  float acc[8][4] = {{}};
  for (int step = 0; step < steps; step++) {{
    cp_async_wait<STAGES - 2>();
    block_barrier();
    load(step + STAGES - 1);
    unsigned char* s = memory + step % STAGES * STAGE;
    TileA ta(s);
    TileB tb(s + TileA::BYTES);
#pragma unroll
    for (int kk = 0; kk < BK; kk += MMA_K<{T}>) {{
      u32 fa[4];
      load_a(fa, ta, warp_index() * 16, kk);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {{
        u32 fb[4];
        load_b_pair(fb, tb, kk, 8 * j);
        mma<{T}>(acc[j], fa, fb);
        mma<{T}>(acc[j + 1], fa, fb + 2);
      }}
    }}
  }}
#pragma unroll
  for (int j = 0; j < 8; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) {{
      const int row = m0 + warp_index() * 16 + mma_row(i), col = n0 + 8 * j + mma_col(i);
      if (row < m && col < n) c[(i64)row * n + col] = acc[j][i];
    }}
}}
"""
TYPES = {"f16": "mma_m16n8k16_f16", "bf16": "mma_m16n8k16_bf16", "float": "mma_m16n8k8_tf32"}


def operand(name: str, kind: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return a random operand as the kernel takes it, and the float64 values the tensor core sees."""
    x = generator(name).standard_normal(shape).astype(np.float32)
    if kind == "f16":
        half = x.astype(np.float16)
        return half, half.astype(np.float64)
    if kind == "bf16":
        bits = to_bf16(x)
        return bits, from_bf16(bits).astype(np.float64)
    return x, to_tf32(x).astype(np.float64)


def ldmatrix_case() -> IntrinsicCase:
    """Four 8 x 8 matrices of counting numbers, every form of ldmatrix."""
    x = np.arange(256, dtype=np.uint16).reshape(4, 8, 8) * 7
    lane = np.arange(32)
    g, t = lane // 4, lane % 4 * 2
    plain = [x[m][g, t].astype(np.uint32) | x[m][g, t + 1].astype(np.uint32) << 16 for m in range(4)]
    turned = [x[m][t, g].astype(np.uint32) | x[m][t + 1, g].astype(np.uint32) << 16 for m in range(4)]
    rows = [plain[:1], plain[:2], plain, turned[:1], turned[:2], turned]
    return IntrinsicCase(
        name="ldmatrix",
        body=LDMATRIX,
        launch=LaunchShape(kernel="matrices", grid=(1, 1, 1), threads=32, shared_bytes=512),
        arguments=(x, np.empty((14, 32), np.uint32)),
        outputs=(1,),
        expected=(np.array([row for part in rows for row in part]),),
    )


def mma_case(kind: str) -> IntrinsicCase:
    """One mma on fragments built by hand from the PTX ISA's layout; the accumulator starts with numbers."""
    k = 8 if kind == "float" else 16
    a, exact_a = operand(f"mma a {kind}", kind, (16, k))
    b, exact_b = operand(f"mma b {kind}", kind, (k, 8))
    start = generator("mma d").standard_normal((16, 8)).astype(np.float32)
    return IntrinsicCase(
        name=f"mma {kind}",
        body=MMA.format(T=kind, mma=TYPES[kind]),
        launch=LaunchShape(kernel="product", grid=(1, 1, 1), threads=32),
        arguments=(a, b, start, np.empty((16, 8), np.float32)),
        outputs=(3,),
        expected=(exact_a @ exact_b + start,),
        tolerance=2e-6,
    )


def fragment_case(kind: str) -> IntrinsicCase:
    """Every loader of fragments, operands kept row by row and transposed: four ways to the same product."""
    depth = 16 if kind == "float" else 32
    a, exact_a = operand(f"fragment a {kind}", kind, (16, depth))
    b, exact_b = operand(f"fragment b {kind}", kind, (depth, 16))
    product = exact_a @ exact_b
    rounded = to_bf16(product) if kind == "bf16" else product.astype(a.dtype)
    return IntrinsicCase(
        name=f"fragments {kind}",
        body=FRAGMENTS.format(T=kind),
        launch=LaunchShape(kernel="fragments", grid=(1, 1, 1), threads=32, shared_bytes=4096),
        arguments=(a, b, np.empty((5, 16, 16), np.float32), np.empty((16, 16), a.dtype)),
        outputs=(2, 3),
        expected=(np.broadcast_to(product, (5, 16, 16)), rounded),
        tolerance=2e-6,
    )


def chain_case(kind: str) -> IntrinsicCase:
    """Two products, the first one's result rounded to the operand type in registers."""
    (a, exact_a), (b, exact_b), (c, exact_c) = (operand(f"chain {i} {kind}", kind, (16, 16)) for i in "abc")
    first = exact_a @ exact_b
    rounded = first.astype(np.float16) if kind == "f16" else from_bf16(to_bf16(first))
    return IntrinsicCase(
        name=f"chained products {kind}",
        body=CHAIN.format(T=kind),
        launch=LaunchShape(kernel="chain", grid=(1, 1, 1), threads=32, shared_bytes=1536),
        arguments=(a, b, c, np.empty((16, 16), np.float32)),
        outputs=(3,),
        expected=(rounded.astype(np.float64) @ exact_c,),
        tolerance=1e-3 if kind == "f16" else 8e-3,  # a sum that lies on a rounding edge may round the other way
    )


def warpgroup_case(kind: str, n: int) -> IntrinsicCase:
    """A product that four warps do together; a tile of the right factor in each of the swizzles."""
    a, exact_a = operand(f"warpgroup a {kind}", kind, (64, 32))
    b, exact_b = operand(f"warpgroup b {kind} {n}", kind, (32, n))
    return IntrinsicCase(
        name=f"warpgroup {kind} {n} columns",
        body=WARPGROUP.format(T=kind, N=n),
        launch=LaunchShape(kernel="together", grid=(1, 1, 1), threads=128, shared_bytes=4096 + 64 * n),
        arguments=(a, b, np.empty((64, n), np.float32)),
        outputs=(2,),
        expected=(exact_a @ exact_b,),
        tolerance=2e-6,
    )


def matmul_case(kind: str, m: int, n: int, k: int) -> IntrinsicCase:
    """A pipelined, swizzled, predicated product. n and k: multiples of 16 bytes."""
    a, exact_a = operand(f"matmul a {kind}", kind, (m, k))
    b, exact_b = operand(f"matmul b {kind}", kind, (k, n))
    stage = 2 * 64 * 32 * a.itemsize
    return IntrinsicCase(
        name=f"matmul {kind} {m}x{n}x{k}",
        body=MATMUL.format(T=kind),
        launch=LaunchShape(kernel="matmul", grid=(-(-n // 64), -(-m // 64), 1), threads=128, shared_bytes=3 * stage),
        arguments=(a, b, np.empty((m, n), np.float32), np.int32(m), np.int32(n), np.int32(k)),
        outputs=(2,),
        expected=(exact_a @ exact_b,),
        tolerance=4e-6,
    )


def cases() -> list[IntrinsicCase]:
    """Return the checks of this file."""
    return [
        ldmatrix_case(),
        *(mma_case(kind) for kind in TYPES),
        *(fragment_case(kind) for kind in TYPES),
        *(chain_case(kind) for kind in ("f16", "bf16")),
        *(warpgroup_case(kind, n) for kind in ("f16", "bf16") for n in (16, 32, 64)),
        matmul_case("f16", 100, 136, 200),
        matmul_case("bf16", 64, 72, 96),
        matmul_case("float", 70, 68, 100),
    ]
