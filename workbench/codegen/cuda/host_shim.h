// Host definitions of the intrinsics of intrinsics.cuh: the kernel's text, unchanged, compiles after this file as C++17.
//
// A block's threads are fibers of host_runtime.cpp. Everything that touches memory or other threads goes through the
// runtime, which checks it; the rest is arithmetic. No standard header is included: a kernel compiles in a moment.
#pragma once
#define WB_HOST_SHIM 1
#include "intrinsics.cuh"  // its types alone; the device definitions are left out without __CUDACC__

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define WB_DEVICE inline __attribute__((always_inline))
#define WB_CLUSTER(x, y, z)
#define WB_SM90 1
#define WB_DYNAMIC_SHARED(name) unsigned char* const name = wb_host::dynamic_shared()
#define WB_CHECK_INDEX(index, extent, what)                                                      \
  do {                                                                                           \
    if ((unsigned)(index) >= (unsigned)(extent)) wb_host::fail_index((index), (extent), (what)); \
  } while (0)
#define threadIdx (wb_host::self->thread)
#define blockIdx (wb_host::self->block)
#define blockDim (wb_host::block_shape)
#define gridDim (wb_host::grid_shape)

extern "C" {
float expf(float);
float exp2f(float);
float logf(float);
float log2f(float);
float sqrtf(float);
float fabsf(float);
float tanhf(float);
float erff(float);
float erfcf(float);
float powf(float, float);
float fmaxf(float, float);
float fminf(float, float);
float floorf(float);
float ceilf(float);
float sinf(float);
float cosf(float);
float fmaf(float, float, float);
double exp(double);
double log(double);
double sqrt(double);
double tanh(double);
double erf(double);
double pow(double, double);
double fabs(double);
}
#ifndef INFINITY
#define INFINITY (__builtin_inff())
#endif

namespace wb_host {
using wb::i32;
using wb::i64;
using wb::u16;
using wb::u32;
using wb::u64;
struct Index {
  unsigned x, y, z;
};
// What the kernel sees of its thread, and the registers it brings to and takes from a warp collective.
struct Lane {
  Index thread, block;
  u32 in[10];
  u32 out[4];
  const void* address;
  int extra;
};
extern Lane* self;  // changes at every call into the runtime
extern Index grid_shape, block_shape;
enum class Op : int {
  none,
  warp_barrier,
  shuffle_xor,
  shuffle,
  ballot,
  ldmatrix,
  ldmatrix_transposed,
  mma_f16,
  mma_bf16,
  mma_tf32
};

unsigned char* dynamic_shared();
void meet(Op op);              // until the warp's 32 lanes have brought the same operation; then out[] is set
void block_barrier(int line);  // the line keeps the compiler from merging two calls, and threads must agree on it
void named_barrier(int id, int threads);
void cluster_arrive();
void cluster_wait();
u32 cluster_rank();
u32 cluster_size();
void load(void* to, const void* from, u32 bytes);  // checked: bounds, alignment to min(bytes, 16), races
void store(void* to, const void* from, u32 bytes);
void load_peer(void* to, const void* own_shared, u32 rank, u32 bytes);
void store_peer(void* own_shared, u32 rank, const void* from, u32 bytes);
void add(float* global, float x);
void copy_async(void* shared, const void* global, int bytes, int valid_bytes);
void copy_commit();
void copy_wait(int pending);
void barrier_init(u64* barrier, u32 arrivals);
void barrier_arrive(u64* barrier, u32 expected_bytes);
void barrier_wait(u64* barrier, u32 parity);
void bulk_copy(void* shared, const void* global, u32 bytes, u64* barrier);
[[noreturn]] void fail_index(i64 index, i64 extent, const char* what);

// Signature of a kernel, and its call from an array of pointers to the arguments.
struct Parameter {
  u32 bytes;
  char kind;
  bool constant;
  u32 pointee_bytes;
};  // kind: p pointer, i, u, f numbers, b bytes
template <class T> struct Describe {
  static constexpr Parameter value = {sizeof(T), 'b', true, 0};
};
template <class T> struct Size {
  static constexpr u32 value = sizeof(T);
};
template <> struct Size<void> {
  static constexpr u32 value = 0;
};
template <> struct Size<const void> {
  static constexpr u32 value = 0;
};
template <class T> struct Describe<T*> {
  static constexpr Parameter value = {sizeof(T*), 'p', false, Size<T>::value};
};
template <class T> struct Describe<const T*> {
  static constexpr Parameter value = {sizeof(T*), 'p', true, Size<T>::value};
};
#define WB_NUMBER(T, kind)                                         \
  template <> struct Describe<T> {                                 \
    static constexpr Parameter value = {sizeof(T), kind, true, 0}; \
  };
WB_NUMBER(bool, 'u')
WB_NUMBER(char, 'i') WB_NUMBER(signed char, 'i') WB_NUMBER(unsigned char, 'u') WB_NUMBER(short, 'i')
    WB_NUMBER(unsigned short, 'u') WB_NUMBER(int, 'i') WB_NUMBER(unsigned, 'u') WB_NUMBER(long, 'i') WB_NUMBER(unsigned long, 'u')
        WB_NUMBER(long long, 'i') WB_NUMBER(unsigned long long, 'u') WB_NUMBER(float, 'f') WB_NUMBER(double, 'f')
#undef WB_NUMBER
            template <class T> struct Undress {
  typedef T type;
};
template <class T> struct Undress<const T> {
  typedef T type;
};
template <class F> struct Entry;
template <class... P> struct Entry<void (*)(P...)> {
  static constexpr Parameter parameters[sizeof...(P) + 1] = {Describe<typename Undress<P>::type>::value..., {0, 0, false, 0}};
  template <class F> static void apply(F f, void**) { f(); }
  template <class Head, class... Tail, class F> static void apply(F f, void** a) {
    if constexpr (sizeof...(Tail) == 0) f(*static_cast<typename Undress<Head>::type*>(a[0]));
    else apply<Tail...>([=](Tail... rest) { f(*static_cast<typename Undress<Head>::type*>(a[0]), rest...); }, a + 1);
  }
  template <void (*KERNEL)(P...)> static void call(void** a) { apply<P...>(KERNEL, a); }
};
extern const Parameter* kernel_parameters;
extern void (*kernel_call)(void** arguments);
}  // namespace wb_host
#define WB_HOST_KERNEL(name)                                                   \
  namespace wb_host {                                                          \
  const Parameter* kernel_parameters = Entry<decltype(&name)>::parameters;     \
  void (*kernel_call)(void**) = &Entry<decltype(&name)>::template call<&name>; \
  }

namespace wb {
WB_DEVICE int thread_index() { return (int)threadIdx.x; }
WB_DEVICE int lane_index() { return (int)(threadIdx.x & 31u); }
WB_DEVICE int warp_index() { return (int)(threadIdx.x >> 5); }
WB_DEVICE void block_barrier(int line = __builtin_LINE()) { wb_host::block_barrier(line); }
template <int ID> WB_DEVICE void named_barrier(int threads) {
  static_assert(ID >= 1 && ID <= 15, "barrier 0 is block_barrier's");
  wb_host::named_barrier(ID, threads);
}
WB_DEVICE void warp_barrier() { wb_host::meet(wb_host::Op::warp_barrier); }
WB_DEVICE void grid_dependency_wait() {}
WB_DEVICE void grid_dependency_launch() {}

WB_DEVICE float bits_to_f32(u32 bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}
WB_DEVICE u32 f32_to_bits(float x) {
  u32 bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}
WB_DEVICE float to_f32(float x) { return x; }
WB_DEVICE float to_f32(f16 x) {
  const u32 sign = (u32)(x.bits & 0x8000u) << 16, rest = (u32)(x.bits & 0x7fffu) << 13;
  if (rest >= 0x0f800000u) return bits_to_f32(sign | 0x7f800000u | (rest & 0x007fffffu));  // infinity, NaN
  return bits_to_f32(sign | f32_to_bits(bits_to_f32(rest) * 0x1p112f));                    // exact, subnormals too
}
WB_DEVICE float to_f32(bf16 x) { return bits_to_f32((u32)x.bits << 16); }
WB_DEVICE u16 round_to_f16(float x) {
  const u32 bits = f32_to_bits(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return (u16)0x7fffu;
  if (rest >= 0x477ff000u) return (u16)(sign | 0x7c00u);  // 65520 and beyond round to infinity
  if (rest < 0x38800000u)
    return (u16)(sign | (f32_to_bits(bits_to_f32(rest) + 0.5f) - 0x3f000000u));  // subnormal: the sum rounds
  return (u16)(sign | ((rest + 0xfffu + (rest >> 13 & 1u) - 0x38000000u) >> 13));
}
WB_DEVICE u16 round_to_bf16(float x) {
  const u32 bits = f32_to_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)0x7fffu;
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
template <class T> WB_DEVICE T from_f32(float x) {
  if constexpr (is_same<T, float>) return x;
  else if constexpr (is_same<T, f16>) return f16{round_to_f16(x)};
  else return bf16{round_to_bf16(x)};
}
template <class T> WB_DEVICE u32 pack2(float low, float high) {
  return (u32)from_f32<T>(low).bits | (u32)from_f32<T>(high).bits << 16;
}
template <class T> WB_DEVICE void unpack2(u32 packed, float& low, float& high) {
  low = to_f32(T{(u16)packed});
  high = to_f32(T{(u16)(packed >> 16)});
}
WB_DEVICE u32 to_tf32(float x) {
  const u32 bits = f32_to_bits(x);
  return (bits & 0x7fffffffu) >= 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}

WB_DEVICE float fast_exp2(float x) { return exp2f(x); }
WB_DEVICE float fast_exp(float x) { return exp2f(x * 1.44269504f); }
WB_DEVICE float fast_log(float x) { return log2f(x) * 0.693147181f; }
WB_DEVICE float fast_rsqrt(float x) { return 1.0f / sqrtf(x); }
WB_DEVICE float fast_sqrt(float x) { return sqrtf(x); }
WB_DEVICE float fast_reciprocal(float x) { return 1.0f / x; }
WB_DEVICE float fast_tanh(float x) { return tanhf(x); }
WB_DEVICE float maximum(float x, float y) { return x != x || y != y ? __builtin_nanf("") : x > y ? x : y; }
WB_DEVICE float minimum(float x, float y) { return x != x || y != y ? __builtin_nanf("") : x < y ? x : y; }
WB_DEVICE float precise_exp(float x) { return expf(x); }
WB_DEVICE float precise_log(float x) { return logf(x); }
WB_DEVICE float precise_rsqrt(float x) { return (float)(1.0 / sqrt((double)x)); }
WB_DEVICE float precise_sqrt(float x) { return sqrtf(x); }
WB_DEVICE float precise_tanh(float x) { return tanhf(x); }
WB_DEVICE float precise_erf(float x) { return erff(x); }
WB_DEVICE float precise_pow(float x, float y) { return powf(x, y); }

template <int N, Cache CACHE = Cache::plain, class T> WB_DEVICE Vec<T, N> global_to_register(const T* global) {
  Vec<T, N> v;
  wb_host::load(&v, global, sizeof(v));
  return v;
}
template <Cache CACHE = Cache::plain, class T, int N> WB_DEVICE void register_to_global(T* global, const Vec<T, N>& v) {
  static_assert(CACHE != Cache::read_only, "a store is plain or streaming");
  wb_host::store(global, &v, sizeof(v));
}
WB_DEVICE void prefetch_to_l2(const void*) {}
WB_DEVICE u64 l2_evict_last() { return 1; }
WB_DEVICE u64 l2_evict_first() { return 2; }
WB_DEVICE void atomic_add(float* global, float x) { wb_host::add(global, x); }
template <int N, class T> WB_DEVICE Vec<T, N> shared_to_register(const T* shared) {
  Vec<T, N> v;
  wb_host::load(&v, shared, sizeof(v));
  return v;
}
template <class T, int N> WB_DEVICE void register_to_shared(T* shared, const Vec<T, N>& v) {
  wb_host::store(shared, &v, sizeof(v));
}

template <int BYTES> WB_DEVICE void cp_async(void* shared, const void* global) {
  static_assert(BYTES == 16 || BYTES == 8 || BYTES == 4, "cp.async copies 16, 8 or 4 bytes");
  wb_host::copy_async(shared, global, BYTES, BYTES);
}
template <int BYTES> WB_DEVICE void cp_async_zero_fill(void* shared, const void* global, int valid_bytes) {
  static_assert(BYTES == 16 || BYTES == 8 || BYTES == 4, "cp.async copies 16, 8 or 4 bytes");
  wb_host::copy_async(shared, global, BYTES, valid_bytes);
}
WB_DEVICE void cp_async_policy(void* shared, const void* global, int valid_bytes, u64) {
  wb_host::copy_async(shared, global, 16, valid_bytes);
}
WB_DEVICE void cp_async_commit() { wb_host::copy_commit(); }
template <int PENDING> WB_DEVICE void cp_async_wait() { wb_host::copy_wait(PENDING); }

// A warp collective: bring the registers, meet, take the result.
WB_DEVICE void ldmatrix_host(wb_host::Op op, u32* r, const void* shared, int count) {
  wb_host::self->address = shared;
  wb_host::self->extra = count;
  wb_host::meet(op);
  for (int i = 0; i < count; i++) r[i] = wb_host::self->out[i];
}
WB_DEVICE void ldmatrix_x1(u32* r, const void* shared) { ldmatrix_host(wb_host::Op::ldmatrix, r, shared, 1); }
WB_DEVICE void ldmatrix_x2(u32* r, const void* shared) { ldmatrix_host(wb_host::Op::ldmatrix, r, shared, 2); }
WB_DEVICE void ldmatrix_x4(u32* r, const void* shared) { ldmatrix_host(wb_host::Op::ldmatrix, r, shared, 4); }
WB_DEVICE void ldmatrix_x1_transposed(u32* r, const void* shared) {
  ldmatrix_host(wb_host::Op::ldmatrix_transposed, r, shared, 1);
}
WB_DEVICE void ldmatrix_x2_transposed(u32* r, const void* shared) {
  ldmatrix_host(wb_host::Op::ldmatrix_transposed, r, shared, 2);
}
WB_DEVICE void ldmatrix_x4_transposed(u32* r, const void* shared) {
  ldmatrix_host(wb_host::Op::ldmatrix_transposed, r, shared, 4);
}
WB_DEVICE void mma_host(wb_host::Op op, float* d, const u32* a, const u32* b) {
  u32* in = wb_host::self->in;
  for (int i = 0; i < 4; i++) {
    in[i] = a[i];
    in[6 + i] = f32_to_bits(d[i]);
  }
  in[4] = b[0];
  in[5] = b[1];
  wb_host::meet(op);
  for (int i = 0; i < 4; i++) d[i] = bits_to_f32(wb_host::self->out[i]);
}
WB_DEVICE void mma_m16n8k16_f16(float* d, const u32* a, const u32* b) { mma_host(wb_host::Op::mma_f16, d, a, b); }
WB_DEVICE void mma_m16n8k16_bf16(float* d, const u32* a, const u32* b) { mma_host(wb_host::Op::mma_bf16, d, a, b); }
WB_DEVICE void mma_m16n8k8_tf32(float* d, const u32* a, const u32* b) { mma_host(wb_host::Op::mma_tf32, d, a, b); }
template <class T> WB_DEVICE T exchange_host(wb_host::Op op, T x, int extra) {
  static_assert(sizeof(T) == 4, "a shuffle moves 4 bytes");
  __builtin_memcpy(wb_host::self->in, &x, 4);
  wb_host::self->extra = extra;
  wb_host::meet(op);
  __builtin_memcpy(&x, wb_host::self->out, 4);
  return x;
}
template <class T> WB_DEVICE T shuffle_xor(T x, int mask) { return exchange_host(wb_host::Op::shuffle_xor, x, mask); }
template <class T> WB_DEVICE T shuffle(T x, int source_lane) { return exchange_host(wb_host::Op::shuffle, x, source_lane); }
WB_DEVICE u32 warp_ballot(bool condition) { return exchange_host(wb_host::Op::ballot, (u32)condition, 0); }

WB_DEVICE u32 cluster_rank() { return wb_host::cluster_rank(); }
WB_DEVICE u32 cluster_size() { return wb_host::cluster_size(); }
WB_DEVICE void cluster_arrive() { wb_host::cluster_arrive(); }
WB_DEVICE void cluster_wait() { wb_host::cluster_wait(); }
WB_DEVICE void cluster_barrier() {
  cluster_arrive();
  cluster_wait();
}
template <int N> WB_DEVICE Vec<float, N> cluster_to_register(const float* own_shared, u32 rank) {
  Vec<float, N> v;
  wb_host::load_peer(&v, own_shared, rank, sizeof(v));
  return v;
}
template <int N> WB_DEVICE void register_to_cluster(float* own_shared, u32 rank, const Vec<float, N>& v) {
  wb_host::store_peer(own_shared, rank, &v, sizeof(v));
}

typedef u64 Barrier;
WB_DEVICE void barrier_init(Barrier* barrier, u32 arrivals) { wb_host::barrier_init(barrier, arrivals); }
WB_DEVICE void barrier_init_fence() {}
WB_DEVICE void barrier_arrive(Barrier* barrier) { wb_host::barrier_arrive(barrier, 0); }
WB_DEVICE void barrier_arrive_expect(Barrier* barrier, u32 bytes) { wb_host::barrier_arrive(barrier, bytes); }
WB_DEVICE void barrier_wait(Barrier* barrier, u32 parity) { wb_host::barrier_wait(barrier, parity); }
WB_DEVICE void bulk_global_to_shared(void* shared, const void* global, u32 bytes, Barrier* barrier) {
  wb_host::bulk_copy(shared, global, bytes, barrier);
}
WB_DEVICE void async_proxy_fence() {}
}  // namespace wb
