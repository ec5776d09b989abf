// grid 1 x 1 x 1; 256 threads, 0 B of shared memory
// X [64, 128] of X: read where it is needed
// after the loop: t1 = relu(t0): [128, 64] -> t1[128, 64]
extern "C" __global__ void __launch_bounds__(256, 1)
    transpose_relu_t1(const bf16* __restrict__ X, bf16* __restrict__ t1) {
  const int thread = thread_index();
  const int bx = (int)blockIdx.x;
  const int worker = thread + bx * 256;

  const bf16* const x_global = X;

  // t1 = relu(t0): [128, 64] -> t1[128, 64]
  {
    const int row = worker / 8;
    {
      const int col = worker % 8 * 8;
      Vec<float, 8> t1_2_out;
#pragma unroll
      for (int e = 0; e < 8; e++) {
        const float x = to_f32(x_global[(col + e) * 128 + row]);
        const float t1_2 = maximum(x, 0.0f);
        t1_2_out.value[e] = t1_2;
      }
      register_to_global(t1 + row * 64 + col, rounded<bf16>(t1_2_out));
    }
  }
}
