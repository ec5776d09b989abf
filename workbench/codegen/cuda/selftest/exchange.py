"""Checks of what threads do together: shuffles, reductions, clusters, atomics, programmatic launches."""

from __future__ import annotations

import numpy as np

from workbench.codegen.cuda.launch_shape import LaunchShape
from workbench.codegen.cuda.selftest.case import IntrinsicCase, generator

WARP = """
extern "C" __global__ void __launch_bounds__(64) warps(const float* from, float* to, u32* bits) {
  const int t = thread_index(), l = lane_index();
  const float x = from[t];
  to[t] = warp_sum(x);
  to[64 + t] = warp_sum<4>(x);
  to[128 + t] = warp_sum<8, 4>(x);
  to[192 + t] = warp_max(x);
  to[256 + t] = warp_max<4>(x);
  to[320 + t] = warp_max<8, 4>(x);
  to[384 + t] = shuffle_xor(x, 9);
  to[448 + t] = shuffle(x, (l * 3 + 1) % 32);
  bits[t] = warp_ballot(x > 0.0f);
  bits[64 + t] = shuffle((u32)t, 31 - l);
}
"""
BLOCK = """
extern "C" __global__ void __launch_bounds__(192) blocks(const float* from, float* to, float* total) {
  WB_DYNAMIC_SHARED(memory);
  float* scratch = reinterpret_cast<float*>(memory);
  const int i = blockIdx.x * 192 + thread_index();
  grid_dependency_wait();
  to[2 * i] = block_sum<192>(from[i], scratch);
  to[2 * i + 1] = block_max<192>(from[i], scratch);
  grid_dependency_launch();
  if (thread_index() == 0) atomic_add(total, to[2 * i]);
}
"""
CLUSTER = """
extern "C" __global__ void __launch_bounds__(64) WB_CLUSTER(4, 1, 1) clusters(const float* from, float* to, u32* who) {
  WB_DYNAMIC_SHARED(memory);
  float* mine = reinterpret_cast<float*>(memory);  // 256 floats, then 4 that the others write
  const int t = thread_index();
  const u32 rank = cluster_rank();
  register_to_shared(mine + 4 * t, global_to_register<4>(from + blockIdx.x * 256 + 4 * t));
  cluster_arrive();
  if (t == 0) who[blockIdx.x] = rank * 100 + cluster_size();
  cluster_wait();
  const Vec<float, 4> sum = cluster_sum<4, 4>(mine + 4 * t);
  const Vec<float, 2> most = cluster_max<4, 2>(mine + 4 * t);
  const Vec<float, 1> next = cluster_to_register<1>(mine + 4 * t, (rank + 1) % 4);
  for (int i = 0; i < 4; i++) to[blockIdx.x * 512 + 4 * t + i] = sum.value[i];
  for (int i = 0; i < 2; i++) to[blockIdx.x * 512 + 256 + 2 * t + i] = most.value[i];
  to[blockIdx.x * 512 + 384 + t] = next.value[0];
  if (t < 4) {  // thread t writes to block t
    Vec<float, 1> v;
    v.value[0] = (float)(rank * 10 + t);
    register_to_cluster(mine + 256 + rank, t, v);
  }
  cluster_barrier();
  if (t < 64) to[blockIdx.x * 512 + 448 + t] = mine[256 + t % 4];
}
"""


def warp_case() -> IntrinsicCase:
    """Sums, maxima and shuffles of two warps."""
    x = generator("warp").standard_normal(64).astype(np.float32)
    x64 = x.astype(np.float64).reshape(2, 32)
    quads, stripes = x64.reshape(2, 8, 4), x64.reshape(2, 8, 4)
    lane = np.arange(32)
    ballot = [int(sum(1 << i for i in range(32) if row[i] > 0)) for row in x64]
    return IntrinsicCase(
        name="warps",
        body=WARP,
        launch=LaunchShape(kernel="warps", grid=(1, 1, 1), threads=64),
        arguments=(x, np.empty((8, 2, 32), np.float32), np.empty((2, 2, 32), np.uint32)),
        outputs=(1, 2),
        expected=(
            np.stack(
                [
                    np.broadcast_to(x64.sum(1, keepdims=True), (2, 32)),
                    np.repeat(quads.sum(2), 4, axis=1),
                    np.tile(stripes.sum(1), (1, 8)),
                    np.broadcast_to(x64.max(1, keepdims=True), (2, 32)),
                    np.repeat(quads.max(2), 4, axis=1),
                    np.tile(stripes.max(1), (1, 8)),
                    x64[:, lane ^ 9],
                    x64[:, (lane * 3 + 1) % 32],
                ]
            ),
            np.stack([np.repeat(ballot, 32).reshape(2, 32), np.stack([31 - lane, 63 - lane])]).astype(np.uint32),
        ),
        tolerance=1e-6,
    )


def block_case() -> IntrinsicCase:
    """Sums and maxima of three blocks of six warps, and their total by atomic additions."""
    x = generator("block").standard_normal((3, 192)).astype(np.float32)
    sums, most = x.sum(1, dtype=np.float64), x.max(1).astype(np.float64)
    pairs = np.broadcast_to(np.stack([sums, most], axis=1)[:, None], (3, 192, 2))
    return IntrinsicCase(
        name="blocks",
        body=BLOCK,
        launch=LaunchShape(kernel="blocks", grid=(3, 1, 1), threads=192, shared_bytes=32),
        arguments=(x, np.empty((3, 192, 2), np.float32), np.zeros(1, np.float32)),
        outputs=(1, 2),
        keep=frozenset({2}),
        expected=(pairs, sums.sum(keepdims=True)),
        tolerance=1e-6,
    )


def cluster_case() -> IntrinsicCase:
    """Two clusters of four blocks that read and write each other's shared memory."""
    x = generator("cluster").standard_normal((2, 4, 256)).astype(np.float32)
    out = np.empty((2, 4, 512))
    out[:, :, :256] = x.sum(1, dtype=np.float64, keepdims=True)
    most = x.max(1, keepdims=True).reshape(2, 1, 64, 4)[..., :2].reshape(2, 1, 128)
    out[:, :, 256:384] = most
    out[:, :, 384:448] = np.roll(x, -1, axis=1).reshape(2, 4, 64, 4)[..., 0]
    rank = np.arange(4)
    out[:, :, 448:] = np.tile(rank[None, :] * 10 + rank[:, None], (1, 16))
    return IntrinsicCase(
        name="clusters",
        body=CLUSTER,
        launch=LaunchShape(kernel="clusters", grid=(8, 1, 1), threads=64, cluster=(4, 1, 1), shared_bytes=1040),
        arguments=(x, np.empty(out.shape, np.float32), np.empty(8, np.uint32)),
        outputs=(1, 2),
        expected=(out, np.tile(rank * 100 + 4, 2)),
        tolerance=1e-6,
        needs="sm_90a",
    )


def cases() -> list[IntrinsicCase]:
    """Return the checks of this file."""
    return [warp_case(), block_case(), cluster_case()]
