"""Checks of memory moves: vectors, edges, asynchronous copies, tiles, bulk copies."""

from __future__ import annotations

import numpy as np

from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.codegen.cuda.selftest.case import Array, IntrinsicCase, generator

VECTORS = """
template <class T, int N, Cache LOAD, Cache STORE> WB_DEVICE void move(const T* from, T* to, int count) {
  for (int i = thread_index() * N; i < count; i += 64 * N) register_to_global<STORE>(to + i, global_to_register<N, LOAD>(from + i));
}
extern "C" __global__ void __launch_bounds__(64) vectors(const f16* from, f16* to, int count) {
  const float* numbers = reinterpret_cast<const float*>(from);
  prefetch_to_l2(from);
  move<f16, 8, Cache::plain, Cache::plain>(from, to, count);
  move<f16, 8, Cache::read_only, Cache::streaming>(from, to + count, count);
  move<f16, 8, Cache::streaming, Cache::plain>(from, to + 2 * count, count);
  move<f16, 16, Cache::plain, Cache::streaming>(from, to + 3 * count, count);
  move<f16, 4, Cache::plain, Cache::streaming>(from, to + 4 * count, count);
  move<f16, 4, Cache::read_only, Cache::plain>(from, to + 5 * count, count);
  move<f16, 2, Cache::plain, Cache::plain>(from, to + 6 * count, count);
  move<f16, 2, Cache::streaming, Cache::streaming>(from, to + 7 * count, count);
  move<float, 4, Cache::streaming, Cache::streaming>(numbers, reinterpret_cast<float*>(to + 8 * count), count / 2);
  move<float, 1, Cache::read_only, Cache::plain>(numbers, reinterpret_cast<float*>(to + 9 * count), count / 2);
}
"""
EDGES = """
extern "C" __global__ void __launch_bounds__(32) edges(const f16* from, f16* to, float* wide, const f16* odd) {
  const int count = lane_index() % 10 - 1;  // -1 .. 8: none, some, all
  const Vec<f16, 8> v = global_to_register_edge<8>(odd + 8 * lane_index(), count);
  const Vec<float, 8> x = wb::to_f32(v);
  register_to_global(wide + 8 * lane_index(), x);
  Vec<float, 8> y;
  for (int i = 0; i < 8; i++) y.value[i] = 2.0f * x.value[i] + 1.0f;
  register_to_global(to + 8 * lane_index(), global_to_register<8>(from + 8 * lane_index()));
  register_to_global_edge(to + 8 * lane_index(), wb::from_f32<f16>(y), count);
}
"""
SHARED = """
extern "C" __global__ void __launch_bounds__(64) shared(const float* from, float* to) {
  WB_DYNAMIC_SHARED(memory);
  float* s = reinterpret_cast<float*>(memory);
  const int t = thread_index();
  register_to_shared(s + 4 * t, global_to_register<4>(from + 4 * t));
  block_barrier();
  register_to_global(to + 4 * t, shared_to_register<4>(s + 4 * (63 - t)));
  if (t < 32) {  // one warp hands over without the block
    warp_barrier();
    s[256 + t] = (float)(t * t);
    warp_barrier();
    to[256 + t] = s[256 + (t ^ 5)];
  }
}
"""
ASYNC = """
extern "C" __global__ void __launch_bounds__(32) async(const float* from, float* to) {
  WB_DYNAMIC_SHARED(memory);
  float* s = reinterpret_cast<float*>(memory);
  const int l = lane_index();
  cp_async<16>(s + 4 * l, from + 4 * l);
  cp_async_commit();
  cp_async<8>(s + 128 + 2 * l, from + 2 * l + 2);
  cp_async<4>(s + 192 + l, from + l + 1);
  cp_async_commit();
  cp_async_zero_fill<16>(s + 224 + 4 * l, from + 4 * l, l % 5 * 4);
  cp_async_zero_fill<8>(s + 352 + 2 * l, from + 2 * l, l % 3 * 4);
  cp_async_zero_fill<4>(s + 416 + l, from + l, l % 2 * 4);
  cp_async_policy(s + 448 + 4 * l, from + 4 * l, 16, l % 2 ? l2_evict_last() : l2_evict_first());
  cp_async_commit();
  cp_async_wait<2>();
  const float early = s[4 * l + 3];  // the oldest group alone
  cp_async_wait<0>();
  warp_barrier();
  for (int i = l; i < 576; i += 32) to[i] = s[i];
  to[576 + l] = early;
}
"""
TILE = """
extern "C" __global__ void __launch_bounds__(96) tile(const f16* from, f16* full, f16* ragged, f16* turned, f16* single) {
  WB_DYNAMIC_SHARED(memory);
  SharedTile<f16, 24, 96> a(memory);
  SharedTile<f16, 24, 96, false, 104> b(memory + decltype(a)::BYTES);
  global_to_shared_tile_async<96>(a, from, 96);
  global_to_shared_tile_async<96>(b, from, 96, 17, 72);
  cp_async_commit();
  cp_async_wait<0>();
  block_barrier();
  shared_to_global_tile<96, 8>(a, full, 96, 24, 96);
  shared_to_global_tile<96, 8>(b, ragged, 96, 24, 96);
  block_barrier();
  SharedTile<f16, 96, 24> c(memory);
  global_to_shared_tile<96>(c, from, 1, 96, 96, 23);
  block_barrier();
  shared_to_global_tile<96, 1>(c, turned, 24, 95, 24);
  for (int i = thread_index(); i < 24 * 96; i += 96) single[i] = *c.at(i % 96, i / 96);
}
"""
BULK = """
extern "C" __global__ void __launch_bounds__(160) ring(const float* from, float* to, int count) {
  WB_DYNAMIC_SHARED(memory);
  float* stage = reinterpret_cast<float*>(memory);
  Barrier* full = reinterpret_cast<Barrier*>(memory + 3 * 2048);
  Barrier* empty = full + 3;
  const int t = thread_index();
  if (t == 0) {
    for (int i = 0; i < 3; i++) { barrier_init(full + i, 1); barrier_init(empty + i, 128); }
    barrier_init_fence();
  }
  block_barrier();
  if (warp_index() == 4) {  // the producer
    if (lane_index() == 0)
      for (int i = 0; i < count; i++) {
        barrier_wait(empty + i % 3, (i / 3 & 1) ^ 1);
        barrier_arrive_expect(full + i % 3, 2048);
        bulk_global_to_shared(stage + i % 3 * 512, from + (i64)i * 512, 2048, full + i % 3);
      }
  } else {
    float sum = 0.0f;
    for (int i = 0; i < count; i++) {
      barrier_wait(full + i % 3, i / 3 & 1);
      for (int k = 0; k < 4; k++) sum += stage[i % 3 * 512 + t + 128 * k];
      async_proxy_fence();
      barrier_arrive(empty + i % 3);
    }
    named_barrier<1>(128);  // the consumers alone
    to[t] = sum;
  }
}
"""


def vector_case() -> IntrinsicCase:
    """The same bytes by every width and cache hint."""
    x = generator("vectors").standard_normal(2048).astype(np.float16)
    return IntrinsicCase(
        name="vectors",
        body=VECTORS,
        launch=LaunchShape(kernel="vectors", grid=(1, 1, 1), threads=64),
        arguments=(x, np.empty(20480, np.float16), np.int32(2048)),
        outputs=(1,),
        expected=(np.tile(x, 10),),
    )


def edge_case() -> IntrinsicCase:
    """Counts from none to all of 8, from and to addresses that are no multiple of 16 bytes."""
    rng = generator("edges")
    x, odd = rng.standard_normal(256).astype(np.float16), rng.standard_normal(256).astype(np.float16)
    count = (np.arange(32) % 10 - 1)[:, None]
    is_there = np.arange(8) < count
    wide = np.where(is_there, odd.reshape(32, 8), 0).astype(np.float32)
    out = np.where(is_there, (2 * wide + 1).astype(np.float16), x.reshape(32, 8))
    return IntrinsicCase(
        name="edges",
        body=EDGES,
        launch=LaunchShape(kernel="edges", grid=(1, 1, 1), threads=32),
        arguments=(x, np.empty(256, np.float16), np.empty(256, np.float32), odd),
        outputs=(1, 2),
        expected=(out.reshape(-1), wide.reshape(-1)),
    )


def shared_case() -> IntrinsicCase:
    """Vectors through shared memory across a block barrier and a warp barrier."""
    x = generator("shared").standard_normal((64, 4)).astype(np.float32)
    handed = (np.arange(32) ^ 5) ** 2
    return IntrinsicCase(
        name="shared vectors",
        body=SHARED,
        launch=LaunchShape(kernel="shared", grid=(1, 1, 1), threads=64, shared_bytes=288 * 4),
        arguments=(x, np.empty(288, np.float32)),
        outputs=(1,),
        expected=(np.concatenate([x[::-1].reshape(-1), handed]).astype(np.float32),),
    )


def async_expected(x: Array) -> Array:
    """What the kernel ASYNC leaves: three widths, zero fill of every length, a policy, the oldest group alone."""
    lane = np.arange(32)
    out = np.zeros(608, np.float32)
    out[:128] = x[:128]
    out[128:192] = x[2:66]
    out[192:224] = x[1:33]
    out[224:352] = np.where(np.arange(4) < (lane % 5)[:, None], x[:128].reshape(32, 4), 0).reshape(-1)
    out[352:416] = np.where(np.arange(2) < (lane % 3)[:, None], x[:64].reshape(32, 2), 0).reshape(-1)
    out[416:448] = np.where(lane % 2 == 1, x[:32], 0)
    out[448:576] = x[:128]
    out[576:] = x[3:128:4]
    return out


def async_case() -> IntrinsicCase:
    """cp.async of every width and its groups."""
    x = generator("async").standard_normal(160).astype(np.float32)
    return IntrinsicCase(
        name="asynchronous copies",
        body=ASYNC,
        launch=LaunchShape(kernel="async", grid=(1, 1, 1), threads=32, shared_bytes=576 * 4),
        arguments=(x, np.empty(608, np.float32)),
        outputs=(1,),
        expected=(async_expected(x),),
    )


def tile_case() -> IntrinsicCase:
    """Whole, ragged, padded and transposed tiles; rows of 12 and of 3 chunks."""
    x = generator("tile").standard_normal((24, 96)).astype(np.float16)
    ragged = np.zeros_like(x)
    ragged[:17, :72] = x[:17, :72]
    turned = x.T.copy()
    turned[:, 23] = 0
    single = turned.T.reshape(-1).copy()
    stored = turned.copy()
    stored[95] = np.nan  # never written
    return IntrinsicCase(
        name="tiles",
        body=TILE,
        launch=LaunchShape(kernel="tile", grid=(1, 1, 1), threads=96, shared_bytes=24 * 96 * 2 + 24 * 104 * 2),
        arguments=(x, np.empty_like(x), np.empty_like(x), np.empty_like(turned), np.empty_like(single)),
        outputs=(1, 2, 3, 4),
        expected=(x, ragged, stored, single),
    )


def bulk_case() -> IntrinsicCase:
    """A ring of three stages: one warp brings them by the copy engine, four add them up."""
    x = generator("bulk").standard_normal((10, 4, 128)).astype(np.float32)
    return IntrinsicCase(
        name="bulk copies",
        body=BULK,
        launch=LaunchShape(kernel="ring", grid=(1, 1, 1), threads=160, shared_bytes=3 * 2048 + 64),
        arguments=(x, np.empty(128, np.float32), np.int32(10)),
        outputs=(1,),
        expected=(x.sum((0, 1), dtype=np.float64),),
        tolerance=1e-6,
        needs="sm_90a",
    )


def cases() -> list[IntrinsicCase]:
    """Return the checks of this file."""
    return [vector_case(), edge_case(), shared_case(), async_case(), tile_case(), bulk_case()]
