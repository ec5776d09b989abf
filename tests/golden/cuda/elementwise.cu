// grid 4 x 1 x 1; 128 threads, 0 B of shared memory
// x [2, 256] of X: read where it is needed
// y [2, 256] of Y: read where it is needed
// after the loop: t1 = mul(t0, y): [2, 256] -> t0[8, 256]
extern "C" __global__ void __launch_bounds__(128, 1)
    small(const f16* __restrict__ X, const f16* __restrict__ Y, f16* __restrict__ t0) {
  const int thread = thread_index();
  const int bx = (int)blockIdx.x;

  f16* const t0_tile = t0 + (i64)bx * 512;
  const f16* const x_global = X + (i64)bx * 512;
  const f16* const y_global = Y + (i64)bx * 512;

  // t1 = mul(t0, y): [2, 256] -> t0[8, 256]
  {
    const int row = thread / 64;
    {
      const int col = thread % 64 * 4;
      const Vec<f16, 4> x_group = global_to_register<4, Cache::read_only>(x_global + row * 256 + col);
      const Vec<f16, 4> y_group = global_to_register<4, Cache::read_only>(y_global + row * 256 + col);
      Vec<float, 4> t1_out;
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float x = to_f32(x_group.value[e]);
        const float t0_2 = fast_silu(x);
        const float y = to_f32(y_group.value[e]);
        const float t1 = (t0_2 * y);
        t1_out.value[e] = t1;
      }
      register_to_global(t0_tile + row * 256 + col, rounded<f16>(t1_out));
    }
  }
}
