// Device header of the workbench, part 2 of 2: tiles, fragments and reductions, composed of part 1 alone.
//
// Nothing here is written twice: the device and the host (host_shim.h) compile this same text.
#pragma once

namespace wb {
// ---------------------------------------------------------------- shared tiles
// The 16-byte chunk in which chunk `chunk` of row `row` is kept, so that 8 rows of one chunk column lie in 8 different
// bank groups (ldmatrix without conflicts). Row strides of CHUNKS chunks: with P the largest power of two <= 8 that
// divides CHUNKS, 8 / P rows fill the banks once, so row / (8 / P) is XORed into the chunk's low bits.
template <int CHUNKS> WB_DEVICE int swizzle_chunk(int row, int chunk) {
  constexpr int P = CHUNKS % 8 == 0 ? 8 : CHUNKS % 4 == 0 ? 4 : CHUNKS % 2 == 0 ? 2 : 1;
  return chunk ^ ((row / (8 / P)) & (P - 1));
}

// A ROWS x COLS tile of T in shared memory, row by row, STRIDE elements from row to row. SWIZZLE moves the 16-byte
// chunks of a row (swizzle_chunk); without it give STRIDE an odd number of chunks to avoid bank conflicts.
// A column-major operand is the tile of its transpose.
template <class T_, int ROWS_, int COLS_, bool SWIZZLE = true, int STRIDE_ = COLS_> struct SharedTile {
  typedef T_ T;
  static constexpr int ROWS = ROWS_, COLS = COLS_, STRIDE = STRIDE_;
  static constexpr int CHUNK = 16 / sizeof(T);             // elements in 16 bytes
  static constexpr int BYTES = ROWS * STRIDE * sizeof(T);  // of the whole tile
  static_assert(STRIDE >= COLS, "rows overlap");
  static_assert(!SWIZZLE || STRIDE % CHUNK == 0, "a swizzled row is a whole number of 16-byte chunks");
  T* base;  // 16-byte aligned; 128-byte aligned if swizzled

  WB_DEVICE explicit SharedTile(void* shared) : base(static_cast<T*>(shared)) {}
  // thread: place of element (row, col). Elements of one aligned 16-byte chunk are consecutive.
  WB_DEVICE T* at(int row, int col) const {
    WB_CHECK_INDEX(row, ROWS, "tile row");
    WB_CHECK_INDEX(col, COLS, "tile column");
    if constexpr (SWIZZLE) return base + row * STRIDE + swizzle_chunk<STRIDE / CHUNK>(row, col / CHUNK) * CHUNK + col % CHUNK;
    else return base + row * STRIDE + col;
  }
  // thread: place of element (block + row, col). `block` is a multiple of 8, over which the swizzle repeats, so that many
  // places of one lane are one address and constants.
  WB_DEVICE T* at(int block, int row, int col) const {
    WB_CHECK_INDEX(block + row, ROWS, "tile row");
    WB_CHECK_INDEX(col, COLS, "tile column");
    if constexpr (SWIZZLE)
      return base + row * STRIDE + swizzle_chunk<STRIDE / CHUNK>(row, col / CHUNK) * CHUNK + col % CHUNK + block * STRIDE;
    else return base + row * STRIDE + col + block * STRIDE;
  }
};

// ---------------------------------------------------------------- tile moves (block: THREADS threads, no barrier)
// Copy a ROWS x COLS tile out of row-major global memory (`stride` elements from row to row) by cp.async of BYTES each.
// `global`, stride * sizeof(T) and COLS * sizeof(T) are multiples of BYTES. The caller commits and waits.
template <int THREADS, int BYTES = 16, class Tile> WB_DEVICE void global_to_shared_tile_async(Tile tile,
                                                                                              const typename Tile::T* global,
                                                                                              i64 stride) {
  constexpr int N = BYTES / (int)sizeof(typename Tile::T), PER_ROW = Tile::COLS / N, COUNT = Tile::ROWS * PER_ROW;
  static_assert(Tile::COLS % N == 0, "a row is a whole number of copies");
  if constexpr (THREADS % (8 * PER_ROW) == 0) {  // rows 8 apart are swizzled alike: one address, and steps from it
    constexpr int STEP = THREADS / PER_ROW;
    const int row = thread_index() / PER_ROW, col = thread_index() % PER_ROW * N;
    typename Tile::T* const place = tile.at(Tile::ROWS < STEP ? row % Tile::ROWS : row, col);
    const typename Tile::T* const from = global + row * stride + col;
#pragma unroll
    for (int down = 0; down < Tile::ROWS; down += STEP)
      if (Tile::ROWS % STEP == 0 || row + down < Tile::ROWS) cp_async<BYTES>(place + down * Tile::STRIDE, from + down * stride);
  } else {
#pragma unroll
    for (int start = 0; start < COUNT; start += THREADS) {
      const int i = start + thread_index();
      if (COUNT % THREADS == 0 || i < COUNT)
        cp_async<BYTES>(tile.at(i / PER_ROW, i % PER_ROW * N), global + (i / PER_ROW) * stride + i % PER_ROW * N);
    }
  }
}
// The same where only the first `rows` rows and `cols` columns exist; the rest of the tile becomes zero.
template <int THREADS, int BYTES = 16, class Tile>
WB_DEVICE void global_to_shared_tile_async(Tile tile, const typename Tile::T* global, i64 stride, int rows, int cols) {
  typedef typename Tile::T T;
  constexpr int N = BYTES / (int)sizeof(T), PER_ROW = Tile::COLS / N, COUNT = Tile::ROWS * PER_ROW;
  static_assert(Tile::COLS % N == 0, "a row is a whole number of copies");
#pragma unroll
  for (int start = 0; start < COUNT; start += THREADS) {
    const int i = start + thread_index();
    if (COUNT % THREADS != 0 && i >= COUNT) continue;
    const int row = i / PER_ROW, col = i % PER_ROW * N, left = cols - col;
    const int valid = row < rows ? (left < 0 ? 0 : left > N ? N : left) : 0;
    cp_async_zero_fill<BYTES>(tile.at(row, col), valid > 0 ? global + row * stride + col : global, valid * (int)sizeof(T));
  }
}
// Element by element, any alignment and strides (row_stride, col_stride in elements); outside rows x cols zero.
template <int THREADS, class Tile>
WB_DEVICE void global_to_shared_tile(Tile tile, const typename Tile::T* global, i64 row_stride, i64 col_stride, int rows,
                                     int cols) {
  for (int i = thread_index(); i < Tile::ROWS * Tile::COLS; i += THREADS) {
    const int row = i / Tile::COLS, col = i % Tile::COLS;
    *tile.at(row, col) =
        row < rows && col < cols ? global[row * row_stride + col * col_stride] : from_f32<typename Tile::T>(0.0f);
  }
}
// Write the first rows x cols elements, N at a time: global, stride and cols are multiples of N (N = 1: anything).
template <int THREADS, int N, class Tile>
WB_DEVICE void shared_to_global_tile(Tile tile, typename Tile::T* global, i64 stride, int rows, int cols) {
  constexpr int PER_ROW = Tile::COLS / N;
  static_assert(Tile::COLS % N == 0 && (N == 1 || Tile::CHUNK % N == 0), "N elements of a row, within a chunk");
  for (int i = thread_index(); i < Tile::ROWS * PER_ROW; i += THREADS) {
    const int row = i / PER_ROW, col = i % PER_ROW * N;
    if (row < rows && col < cols) {
      if constexpr (N == 1) global[row * stride + col] = *tile.at(row, col);
      else register_to_global(global + row * stride + col, shared_to_register<N>(tile.at(row, col)));
    }
  }
}

// ---------------------------------------------------------------- predicated edges (thread)
// The first `count` of N elements, the rest zero; `global` needs no more alignment than T has.
template <int N, class T> WB_DEVICE Vec<T, N> global_to_register_edge(const T* global, int count) {
  Vec<T, N> v;
#pragma unroll
  for (int i = 0; i < N; i++) v.value[i] = i < count ? global[i] : from_f32<T>(0.0f);
  return v;
}
template <class T, int N> WB_DEVICE void register_to_global_edge(T* global, const Vec<T, N>& v, int count) {
#pragma unroll
  for (int i = 0; i < N; i++)
    if (i < count) global[i] = v.value[i];
}
template <class T, int N> WB_DEVICE Vec<float, N> to_f32(const Vec<T, N>& v) {
  Vec<float, N> y;
#pragma unroll
  for (int i = 0; i < N; i++) y.value[i] = to_f32(v.value[i]);
  return y;
}
template <class T, int N> WB_DEVICE Vec<T, N> from_f32(const Vec<float, N>& v) {
  Vec<T, N> y;
#pragma unroll
  for (int i = 0; i < N; i++) y.value[i] = from_f32<T>(v.value[i]);
  return y;
}

// ---------------------------------------------------------------- fragments (warp)
// One tensor-core step for element type T (float: tf32): d (16 x 8, float) += a (16 x K) b (K x 8).
template <class T> static constexpr int MMA_K = 32 / sizeof(T);  // 16, 16, 8
template <class T> WB_DEVICE void mma(float* d, const u32* a, const u32* b) {
  if constexpr (is_same<T, f16>) mma_m16n8k16_f16(d, a, b);
  else if constexpr (is_same<T, bf16>) mma_m16n8k16_bf16(d, a, b);
  else mma_m16n8k8_tf32(d, a, b);
}
// Place in the 16 x 8 result of element i (0 .. 3) of this lane's d.
WB_DEVICE int mma_row(int i) { return lane_index() / 4 + 8 * (i / 2); }
WB_DEVICE int mma_col(int i) { return lane_index() % 4 * 2 + i % 2; }

// a[4]: rows m .. m + 15, depth k .. k + K - 1 of a tile kept as [m][k].
template <class Tile> WB_DEVICE void load_a(u32* a, Tile tile, int m, int k) {
  const int l = lane_index();
  ldmatrix_x4(a, tile.at(m, l % 16, k + l / 16 * Tile::CHUNK));
  if constexpr (is_same<typename Tile::T, float>)
    for (int i = 0; i < 4; i++) a[i] = to_tf32(bits_to_f32(a[i]));
}
// The same of a tile kept as [k][m].
template <class Tile> WB_DEVICE void load_a_transposed(u32* a, Tile tile, int m, int k) {
  const int l = lane_index();
  if constexpr (is_same<typename Tile::T, float>)
    for (int i = 0; i < 4; i++) a[i] = to_tf32(*tile.at(k + l % 4 + 4 * (i / 2), m + l / 4 + 8 * (i % 2)));
  else ldmatrix_x4_transposed(a, tile.at(k, l % 8 + l / 16 * 8, m + l / 8 % 2 * 8));
}
// b[4]: two fragments, columns n .. n + 7 in b[0..1] and n + 8 .. n + 15 in b[2..3], of a tile kept as [k][n].
template <class Tile> WB_DEVICE void load_b_pair(u32* b, Tile tile, int k, int n) {
  const int l = lane_index();
  if constexpr (is_same<typename Tile::T, float>)
    for (int i = 0; i < 4; i++) b[i] = to_tf32(*tile.at(k + l % 4 + 4 * (i % 2), n + l / 4 + 8 * (i / 2)));
  else ldmatrix_x4_transposed(b, tile.at(k, l % 16, n + l / 16 * 8));
}
// The same of a tile kept as [n][k] (the operand's transpose, as K in attention).
template <class Tile> WB_DEVICE void load_b_pair_transposed(u32* b, Tile tile, int k, int n) {
  const int l = lane_index();
  ldmatrix_x4(b, tile.at(n, l % 8 + l / 16 * 8, k + l / 8 % 2 * Tile::CHUNK));
  if constexpr (is_same<typename Tile::T, float>)
    for (int i = 0; i < 4; i++) b[i] = to_tf32(bits_to_f32(b[i]));
}
// b[2]: one fragment, columns n .. n + 7, of a tile kept as [k][n].
template <class Tile> WB_DEVICE void load_b(u32* b, Tile tile, int k, int n) {
  const int l = lane_index();
  if constexpr (is_same<typename Tile::T, float>)
    for (int i = 0; i < 2; i++) b[i] = to_tf32(*tile.at(k + l % 4 + 4 * i, n + l / 4));
  else ldmatrix_x2_transposed(b, tile.at(k, l % 16, n));
}
template <class Tile> WB_DEVICE void load_b_transposed(u32* b, Tile tile, int k, int n) {
  const int l = lane_index();
  ldmatrix_x2(b, tile.at(n, l % 8, k + l / 8 % 2 * Tile::CHUNK));
  if constexpr (is_same<typename Tile::T, float>)
    for (int i = 0; i < 2; i++) b[i] = to_tf32(bits_to_f32(b[i]));
}
// a[4] for depth 16 out of two neighbouring results (columns 0 .. 7 and 8 .. 15): the product's second use as an
// operand, without shared memory. T is f16 or bf16. (thread)
template <class T> WB_DEVICE void accumulators_to_a(u32* a, const float* d0, const float* d1) {
  static_assert(sizeof(T) == 2, "tf32 fragments have another layout");
  a[0] = pack2<T>(d0[0], d0[1]);
  a[1] = pack2<T>(d0[2], d0[3]);
  a[2] = pack2<T>(d1[0], d1[1]);
  a[3] = pack2<T>(d1[2], d1[3]);
}

// ---------------------------------------------------------------- fragments (4 consecutive warps: a warpgroup)
// d (each warp its 16 rows, COUNT tiles of 8 columns) += a (each warp its own, as load_a has it) times rows k .. k + 15 of
// a tile of all COUNT * 8 columns. On sm_90a the warps multiply together, reading the tile once; elsewhere each for itself.
// Between warpgroup_begin and warpgroup_end neither d nor a may be touched.
#if defined(WB_WARPGROUP) && WB_WARPGROUP
WB_DEVICE void warpgroup_begin() { warpgroup_fence(); }
template <int COUNT> WB_DEVICE void warpgroup_end(float* d) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) keep_register(d[i]);
}
WB_DEVICE void shared_to_warpgroup_fence() { async_proxy_fence(); }
WB_DEVICE void warpgroup_arrive() { warpgroup_wait(); }  // all multiplications since warpgroup_begin are done
template <int COUNT, class Tile> WB_DEVICE void warpgroup_mma(float (*d)[4], const u32* a, Tile tile, int k) {
  static_assert(COUNT * 8 == Tile::COLS && Tile::COLS == Tile::STRIDE, "the product has the tile's columns");
  WarpgroupMma<is_same<typename Tile::T, f16>, COUNT * 8>::run(
      &d[0][0], a, warpgroup_descriptor<Tile::STRIDE * 2>(tile.base + k * Tile::STRIDE));
}
#else
WB_DEVICE void warpgroup_begin() {}
WB_DEVICE void warpgroup_arrive() {}
template <int COUNT> WB_DEVICE void warpgroup_end(float*) {}
WB_DEVICE void shared_to_warpgroup_fence() {}
template <int COUNT, class Tile> WB_DEVICE void warpgroup_mma(float (*d)[4], const u32* a, Tile tile, int k) {
  static_assert(COUNT * 8 == Tile::COLS && Tile::COLS == Tile::STRIDE, "the product has the tile's columns");
#pragma unroll
  for (int n = 0; n < COUNT; n += 2) {
    u32 b[4];
    load_b_pair(b, tile, k, n * 8);
    mma<typename Tile::T>(d[n], a, b);
    mma<typename Tile::T>(d[n + 1], a, b + 2);
  }
}
#endif

// Write one result d (16 x 8) to rows m .. and columns n .. (n a multiple of 8) of a tile, rounded to its type.
template <class Tile> WB_DEVICE void store_d(Tile tile, int m, int n, const float* d) {
  typedef typename Tile::T T;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    T* place = tile.at(m + mma_row(i), n + mma_col(i));
    Vec<T, 2> pair;
    if constexpr (is_same<T, float>) {
      pair.value[0] = d[i];
      pair.value[1] = d[i + 1];
    } else {
      pair.word[0] = pack2<T>(d[i], d[i + 1]);
    }
    register_to_shared(place, pair);
  }
}

// ---------------------------------------------------------------- reductions
// warp: sum (max) over WIDTH lanes that lie STRIDE apart, in each of them. <32>: the warp; <4>: the 4 lanes that hold a
// row of an mma result; <8, 4>: the 8 lanes that hold a column. Fixed order: the same bits in every lane and run.
template <int WIDTH = 32, int STRIDE = 1> WB_DEVICE float warp_sum(float x) {
  static_assert((WIDTH & (WIDTH - 1)) == 0 && WIDTH * STRIDE <= 32, "a power of two of lanes");
#pragma unroll
  for (int offset = STRIDE; offset < WIDTH * STRIDE; offset *= 2) x += shuffle_xor(x, offset);
  return x;
}
template <int WIDTH = 32, int STRIDE = 1> WB_DEVICE float warp_max(float x) {
  static_assert((WIDTH & (WIDTH - 1)) == 0 && WIDTH * STRIDE <= 32, "a power of two of lanes");
#pragma unroll
  for (int offset = STRIDE; offset < WIDTH * STRIDE; offset *= 2) x = maximum(x, shuffle_xor(x, offset));
  return x;
}
// block: sum (max) over all threads, in each of them. `scratch`: THREADS / 32 floats of shared memory, free again when
// the call returns.
template <int THREADS> WB_DEVICE float block_sum(float x, float* scratch) {
  x = warp_sum(x);
  if (lane_index() == 0) scratch[warp_index()] = x;
  block_barrier();
  float y = scratch[0];
#pragma unroll
  for (int w = 1; w < THREADS / 32; w++) y += scratch[w];
  block_barrier();
  return y;
}
template <int THREADS> WB_DEVICE float block_max(float x, float* scratch) {
  x = warp_max(x);
  if (lane_index() == 0) scratch[warp_index()] = x;
  block_barrier();
  float y = scratch[0];
#pragma unroll
  for (int w = 1; w < THREADS / 32; w++) y = maximum(y, scratch[w]);
  block_barrier();
  return y;
}
// thread: sum (max) over the SIZE blocks of the cluster of the N floats that each keeps at this place. Between the
// blocks' writes and this stands a cluster_barrier, and another before any block changes them or ends.
template <int SIZE, int N = 1> WB_DEVICE Vec<float, N> cluster_sum(const float* own_shared) {
  Vec<float, N> y = cluster_to_register<N>(own_shared, 0);
#pragma unroll
  for (int r = 1; r < SIZE; r++) {
    const Vec<float, N> x = cluster_to_register<N>(own_shared, r);
#pragma unroll
    for (int i = 0; i < N; i++) y.value[i] += x.value[i];
  }
  return y;
}
template <int SIZE, int N = 1> WB_DEVICE Vec<float, N> cluster_max(const float* own_shared) {
  Vec<float, N> y = cluster_to_register<N>(own_shared, 0);
#pragma unroll
  for (int r = 1; r < SIZE; r++) {
    const Vec<float, N> x = cluster_to_register<N>(own_shared, r);
#pragma unroll
    for (int i = 0; i < N; i++) y.value[i] = maximum(y.value[i], x.value[i]);
  }
  return y;
}

// ---------------------------------------------------------------- constants and activations (thread)
WB_DEVICE float infinity() { return bits_to_f32(0x7f800000u); }
// erf by formula 7.1.26 of Abramowitz and Stegun: absolute error at most 1.5e-7 beside that of fast_exp.
WB_DEVICE float fast_erf(float x) {
  const float z = x < 0.0f ? -x : x, t = fast_reciprocal(1.0f + 0.3275911f * z);
  const float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float y = 1.0f - p * fast_exp(-z * z);
  return x < 0.0f ? -y : y;
}
WB_DEVICE float fast_sigmoid(float x) { return fast_reciprocal(1.0f + fast_exp(-x)); }
WB_DEVICE float precise_sigmoid(float x) { return 1.0f / (1.0f + precise_exp(-x)); }
WB_DEVICE float fast_silu(float x) { return x * fast_sigmoid(x); }
WB_DEVICE float precise_silu(float x) { return x / (1.0f + precise_exp(-x)); }
WB_DEVICE float fast_gelu(float x) { return 0.5f * x * (1.0f + fast_erf(x * 0.707106781f)); }
WB_DEVICE float precise_gelu(float x) { return 0.5f * x * (1.0f + precise_erf(x * 0.707106781f)); }
}  // namespace wb
