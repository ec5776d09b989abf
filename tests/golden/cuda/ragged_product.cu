// grid 3 x 1 x 1, 2 iterations; 128 threads, 2 stages, 4,864 B of shared memory
// x [3, 25] of X: staged in shared memory (768 B)
// y [25, 11] of Y: staged in shared memory (4,096 B)
// in the loop: t0 = x @ y: [3, 11], summed over the iterations as t1; warps: 2 along the depth
// after the loop: t1 = sum of t0 over the iterations: [3, 11] -> t0[3, 33]
extern "C" __global__ void __launch_bounds__(128, 1)
    small(const float* __restrict__ X, const float* __restrict__ Y, float* __restrict__ t0) {
  WB_DYNAMIC_SHARED(memory);
  const int thread = thread_index();
  const int warp = warp_index();
  const int bx = (int)blockIdx.x;
  const int first = 0;
  const int last = 2;

  float* const t0_tile = t0 + (i64)bx * 11;

  const SharedTile<float, 32, 16, false, 24> t1_tile(memory);

  // padding that tensor cores read is zero
  zero_shared<128>(memory + 4096, 768);
  zero_shared<128>(memory, 4096);
  block_barrier();
  const auto load = [&](int ahead, int slot) {
    // x: [3, 25] of X[3, 50], cp.async of 4 bytes, 2 tiles in flight
    global_to_shared_tile_async<128, 4>(SharedTile<float, 3, 25, true, 32>(memory + 4096 + slot * 384), X + (i64)ahead * 25, 50);
    // y: [25, 11] of Y[50, 33], cp.async of 4 bytes, 2 tiles in flight
    global_to_shared_tile_async<128, 4>(SharedTile<float, 25, 11, true, 16>(memory + slot * 2048), Y + (i64)ahead * 825 + (i64)bx * 11, 33);
  };
#pragma unroll
  for (int slot = 0; slot < 1; slot++) {
    load(slot, slot);
    cp_async_commit();
  }

  float t1_sum[1][2][4] = {};

  for (int step = first; step < last; step++) {
    cp_async_wait<0>();
    block_barrier();
    if (step + 1 < last) load(step + 1, (step + 1) % 2);
    cp_async_commit();
    const int slot = step % 2;
    const SharedTile<float, 3, 32> x_tile(memory + 4096 + slot * 384);
    const SharedTile<float, 32, 16> y_tile(memory + slot * 2048);

    // t0 = x @ y: [3, 11], summed over the iterations as t1; warps: 2 along the depth
    if (warp < 2) {
#pragma unroll 2
      for (int low = 0; low < 2; low++) {
        const int depth = warp * 16 + low * 8;
        u32 left[1][4], left_low[1][4];
        load_a_split<false, 3>(left[0], left_low[0], x_tile, 0, 0, depth);
        {
          u32 right[4], right_low[4];
          load_b_pair_split<false>(right, right_low, y_tile, 0, depth, 0);
          mma_split<true, true>(t1_sum[0][0], left[0], left_low[0], right, right_low);
          mma_split<true, true>(t1_sum[0][1], left[0], left_low[0], right + 2, right_low + 2);
        }
      }
    }
  }

  block_barrier();
  if (warp < 2) {
#pragma unroll
    for (int nt = 0; nt < 2; nt++) {
      store_d(t1_tile, (warp) * 16, nt * 8, t1_sum[0][nt]);
    }
  }

  block_barrier();
  // t1 = sum of t0 over the iterations: [3, 11] -> t0[3, 33]
  {
    const int row = thread / 16;
    if (row < 3) {
      {
        const int col = thread % 16;
        if (col < 11) {
          const float t1 = *t1_tile.at(row, col) + *t1_tile.at(row + 16, col);
          t0_tile[row * 33 + col] = t1;
        }
      }
    }
  }
}
