// grid 8 x 1 x 1; 128 threads, 256 B of shared memory
// x [1, 300] of X: read where it is needed
// after the loop: x_max = max of x along axis -1: [1, 1]
// after the loop: x_sub_exp_sum = sum of x_sub_exp along axis -1: [1, 1]
// after the loop: t0 = div(x_sub_exp, x_sub_exp_sum): [1, 300] -> t0[8, 300]
extern "C" __global__ void __launch_bounds__(128, 1)
    small(const f16* __restrict__ X, f16* __restrict__ t0) {
  WB_DYNAMIC_SHARED(memory);
  const int thread = thread_index();
  const int bx = (int)blockIdx.x;

  const f16* const x_global = X + (i64)bx * 300;
  f16* const t0_tile = t0 + (i64)bx * 300;

  const SharedTile<float, 4, 1, false, 1> x_max_tile(memory);
  const SharedTile<float, 4, 1, false, 1> x_sub_exp_sum_tile(memory + 128);

  // x is read once
  Vec<f16, 2> x_held[1][2];
  {
#pragma unroll
    for (int cc = 0; cc < 2; cc++) {
      const int col = cc * 256 + thread * 2;
      if (col < 300) {
        x_held[0][cc] = global_to_register<2, Cache::read_only>(x_global + col);
      }
    }
  }

  // x_max = max of x along axis -1: [1, 1]
  {
    float x_max_part = -infinity();
#pragma unroll
    for (int cc = 0; cc < 2; cc++) {
      const int col = cc * 256 + thread * 2;
      if (col < 300) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float x = to_f32(x_held[0][cc].value[e]);
          x_max_part = maximum(x_max_part, x);
        }
      }
    }
    x_max_part = warp_max<32>(x_max_part);
    if (thread % 32 == 0) *x_max_tile.at(thread % 128 / 32, 0) = x_max_part;
  }

  block_barrier();
  // x_sub_exp_sum = sum of x_sub_exp along axis -1: [1, 1]
  {
    const float x_max = maximum(maximum(maximum(*x_max_tile.at(0, 0), *x_max_tile.at(1, 0)), *x_max_tile.at(2, 0)), *x_max_tile.at(3, 0));
    const float x_max_scaled = maximum(x_max * 1.44269504f, -3.40282347e38f);
    float x_sub_exp_sum_part = 0.0f;
#pragma unroll
    for (int cc = 0; cc < 2; cc++) {
      const int col = cc * 256 + thread * 2;
      if (col < 300) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float x = to_f32(x_held[0][cc].value[e]);
          const float x_sub_exp = fast_exp2(x * 1.44269504f - x_max_scaled);
          x_sub_exp_sum_part += x_sub_exp;
        }
      }
    }
    x_sub_exp_sum_part = warp_sum<32>(x_sub_exp_sum_part);
    if (thread % 32 == 0) *x_sub_exp_sum_tile.at(thread % 128 / 32, 0) = x_sub_exp_sum_part;
  }

  block_barrier();
  // t0 = div(x_sub_exp, x_sub_exp_sum): [1, 300] -> t0[8, 300]
  {
    const float x_max = maximum(maximum(maximum(*x_max_tile.at(0, 0), *x_max_tile.at(1, 0)), *x_max_tile.at(2, 0)), *x_max_tile.at(3, 0));
    const float x_max_scaled = maximum(x_max * 1.44269504f, -3.40282347e38f);
    const float x_sub_exp_sum = *x_sub_exp_sum_tile.at(0, 0) + *x_sub_exp_sum_tile.at(1, 0) + *x_sub_exp_sum_tile.at(2, 0) + *x_sub_exp_sum_tile.at(3, 0);
#pragma unroll
    for (int cc = 0; cc < 2; cc++) {
      const int col = cc * 256 + thread * 2;
      if (col < 300) {
        Vec<float, 2> t0_2_out;
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float x = to_f32(x_held[0][cc].value[e]);
          const float x_sub_exp = fast_exp2(x * 1.44269504f - x_max_scaled);
          const float t0_2 = (x_sub_exp * fast_reciprocal(x_sub_exp_sum));
          t0_2_out.value[e] = t0_2;
        }
        register_to_global(t0_tile + col, rounded<f16>(t0_2_out));
      }
    }
  }
}
