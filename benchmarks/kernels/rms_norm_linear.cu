// RMSNorm + Linear in one kernel, written with the device header (kernel_source adds it):
//   O[m, n] = sum_k X[m, k] W[k, n] / sqrt(mean_k X[m, k]^2 + eps),   M_ <= 16 rows, fp16 in and out, float sums.
// The depth is split over a cluster of S_ blocks; each block covers BN_ columns and steps of BK_ through ST_ stages, and
// each of its four warps takes a quarter of a step's depth. The division comes last, so one pass over X and W is enough.
// Compile with -DK_= -DN_= -DM_= -DS_= -DBN_= -DBK_= -DST_=.
constexpr int THREADS = 128, WARPS = 4, DEPTH = K_ / S_, STEPS = DEPTH / BK_, SLICE = BK_ / WARPS;
typedef SharedTile<f16, 16, BK_> TileX;
typedef SharedTile<f16, BK_, BN_> TileW;
constexpr int STAGE = TileX::BYTES + TileW::BYTES;

extern "C" __global__ void __launch_bounds__(128) WB_CLUSTER(S_, 1, 1)
    rms_norm_linear(const f16* __restrict__ X, const f16* __restrict__ W, f16* __restrict__ O, float eps) {
  WB_DYNAMIC_SHARED(memory);
  const int t = thread_index(), w = warp_index(), l = lane_index(), rank = (int)cluster_rank();
  const int n0 = blockIdx.x / S_ * BN_, k0 = rank * DEPTH;

  // ---- X tile (16, BK_), rows past M_ zero; W tile (BK_, BN_)
  auto load = [&](int step) {
    unsigned char* stage = memory + step % ST_ * STAGE;
    const int k = k0 + step * BK_;
    global_to_shared_tile_async<THREADS>(TileW(stage), W + (i64)k * N_ + n0, N_);
    global_to_shared_tile_async<THREADS>(TileX(stage + TileW::BYTES), X + k, K_, M_, BK_);
  };
#pragma unroll
  for (int step = 0; step < ST_ - 1; step++) {
    if (step < STEPS) load(step);
    cp_async_commit();
  }

  // ---- product (16, BN_) and sum of squares (16), this warp's quarter of the depth
  float acc[BN_ / 8][4] = {};
  float squares[2] = {0.0f, 0.0f};  // rows g and g + 8
  for (int step = 0; step < STEPS; step++) {
    cp_async_wait<ST_ - 2>();
    block_barrier();
    if (step + ST_ - 1 < STEPS) load(step + ST_ - 1);
    cp_async_commit();
    unsigned char* stage = memory + step % ST_ * STAGE;
    const TileW tile_w(stage);
    const TileX tile_x(stage + TileW::BYTES);
#pragma unroll
    for (int kk = w * SLICE; kk < (w + 1) * SLICE; kk += 16) {
      u32 a[4];
      load_a(a, tile_x, 0, kk);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float low, high;
        unpack2<f16>(a[i], low, high);
        squares[i % 2] += low * low + high * high;
      }
#pragma unroll
      for (int j = 0; j < BN_ / 8; j += 2) {
        u32 b[4];
        load_b_pair(b, tile_w, kk, 8 * j);
        mma<f16>(acc[j], a, b);
        mma<f16>(acc[j + 1], a, b + 2);
      }
    }
  }
  cp_async_wait<0>();
  block_barrier();

  // ---- sum over the block's warps: sums (16, BN_), square_sums (16), slice by slice in the stages' memory
  float* sums = reinterpret_cast<float*>(memory);
  float* square_sums = sums + WARPS * 16 * BN_;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    squares[i] = warp_sum<4>(squares[i]);
    if (l % 4 == 0) square_sums[w * 16 + l / 4 + 8 * i] = squares[i];
  }
#pragma unroll
  for (int j = 0; j < BN_ / 8; j++)
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      Vec<float, 2> pair;
      pair.value[0] = acc[j][i];
      pair.value[1] = acc[j][i + 1];
      register_to_shared(sums + (w * 16 + mma_row(i)) * BN_ + 8 * j + mma_col(i), pair);
    }
  block_barrier();
  for (int i = t; i < 16 * BN_; i += THREADS) sums[i] = sums[i] + sums[i + 16 * BN_] + sums[i + 32 * BN_] + sums[i + 48 * BN_];
  if (t < 16) square_sums[t] = square_sums[t] + square_sums[t + 16] + square_sums[t + 32] + square_sums[t + 48];

  // ---- sum over the cluster, divide, store; the blocks share the elements
  cluster_barrier();
  for (int i = t + rank * THREADS; i < M_ * BN_ / 2; i += THREADS * S_) {
    const int m = 2 * i / BN_, n = 2 * i % BN_;
    const Vec<float, 2> sum = cluster_sum<S_, 2>(sums + 2 * i);
    const float scale = fast_rsqrt(cluster_sum<S_>(square_sums + m).value[0] / K_ + eps);
    Vec<f16, 2> out;
    out.word[0] = pack2<f16>(sum.value[0] * scale, sum.value[1] * scale);
    register_to_global(O + (i64)m * N_ + n0 + n, out);
  }
  cluster_barrier();
}
