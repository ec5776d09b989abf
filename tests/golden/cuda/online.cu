// grid 2 x 1 x 1, 3 iterations; 128 threads, 128 B of shared memory
// x [4, 24] of X: read where it is needed
// in the loop: t0_of_tile = max of x along axis -1: [4, 1]
// in the loop: t0 = running maximum of t0_of_tile: [4, 1]
// in the loop: t4_row_sum = sum of t2 along axis -1: [4, 1]; t4 = rescale of t4_row_sum, t3 over the iterations: [4, 1]
// after the loop: t4 = rescale of t4_row_sum, t3 over the iterations: [4, 1] -> t0[4, 2]
extern "C" __global__ void __launch_bounds__(128, 1)
    small(const float* __restrict__ X, float* __restrict__ t0) {
  WB_DYNAMIC_SHARED(memory);
  const int thread = thread_index();
  const int bx = (int)blockIdx.x;
  const int first = 0;
  const int last = 3;

  float* const t0_tile = t0 + (i64)bx;

  const SharedTile<float, 16, 1, false, 1> t4_tile(memory);

  float t0_2_so_far[1] = {-3.40282347e38f};
  float t4_part[1] = {};

  for (int step = first; step < last; step++) {
    const float* const x_global = X + (i64)bx * 70 + (i64)step * 24;
    const int x_1_extent = clamped(lesser(140, bx * 70 + 70) - (bx * 70 + step * 24), 24);

    // t0_of_tile = max of x along axis -1: [4, 1]
    float t0_of_tile_part[1];
    {
      const int row = thread / 16;
      t0_of_tile_part[0] = -infinity();
      if (row < 4) {
        {
          const int col = thread % 16 * 2;
          if (col < 24) {
            const int x_left = x_1_extent - col;
            const Vec<float, 2> x_group = x_left >= 2 ? global_to_register<2, Cache::read_only>(x_global + row * 140 + col) : global_to_register_edge<2>(x_global + row * 140 + col, x_left);
#pragma unroll
            for (int e = 0; e < 2; e++) {
              const bool valid = (col + e) < x_1_extent;
              const float x = x_group.value[e];
              t0_of_tile_part[0] = maximum(t0_of_tile_part[0], valid ? x : -infinity());
            }
          }
        }
      }
      t0_of_tile_part[0] = warp_max<16>(t0_of_tile_part[0]);
    }

    // t0 = running maximum of t0_of_tile: [4, 1]
    float t0_shift_row[1];
    {
      const int row = thread / 16;
      if (row < 4) {
        const float t0_2_before = t0_2_so_far[0];
        const float t0_2_now = maximum(t0_2_before, t0_of_tile_part[0]);
        t0_2_so_far[0] = t0_2_now;
        const float t0_shift_now = step == first || x_1_extent == 0 ? 0.0f : t0_2_before - t0_2_now;
        t0_shift_row[0] = t0_shift_now;
      }
    }

    // t4_row_sum = sum of t2 along axis -1: [4, 1]; t4 = rescale of t4_row_sum, t3 over the iterations: [4, 1]
    {
      const int row = thread / 16;
      if (row < 4) {
        const float t3 = expf(t0_shift_row[0]);
        t4_part[0] = step == first ? 0.0f : t4_part[0] * t3;
        {
          const int col = thread % 16 * 2;
          if (col < 24) {
            const int x_left = x_1_extent - col;
            const Vec<float, 2> x_group = x_left >= 2 ? global_to_register<2, Cache::read_only>(x_global + row * 140 + col) : global_to_register_edge<2>(x_global + row * 140 + col, x_left);
#pragma unroll
            for (int e = 0; e < 2; e++) {
              const bool valid = (col + e) < x_1_extent;
              const float x = x_group.value[e];
              const float t1 = (x - t0_2_so_far[0]);
              const float t2 = expf(t1);
              t4_part[0] += (valid ? t2 : 0.0f);
            }
          }
        }
      }
    }
  }

  {
    const int row = thread / 16;
    t4_part[0] = warp_sum<16>(t4_part[0]);
    if (thread % 16 == 0 && row < 4) *t4_tile.at(row, 0) = t4_part[0];
  }

  block_barrier();
  // t4 = rescale of t4_row_sum, t3 over the iterations: [4, 1] -> t0[4, 2]
  {
    const int row = thread;
    if (row < 4) {
      const float t4 = *t4_tile.at(row, 0);
      t0_tile[row * 2] = t4;
    }
  }
}
