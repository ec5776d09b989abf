// grid 1 x 1 x 1, 4 iterations, shared by clusters of 2 blocks; 128 threads, 2 stages, 12,288 B of shared memory
// x [16, 64] of X: staged in shared memory (4,096 B)
// y [64, 32] of Y: staged in shared memory (8,192 B)
// in the loop: t0 = x @ y: [16, 32], summed over the iterations as t1; warps: 4 along the depth
// in the loop:   on its left fragments: t2_mean_row_sum = sum of t2_square along axis -1: [16, 1]; t2_mean_sum = sum of t2_mean_row_sum over the iterations: [16, 1]
// after the loop: t3 = div(t1, t2): [16, 32] -> t0[16, 32]
extern "C" __global__ void __launch_bounds__(128, 1) WB_CLUSTER(2, 1, 1)
    small(const f16* __restrict__ X, const f16* __restrict__ Y, f16* __restrict__ t0) {
  WB_DYNAMIC_SHARED(memory);
  const int thread = thread_index();
  const int warp = warp_index();
  const int lane = lane_index();
  const int rank = (int)cluster_rank();
  const int worker = thread + rank * 128;
  const int first = rank * 2;
  const int last = first + 2;

  const SharedTile<float, 64, 1, false, 1> t2_mean_sum_tile(memory + 10240);
  const SharedTile<float, 64, 32, false, 40> t1_tile(memory);

  const auto load = [&](int ahead, int slot) {
    // x: [16, 64] of X[16, 256], cp.async of 16 bytes, 2 tiles in flight
    global_to_shared_tile_async<128, 16>(SharedTile<f16, 16, 64, true, 64>(memory + 8192 + slot * 2048), X + (i64)ahead * 64, 256);
    // y: [64, 32] of Y[256, 32], cp.async of 16 bytes, 2 tiles in flight
    global_to_shared_tile_async<128, 16>(SharedTile<f16, 64, 32, true, 32>(memory + slot * 4096), Y + (i64)ahead * 2048, 32);
  };
#pragma unroll
  for (int slot = 0; slot < 1; slot++) {
    if (first + slot < last) load(first + slot, slot);
    cp_async_commit();
  }

  float t1_sum[1][4][4] = {};
  float t2_mean_sum_part[1][2] = {};

  for (int step = first; step < last; step++) {
    cp_async_wait<0>();
    block_barrier();
    if (step + 1 < last) load(step + 1, (step - first + 1) % 2);
    cp_async_commit();
    const int slot = (step - first) % 2;
    const SharedTile<f16, 16, 64> x_tile(memory + 8192 + slot * 2048);
    const SharedTile<f16, 64, 32> y_tile(memory + slot * 4096);

    // t0 = x @ y: [16, 32], summed over the iterations as t1; warps: 4 along the depth
    //   on its left fragments: t2_mean_row_sum = sum of t2_square along axis -1: [16, 1]; t2_mean_sum = sum of t2_mean_row_sum over the iterations: [16, 1]
#pragma unroll
    for (int low = 0; low < 1; low++) {
      const int depth = warp * 16;
      u32 left[1][4];
      load_a(left[0], x_tile, 0, depth);
#pragma unroll
      for (int quad = 0; quad < 4; quad++) {
        float x_pair[2];
        unpack2<f16>(left[0][quad], x_pair[0], x_pair[1]);
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float t2_square = (x_pair[e] * x_pair[e]);
          t2_mean_sum_part[0][quad % 2] += t2_square;
        }
      }
#pragma unroll
      for (int nt = 0; nt < 2; nt++) {
        u32 right[4];
        load_b_pair(right, y_tile, depth, nt * 16);
        mma<f16>(t1_sum[0][2 * nt], left[0], right);
        mma<f16>(t1_sum[0][2 * nt + 1], left[0], right + 2);
      }
    }
  }

  block_barrier();
#pragma unroll
  for (int nt = 0; nt < 4; nt++) {
    store_d(t1_tile, (warp) * 16, nt * 8, t1_sum[0][nt]);
  }
  {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = lane / 4 + 8 * half;
      t2_mean_sum_part[0][half] = warp_sum<4>(t2_mean_sum_part[0][half]);
      if (lane % 4 == 0) *t2_mean_sum_tile.at((warp) * 16 + row, 0) = t2_mean_sum_part[0][half];
    }
  }
  block_barrier();
  combine_slices<128, 4, 16, 1, 1>(t2_mean_sum_tile.base);
  combine_slices<128, 4, 16, 32, 40>(t1_tile.base);
  cluster_barrier();

  // t3 = div(t1, t2): [16, 32] -> t0[16, 32]
  {
    const int row = worker / 16;
    const float t2_mean_sum = cluster_sum<2>(t2_mean_sum_tile.at(row, 0)).value[0];
    const float t2_mean = (t2_mean_sum * 0.00390625f);  // factor = 1/256
    const float t2 = fast_sqrt(t2_mean);
    {
      const int col = worker % 16 * 2;
      const Vec<float, 2> t1_group = cluster_sum<2, 2>(t1_tile.at(row, col));
      Vec<float, 2> t3_out;
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float t1 = t1_group.value[e];
        const float t3 = (t1 * fast_reciprocal(t2));
        t3_out.value[e] = t3;
      }
      register_to_global(t0 + row * 32 + col, rounded<f16>(t3_out));
    }
  }
  cluster_barrier();  // no block ends while others read its shared memory
}
