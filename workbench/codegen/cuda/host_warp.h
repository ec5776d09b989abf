// Warp collectives on the host: shuffles, ldmatrix and mma, with the fragment layouts of the PTX ISA.
//
// Part of host_runtime.cpp. An operation runs once, when all 32 lanes have brought their registers to it.
#pragma once
#include "host_threads.h"

namespace wb_host {
void meet(Op op) {
  me().op = op;
  wait_as(State::at_warp, WB_PLACE);
}
static u16 half_of(u32 word, int i) { return (u16)(word >> 16 * (i & 1)); }
template <class T> static void run_mma16(Fiber* w) {
  float a[16][16], b[16][8];
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 8; i++) {
      const int g = l / 4, t = l % 4, reg = i / 2;
      a[g + 8 * (reg & 1)][2 * t + (i & 1) + 8 * (reg >> 1)] = wb::to_f32(T{half_of(w[l].in[reg], i)});
      if (i < 4) b[2 * t + (i & 1) + 8 * reg][g] = wb::to_f32(T{half_of(w[l].in[4 + reg], i)});
    }
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++) {
      float sum = 0;
      for (int k = 0; k < 16; k++) sum += a[l / 4 + 8 * (i / 2)][k] * b[k][l % 4 * 2 + i % 2];
      w[l].out[i] = wb::f32_to_bits(wb::bits_to_f32(w[l].in[6 + i]) + sum);
    }
}
static void run_mma8(Fiber* w) {  // tf32: the low 13 bits are not read
  float a[16][8], b[8][8];
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++) {
      a[l / 4 + 8 * (i & 1)][l % 4 + 4 * (i >> 1)] = wb::bits_to_f32(w[l].in[i] & 0xffffe000u);
      if (i < 2) b[l % 4 + 4 * i][l / 4] = wb::bits_to_f32(w[l].in[4 + i] & 0xffffe000u);
    }
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++) {
      float sum = 0;
      for (int k = 0; k < 8; k++) sum += a[l / 4 + 8 * (i / 2)][k] * b[k][l % 4 * 2 + i % 2];
      w[l].out[i] = wb::f32_to_bits(wb::bits_to_f32(w[l].in[6 + i]) + sum);
    }
}
static void run_ldmatrix(Fiber* w, bool transposed) {
  const int count = w[0].extra;
  for (int m = 0; m < count; m++) {
    u16 e[8][8];
    int groups[8] = {0};
    for (int r = 0; r < 8; r++) {
      Fiber& f = w[m * 8 + r];
      running = &f;
      current = &f;
      self = &f;
      strict_access(f.place, f.address, 16, 16, false);
      memcpy(e[r], f.address, 16);
      groups[(uintptr_t)f.address / 16 % 8]++;
    }
    counts.ldmatrix_conflicts += (u64)*std::max_element(groups, groups + 8) - 1;
    for (int l = 0; l < 32; l++) {
      const int g = l / 4, t = l % 4 * 2;
      w[l].out[m] = transposed ? e[t][g] | (u32)e[t + 1][g] << 16 : e[g][t] | (u32)e[g][t + 1] << 16;
    }
  }
  counts.ldmatrix++;
}
static const char* const OP_NAMES[] = {"none",     "warp_barrier",        "shuffle_xor", "shuffle",  "warp_ballot",
                                       "ldmatrix", "ldmatrix_transposed", "mma f16",     "mma bf16", "mma tf32"};
static void run_collective(Fiber* w) {
  for (int l = 1; l < 32; l++) {
    running = &w[l];
    current = &w[l];
    if (w[l].op != w[0].op)
      fail(w[l].place, "divergence", "a warp meets in %s (thread %u) and %s (thread %u)", OP_NAMES[(int)w[0].op], w[0].thread.x,
           OP_NAMES[(int)w[l].op], w[l].thread.x);
    if (w[l].place != w[0].place) suspects.insert({w[0].place, w[l].place});
  }
  switch (w[0].op) {
    case Op::none:
      break;
    case Op::warp_barrier: {
      std::vector<Fiber*> group;
      for (int l = 0; l < 32; l++) group.push_back(&w[l]);
      join_all(group);
      break;
    }
    case Op::shuffle_xor:
      for (int l = 0; l < 32; l++) w[l].out[0] = w[(l ^ w[l].extra) & 31].in[0];
      break;
    case Op::shuffle:
      for (int l = 0; l < 32; l++) w[l].out[0] = w[w[l].extra & 31].in[0];
      break;
    case Op::ballot: {
      u32 bits = 0;
      for (int l = 0; l < 32; l++) bits |= (u32)(w[l].in[0] != 0) << l;
      for (int l = 0; l < 32; l++) w[l].out[0] = bits;
      break;
    }
    case Op::ldmatrix:
      run_ldmatrix(w, false);
      break;
    case Op::ldmatrix_transposed:
      run_ldmatrix(w, true);
      break;
    case Op::mma_f16:
      run_mma16<f16>(w);
      counts.mma++;
      break;
    case Op::mma_bf16:
      run_mma16<bf16>(w);
      counts.mma++;
      break;
    case Op::mma_tf32:
      run_mma8(w);
      counts.mma++;
      break;
  }
  for (int l = 0; l < 32; l++) w[l].state = State::ready;
}
}  // namespace wb_host
