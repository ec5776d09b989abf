// Device header of the workbench, part 1 of 2: scalar types and the named intrinsics that touch the hardware.
//
// It includes nothing (NVRTC compiles it in milliseconds), is C++17 and runs on sm_80 and later; what needs sm_90
// says so. Long because it is one list of intrinsics. Kernels written with it hold no inline PTX, so the same text
// compiles as host C++: there the definitions of part 1 come from host_shim.h (threads of a block are fibers), and
// part 2, tiles.cuh, is shared word for word.
//
// Conventions
// - Blocks are one-dimensional and a multiple of 32 threads. lane = threadIdx.x % 32, warp = threadIdx.x / 32.
// - "warp": all 32 lanes call it together, converged. "block", "cluster": all threads call it together.
//   "thread": any thread calls it alone.
// - Fragments follow the PTX ISA, "Matrix fragments for mma": in a lane, g = lane / 4 and t = lane % 4.
// - A pointer named `shared` points into this block's shared memory, `global` into device memory.
// - Memory moves are named source_to_destination.
#pragma once

#ifndef WB_TYPES  // host_shim.h has them from this file already
#define WB_TYPES
namespace wb {
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

// Storage of a 16-bit number; arithmetic is done in float (to_f32, from_f32).
struct alignas(2) f16 {
  u16 bits;
};
struct alignas(2) bf16 {
  u16 bits;
};

template <class A, class B> struct same_type {
  static constexpr bool value = false;
};
template <class A> struct same_type<A, A> {
  static constexpr bool value = true;
};
template <class A, class B> constexpr bool is_same = same_type<A, B>::value;

// N consecutive elements of T, moved as one access of sizeof(T) * N bytes (4, 8, or a multiple of 16).
template <class T, int N> struct alignas(sizeof(T) * N >= 16 ? 16 : sizeof(T) * N) Vec {
  static constexpr int BYTES = sizeof(T) * N;
  static_assert(BYTES == 4 || BYTES == 8 || BYTES % 16 == 0, "a Vec has 4, 8 or a multiple of 16 bytes");
  union {
    u32 word[BYTES / 4];
    T value[N];
  };
};

// How a global load or store treats the caches.
// plain: as written. read_only: data no thread writes during this kernel (ld.global.nc).
// streaming: read or written once (loads skip L1 and prefetch 128 B into L2; stores are evicted first).
enum class Cache { plain, read_only, streaming };
}  // namespace wb
#endif

#ifdef __CUDACC__
#define WB_DEVICE __device__ __forceinline__
// A check of our own index arithmetic: costs nothing on the device, an error with its place on the host.
#define WB_CHECK_INDEX(index, extent, what) ((void)0)
// Declares `name`, an unsigned char* to the block's dynamic shared memory, 1024-byte aligned.
#define WB_DYNAMIC_SHARED(name)                                        \
  extern __shared__ __align__(1024) unsigned char wb_dynamic_shared[]; \
  unsigned char* const name = wb_dynamic_shared
// Cluster shape of a kernel, to be written beside __launch_bounds__; nothing before sm_90.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define WB_CLUSTER(x, y, z) __cluster_dims__(x, y, z)
#else
#define WB_CLUSTER(x, y, z)
#endif
// 1 where Hopper's instructions may be written (and in nvcc's host pass, which sees the text but compiles none of it).
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define WB_SM90 1
#else
#define WB_SM90 0
#endif
// 1 where the instructions of sm_90a alone, those of warpgroups, may be written.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WB_WARPGROUP 1
#else
#define WB_WARPGROUP 0
#endif

namespace wb {
// The 32-bit address of a shared-memory pointer, as PTX wants it. Not for kernels: no host definition.
WB_DEVICE u32 shared_address(const void* shared) { return (u32)__cvta_generic_to_shared(shared); }

// ---------------------------------------------------------------- threads and barriers
WB_DEVICE int thread_index() { return (int)threadIdx.x; }        // thread: 0 .. threads of the block - 1
WB_DEVICE int lane_index() { return (int)(threadIdx.x & 31u); }  // thread: 0 .. 31
WB_DEVICE int warp_index() { return (int)(threadIdx.x >> 5); }   // thread: uniform in a warp
// block: all threads have arrived and see each other's shared and global writes.
WB_DEVICE void block_barrier() { __syncthreads(); }
// `threads` threads (whole warps) of the block meet at hardware barrier ID 1..15, e.g. the consumers of a ring.
template <int ID> WB_DEVICE void named_barrier(int threads) {
  static_assert(ID >= 1 && ID <= 15, "barrier 0 is block_barrier's");
  asm volatile("bar.sync %0, %1;" ::"n"(ID), "r"(threads) : "memory");
}
// warp: lanes see each other's shared writes made before it.
WB_DEVICE void warp_barrier() { __syncwarp(); }
// thread (sm_90, else nothing): with a programmatic launch, wait until the kernels before this one have ended and
// their writes are seen. Must stand before the first read of what an earlier kernel wrote; pointers to that are not
// `const __restrict__`, which would let the compiler read earlier.
WB_DEVICE void grid_dependency_wait() {
#if WB_SM90
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// thread (sm_90, else nothing): allow the next kernel of a programmatic launch to start.
WB_DEVICE void grid_dependency_launch() {
#if WB_SM90
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---------------------------------------------------------------- bits and numbers (all: thread)
WB_DEVICE float bits_to_f32(u32 bits) { return __uint_as_float(bits); }
WB_DEVICE u32 f32_to_bits(float x) { return __float_as_uint(x); }
WB_DEVICE float to_f32(float x) { return x; }
WB_DEVICE float to_f32(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
WB_DEVICE float to_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
// Round to nearest even; beyond the range gives infinity.
template <class T> WB_DEVICE T from_f32(float x) {
  if constexpr (is_same<T, float>) {
    return x;
  } else {
    T y;
    if constexpr (is_same<T, f16>) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    else asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  }
}
// Two numbers in a 32-bit register, `low` in bits 0..15. T is f16 or bf16.
template <class T> WB_DEVICE u32 pack2(float low, float high) {
  u32 y;
  if constexpr (is_same<T, f16>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
template <class T> WB_DEVICE void unpack2(u32 packed, float& low, float& high) {
  if constexpr (is_same<T, f16>) {
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}" : "=f"(low), "=f"(high) : "r"(packed));
  } else {
    low = __uint_as_float(packed << 16);
    high = __uint_as_float(packed & 0xffff0000u);
  }
}
// The tf32 register of a float (10 mantissa bits, ties away from zero), as mma_m16n8k8_tf32 takes it.
WB_DEVICE u32 to_tf32(float x) {
  u32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

// fast_*: one or two hardware instructions (ex2, lg2, rsqrt, rcp: about 2 ulp; tanh: 2^-11); subnormals flush.
// precise_*: the CUDA math library, at most 2 ulp.
WB_DEVICE float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
WB_DEVICE float fast_exp(float x) { return fast_exp2(x * 1.44269504f); }
WB_DEVICE float fast_log(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y * 0.693147181f;
}
WB_DEVICE float fast_rsqrt(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
WB_DEVICE float fast_sqrt(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
WB_DEVICE float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
WB_DEVICE float fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The greater (lesser); NaN if either is NaN, as NumPy's maximum.
WB_DEVICE float maximum(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
WB_DEVICE float minimum(float x, float y) {
  float z;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
WB_DEVICE float precise_exp(float x) { return expf(x); }
WB_DEVICE float precise_log(float x) { return logf(x); }
WB_DEVICE float precise_rsqrt(float x) { return __frsqrt_rn(x); }
WB_DEVICE float precise_sqrt(float x) { return __fsqrt_rn(x); }
WB_DEVICE float precise_tanh(float x) { return tanhf(x); }
WB_DEVICE float precise_erf(float x) { return erff(x); }
WB_DEVICE float precise_pow(float x, float y) { return powf(x, y); }

// ---------------------------------------------------------------- global memory (all: thread)
// Load N elements; `global` is aligned to sizeof(T) * N bytes (to 16 at most).
template <int N, Cache CACHE = Cache::plain, class T> WB_DEVICE Vec<T, N> global_to_register(const T* global) {
  Vec<T, N> v;
  constexpr int STEP = Vec<T, N>::BYTES >= 16 ? 4 : Vec<T, N>::BYTES / 4;
  const u32* p = reinterpret_cast<const u32*>(global);
#pragma unroll
  for (int i = 0; i < Vec<T, N>::BYTES / 4; i += STEP) {
    if constexpr (STEP == 4) {
      if constexpr (CACHE == Cache::plain) {
        const uint4 q = *reinterpret_cast<const uint4*>(p + i);
        v.word[i] = q.x;
        v.word[i + 1] = q.y;
        v.word[i + 2] = q.z;
        v.word[i + 3] = q.w;
      } else if constexpr (CACHE == Cache::read_only)
        asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.word[i]), "=r"(v.word[i + 1]), "=r"(v.word[i + 2]), "=r"(v.word[i + 3])
                     : "l"(p + i));
      else
        asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.word[i]), "=r"(v.word[i + 1]), "=r"(v.word[i + 2]), "=r"(v.word[i + 3])
                     : "l"(p + i));
    } else if constexpr (STEP == 2) {
      if constexpr (CACHE == Cache::plain) {
        const uint2 q = *reinterpret_cast<const uint2*>(p);
        v.word[0] = q.x;
        v.word[1] = q.y;
      } else asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(v.word[0]), "=r"(v.word[1]) : "l"(p));
    } else {
      if constexpr (CACHE == Cache::plain) v.word[0] = *p;
      else asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v.word[0]) : "l"(p));
    }
  }
  return v;
}
// Store N elements; alignment as above. Cache::read_only is not for stores.
template <Cache CACHE = Cache::plain, class T, int N> WB_DEVICE void register_to_global(T* global, const Vec<T, N>& v) {
  static_assert(CACHE != Cache::read_only, "a store is plain or streaming");
  constexpr int STEP = Vec<T, N>::BYTES >= 16 ? 4 : Vec<T, N>::BYTES / 4;
  u32* p = reinterpret_cast<u32*>(global);
#pragma unroll
  for (int i = 0; i < Vec<T, N>::BYTES / 4; i += STEP) {
    if constexpr (STEP == 4) {
      if constexpr (CACHE == Cache::plain)
        *reinterpret_cast<uint4*>(p + i) = make_uint4(v.word[i], v.word[i + 1], v.word[i + 2], v.word[i + 3]);
      else
        asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p + i), "r"(v.word[i]), "r"(v.word[i + 1]),
                     "r"(v.word[i + 2]), "r"(v.word[i + 3])
                     : "memory");
    } else if constexpr (STEP == 2) {
      if constexpr (CACHE == Cache::plain) *reinterpret_cast<uint2*>(p) = make_uint2(v.word[0], v.word[1]);
      else asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(v.word[0]), "r"(v.word[1]) : "memory");
    } else {
      if constexpr (CACHE == Cache::plain) *p = v.word[0];
      else asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(p), "r"(v.word[0]) : "memory");
    }
  }
}
// Bring the 128-byte line of `global` into L2; no effect on meaning.
WB_DEVICE void prefetch_to_l2(const void* global) { asm volatile("prefetch.global.L2 [%0];" ::"l"(global)); }
// An L2 policy for cp_async_policy: data read by many blocks is kept (evict_last), data read once goes first.
WB_DEVICE u64 l2_evict_last() {
  u64 p;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p));
  return p;
}
WB_DEVICE u64 l2_evict_first() {
  u64 p;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
  return p;
}
// Add to a float in global memory; order of additions is not fixed, nothing is returned.
WB_DEVICE void atomic_add(float* global, float x) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(global), "f"(x) : "memory");
}

// ---------------------------------------------------------------- shared memory (all: thread)
template <int N, class T> WB_DEVICE Vec<T, N> shared_to_register(const T* shared) {
  return *reinterpret_cast<const Vec<T, N>*>(shared);
}
template <class T, int N> WB_DEVICE void register_to_shared(T* shared, const Vec<T, N>& v) {
  *reinterpret_cast<Vec<T, N>*>(shared) = v;
}

// ---------------------------------------------------------------- asynchronous copies, global to shared (all: thread)
// Start a copy of BYTES = 16, 8 or 4 bytes; both pointers aligned to BYTES. 16 bypasses L1. The data is there after
// this thread's cp_async_wait, and for other threads after a barrier that follows it.
template <int BYTES> WB_DEVICE void cp_async(void* shared, const void* global) {
  static_assert(BYTES == 16 || BYTES == 8 || BYTES == 4, "cp.async copies 16, 8 or 4 bytes");
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(shared)), "l"(global), "n"(BYTES) : "memory");
}
// The same; only the first `valid_bytes` (0 .. BYTES) are read, the rest of the destination becomes zero.
template <int BYTES> WB_DEVICE void cp_async_zero_fill(void* shared, const void* global, int valid_bytes) {
  static_assert(BYTES == 16 || BYTES == 8 || BYTES == 4, "cp.async copies 16, 8 or 4 bytes");
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(valid_bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global), "n"(BYTES),
                 "r"(valid_bytes)
                 : "memory");
}
// 16 bytes with an L2 policy (l2_evict_last, l2_evict_first) and zero fill.
WB_DEVICE void cp_async_policy(void* shared, const void* global, int valid_bytes, u64 policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid_bytes), "l"(policy)
               : "memory");
}
// Close this thread's group of copies (an empty group is allowed and keeps the count of a pipeline's tail).
WB_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Wait until at most the PENDING latest groups of this thread are unfinished.
template <int PENDING> WB_DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// ---------------------------------------------------------------- tensor cores (all: warp)
// ldmatrix: 8 x 8 matrices of 16-bit elements. Lane l gives the address of row l % 8 (16 bytes, 16-byte aligned) of
// matrix l / 8 (x1 uses lanes 0..7, x2 lanes 0..15; the others' addresses are ignored). Register i of a lane gets
// elements (g, 2t) and (g, 2t + 1) of matrix i; with _transposed elements (2t, g) and (2t + 1, g).
WB_DEVICE void ldmatrix_x1(u32* r, const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(shared_address(shared)) : "memory");
}
WB_DEVICE void ldmatrix_x2(u32* r, const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(shared))
               : "memory");
}
WB_DEVICE void ldmatrix_x4(u32* r, const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(shared))
               : "memory");
}
WB_DEVICE void ldmatrix_x1_transposed(u32* r, const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(r[0])
               : "r"(shared_address(shared))
               : "memory");
}
WB_DEVICE void ldmatrix_x2_transposed(u32* r, const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(shared))
               : "memory");
}
WB_DEVICE void ldmatrix_x4_transposed(u32* r, const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(shared))
               : "memory");
}

// d += a b, float accumulation. a: 16 x 16 row by row, b: 16 x 8, d: 16 x 8.
// a[0] (g, 2t..2t+1), a[1] (g + 8, 2t..), a[2] (g, 2t + 8..), a[3] (g + 8, 2t + 8..); two elements a register.
// b[0] (k = 2t..2t+1, n = g), b[1] (k = 2t + 8.., n = g). d[0..1] (g, 2t..2t+1), d[2..3] (g + 8, 2t..2t+1).
WB_DEVICE void mma_m16n8k16_f16(float* d, const u32* a, const u32* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
WB_DEVICE void mma_m16n8k16_bf16(float* d, const u32* a, const u32* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// The same for tf32 registers (to_tf32). a: 16 x 8, b: 8 x 8, d as above.
// a[0] (g, t), a[1] (g + 8, t), a[2] (g, t + 4), a[3] (g + 8, t + 4). b[0] (k = t, n = g), b[1] (k = t + 4, n = g).
WB_DEVICE void mma_m16n8k8_tf32(float* d, const u32* a, const u32* b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---------------------------------------------------------------- warp exchange (all: warp)
// T has 4 bytes. shuffle_xor: the value of lane ^ mask. shuffle: the value of `source_lane`.
template <class T> WB_DEVICE T shuffle_xor(T x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
template <class T> WB_DEVICE T shuffle(T x, int source_lane) { return __shfl_sync(0xffffffffu, x, source_lane); }
WB_DEVICE u32 warp_ballot(bool condition) { return __ballot_sync(0xffffffffu, condition); }  // bit l: lane l's condition

// ---------------------------------------------------------------- clusters (sm_90; before it a cluster is one block)
// thread: index of this block in its cluster, and the number of blocks.
WB_DEVICE u32 cluster_rank() {
  u32 r = 0;
#if WB_SM90
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
#endif
  return r;
}
WB_DEVICE u32 cluster_size() {
  u32 n = 1;
#if WB_SM90
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
#endif
  return n;
}
// cluster: after cluster_wait, what any thread of the cluster wrote before its cluster_arrive is seen. Each arrive is
// followed by one wait. A block must not end while another may still read its shared memory: end with a barrier.
WB_DEVICE void cluster_arrive() {
#if WB_SM90
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
WB_DEVICE void cluster_wait() {
#if WB_SM90
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}
WB_DEVICE void cluster_barrier() {
  cluster_arrive();
  cluster_wait();
}
// thread: read (write) what lies at the place of `own_shared` in the shared memory of block `rank` of the cluster.
template <int N> WB_DEVICE Vec<float, N> cluster_to_register(const float* own_shared, u32 rank) {
  Vec<float, N> v;
#if WB_SM90
  u32 p;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(p) : "r"(shared_address(own_shared)), "r"(rank));
  if constexpr (N == 1) asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v.word[0]) : "r"(p) : "memory");
  else if constexpr (N == 2)
    asm volatile("ld.shared::cluster.v2.u32 {%0,%1}, [%2];" : "=r"(v.word[0]), "=r"(v.word[1]) : "r"(p) : "memory");
  else {
    static_assert(N == 4, "1, 2 or 4 floats");
    asm volatile("ld.shared::cluster.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "r"(p)
                 : "memory");
  }
#else
  v = shared_to_register<N>(own_shared);
#endif
  return v;
}
template <int N> WB_DEVICE void register_to_cluster(float* own_shared, u32 rank, const Vec<float, N>& v) {
#if WB_SM90
  u32 p;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(p) : "r"(shared_address(own_shared)), "r"(rank));
  if constexpr (N == 1) asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(p), "r"(v.word[0]) : "memory");
  else if constexpr (N == 2)
    asm volatile("st.shared::cluster.v2.u32 [%0], {%1,%2};" ::"r"(p), "r"(v.word[0]), "r"(v.word[1]) : "memory");
  else {
    static_assert(N == 4, "1, 2 or 4 floats");
    asm volatile("st.shared::cluster.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(p), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]),
                 "r"(v.word[3])
                 : "memory");
  }
#else
  register_to_shared(own_shared, v);
#endif
}

#if WB_WARPGROUP
// ---------------------------------------------------------------- warpgroups (sm_90a; all: 4 consecutive warps together)
// Order this warpgroup's registers before its next multiplications.
WB_DEVICE void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Wait for all multiplications of this warpgroup.
WB_DEVICE void warpgroup_wait() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// Keep the compiler from using a result before the wait.
WB_DEVICE void keep_register(float& x) { asm volatile("" : "+f"(x)::"memory"); }
// Where b (16 x N, row by row, rows of 32, 64 or 128 bytes, swizzled over 8 rows) lies: PTX ISA, "Matrix descriptor".
template <int ROW_BYTES> WB_DEVICE u64 warpgroup_descriptor(const void* shared) {
  static_assert(ROW_BYTES == 32 || ROW_BYTES == 64 || ROW_BYTES == 128, "a row is one swizzled span");
  constexpr u64 MODE = ROW_BYTES == 128 ? 1 : ROW_BYTES == 64 ? 2 : 3, EIGHT_ROWS = 8 * ROW_BYTES;
  return (u64)((shared_address(shared) & 0x3ffffu) >> 4) | (EIGHT_ROWS >> 4) << 16 | (EIGHT_ROWS >> 4) << 32 | MODE << 62;
}
// d (64 x N, float; each warp its 16 rows, as mma_m16n8k16 has them) += a (as there) b; completes by warpgroup_wait.
template <bool IS_F16, int N> struct WarpgroupMma;
template <> struct WarpgroupMma<true, 16> {
  static WB_DEVICE void run(float* d, const u32* a, u64 b) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, "
        "{%8,%9,%10,%11}, %12, p, 1, 1, 1;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
template <> struct WarpgroupMma<false, 16> {
  static WB_DEVICE void run(float* d, const u32* a, u64 b) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, "
        "{%8,%9,%10,%11}, %12, p, 1, 1, 1;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
template <> struct WarpgroupMma<true, 32> {
  static WB_DEVICE void run(float* d, const u32* a, u64 b) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
        "{%16,%17,%18,%19}, %20, p, 1, 1, 1;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                 "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
template <> struct WarpgroupMma<false, 32> {
  static WB_DEVICE void run(float* d, const u32* a, u64 b) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
        "{%16,%17,%18,%19}, %20, p, 1, 1, 1;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                 "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
template <> struct WarpgroupMma<true, 64> {
  static WB_DEVICE void run(float* d, const u32* a, u64 b) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "{%32,%33,%34,%35}, %36, p, 1, 1, 1;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                 "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                 "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                 "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
template <> struct WarpgroupMma<false, 64> {
  static WB_DEVICE void run(float* d, const u32* a, u64 b) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "{%32,%33,%34,%35}, %36, p, 1, 1, 1;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                 "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                 "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                 "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
#endif

#if WB_SM90
// ---------------------------------------------------------------- mbarrier and bulk copies (sm_90; all: thread)
// A Barrier in shared memory completes a phase when `arrivals` threads have arrived and the announced bytes have landed.
typedef u64 Barrier;
// One thread initialises; then barrier_init_fence by that thread and block_barrier by all, before first use.
WB_DEVICE void barrier_init(Barrier* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
WB_DEVICE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory"); }
WB_DEVICE void barrier_arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrive and announce `bytes` that bulk copies will bring in this phase.
WB_DEVICE void barrier_arrive_expect(Barrier* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
// Wait for the end of the phase of parity `parity` (0 for the first, then 1, 0, ...).
WB_DEVICE void barrier_wait(Barrier* barrier, u32 parity) {
  asm volatile(
      "{.reg .pred p; WB_WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra WB_DONE; bra WB_WAIT; WB_DONE: }" ::
          "r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// Copy `bytes` (a multiple of 16; both pointers 16-byte aligned) by the copy engine; completes on `barrier`.
WB_DEVICE void bulk_global_to_shared(void* shared, const void* global, u32 bytes, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
// Order this thread's ordinary shared accesses before later accesses of the copy engine to the same place.
WB_DEVICE void async_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif
}  // namespace wb
#elif !defined(WB_HOST_SHIM)
#error "compile this file with nvcc or NVRTC, or as host C++ after host_shim.h"
#endif
