// Device header of the workbench, part 3 of 3: what emitted kernels use beside intrinsics and tiles.
//
// Composed of parts 1 and 2 alone, so it is the same on the device and on the host.
#pragma once

namespace wb {
// ---------------------------------------------------------------- extents of tiles that end early (thread)
WB_DEVICE int lesser(int x, int y) { return x < y ? x : y; }
WB_DEVICE int greater(int x, int y) { return x > y ? x : y; }
// What is left of a tile of extent `full`.
WB_DEVICE int clamped(int left, int full) { return left < 0 ? 0 : left > full ? full : left; }

// block: set `bytes` (a multiple of 16) of shared memory to zero; no barrier.
template <int THREADS> WB_DEVICE void zero_shared(void* shared, int bytes) {
  Vec<u32, 4> zero;
#pragma unroll
  for (int i = 0; i < 4; i++) zero.word[i] = 0;
  for (int i = thread_index() * 16; i < bytes; i += THREADS * 16)
    register_to_shared(reinterpret_cast<u32*>(static_cast<unsigned char*>(shared) + i), zero);
}
// thread: round N floats to N elements of T (16 bits), two at a time.
template <class T, int N> WB_DEVICE Vec<T, N> rounded(const Vec<float, N>& v) {
  Vec<T, N> y;
  if constexpr (is_same<T, float>) {
#pragma unroll
    for (int i = 0; i < N; i++) y.value[i] = v.value[i];
  } else {
#pragma unroll
    for (int i = 0; i < N / 2; i++) y.word[i] = pack2<T>(v.value[2 * i], v.value[2 * i + 1]);
  }
  return y;
}
// block: add up SLICES slices of ROWS rows, row by row of STRIDE floats of which COLS count, into the first; no barrier.
template <int THREADS, int SLICES, int ROWS, int COLS, int STRIDE, bool MAXIMUM = false> WB_DEVICE void combine_slices(float* shared) {
  for (int i = thread_index(); i < ROWS * COLS; i += THREADS) {
    float* place = shared + i / COLS * STRIDE + i % COLS;
    float x = *place;
#pragma unroll
    for (int s = 1; s < SLICES; s++) {
      const float y = place[s * ROWS * STRIDE];
      x = MAXIMUM ? maximum(x, y) : x + y;
    }
    *place = x;
  }
}

// ---------------------------------------------------------------- rows scaled to fit float16 (thread)
WB_DEVICE float magnitude(float x) { return bits_to_f32(f32_to_bits(x) & 0x7fffffffu); }
// The largest power of two: what a row's scale starts from.
WB_DEVICE float largest_scale() { return bits_to_f32(0x7f000000u); }
// The lesser of a row's scale so far and the power of two that brings `largest` (at least 0) into [2^13, 2^14).
WB_DEVICE float lesser_scale(float scale, float largest) {
  const u32 exponent = f32_to_bits(largest) & 0x7f800000u, least = 13u << 23;
  const float found = bits_to_f32((267u << 23) - (exponent < least ? least : exponent));
  return found < scale ? found : scale;
}
// now / before, of powers of two with now <= before; 0 where the quotient is below 2^-126.
WB_DEVICE float shrinkage(float now, float before) {
  const u32 steps = (f32_to_bits(before) - f32_to_bits(now)) >> 23;
  return steps > 126u ? 0.0f : bits_to_f32((127u - steps) << 23);
}

// ---------------------------------------------------------------- operands with fewer rows than tensor cores read (warp)
// As load_a, load_b_pair_transposed and load_b_transposed of the matrix of ROWS rows from row `base` on: its last row stands
// for those beyond, whose results nobody reads.
static constexpr int EVERY_ROW = 1 << 30;
template <int ROWS, class Tile> WB_DEVICE void load_a_rows(u32* a, Tile tile, int base, int m, int k) {
  const int l = lane_index();
  ldmatrix_x4(a, tile.at(base + lesser(m + l % 16, ROWS - 1), k + l / 16 * Tile::CHUNK));
}
template <int ROWS, class Tile> WB_DEVICE void load_b_pair_rows(u32* b, Tile tile, int base, int k, int n) {
  const int l = lane_index();
  ldmatrix_x4(b, tile.at(base + lesser(n + l % 8 + l / 16 * 8, ROWS - 1), k + l / 8 % 2 * Tile::CHUNK));
}
template <int ROWS, class Tile> WB_DEVICE void load_b_rows(u32* b, Tile tile, int base, int k, int n) {
  const int l = lane_index();
  ldmatrix_x2(b, tile.at(base + lesser(n + l % 8, ROWS - 1), k + l / 8 % 2 * Tile::CHUNK));
}

// ---------------------------------------------------------------- products of float32 operands (warp)
// A float is the sum of two tf32 numbers to 2^-22 of it; three products of them (the fourth is below that) give float32
// accuracy. 16-bit elements are tf32 numbers themselves. The layout of fragments is that of mma_m16n8k8_tf32.
template <class Tile> WB_DEVICE void split_element(u32& high, u32& low, Tile tile, int row, int col) {
  const float x = to_f32(*tile.at(row, col));
  high = to_tf32(x);
  low = is_same<typename Tile::T, float> ? to_tf32(x - bits_to_f32(high)) : 0u;
}
// Rows m .. m + 15 and depth k .. k + 7 of a tile kept as [m][k], from row `base` on; TRANSPOSED: kept as [k][m].
// Here and below only the first ROWS rows from `base` on are kept, and the last stands for those beyond.
template <bool TRANSPOSED, int ROWS = EVERY_ROW, class Tile> WB_DEVICE void load_a_split(u32* high, u32* low, Tile tile, int base, int m, int k) {
  const int l = lane_index();
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = m + l / 4 + 8 * (i % 2), depth = k + l % 4 + 4 * (i / 2);
    if constexpr (TRANSPOSED) split_element(high[i], low[i], tile, base + depth, row);
    else split_element(high[i], low[i], tile, base + lesser(row, ROWS - 1), depth);
  }
}
// Columns n .. n + 15 (two fragments) and depth k .. k + 7 of a tile kept as [k][n]; TRANSPOSED: kept as [n][k].
template <bool TRANSPOSED, int ROWS = EVERY_ROW, int COUNT = 4, class Tile>
WB_DEVICE void load_b_pair_split(u32* high, u32* low, Tile tile, int base, int k, int n) {
  const int l = lane_index();
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    const int col = n + l / 4 + 8 * (i / 2), depth = k + l % 4 + 4 * (i % 2);
    if constexpr (TRANSPOSED) split_element(high[i], low[i], tile, base + lesser(col, ROWS - 1), depth);
    else split_element(high[i], low[i], tile, base + depth, col);
  }
}
// One fragment, columns n .. n + 7.
template <bool TRANSPOSED, int ROWS = EVERY_ROW, class Tile>
WB_DEVICE void load_b_split(u32* high, u32* low, Tile tile, int base, int k, int n) {
  load_b_pair_split<TRANSPOSED, ROWS, 2>(high, low, tile, base, k, n);
}
// d += (a_high + a_low)(b_high + b_low); LEFT (RIGHT) false: that operand has no low part.
template <bool LEFT, bool RIGHT> WB_DEVICE void mma_split(float* d, const u32* a_high, const u32* a_low, const u32* b_high, const u32* b_low) {
  if constexpr (LEFT) mma_m16n8k8_tf32(d, a_low, b_high);
  if constexpr (RIGHT) mma_m16n8k8_tf32(d, a_high, b_low);
  mma_m16n8k8_tf32(d, a_high, b_high);
}
}  // namespace wb
