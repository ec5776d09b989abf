// Threads of a kernel on the host: fibers, the barriers they meet at, and the intrinsics that touch memory.
//
// Part of host_runtime.cpp. A fiber leaves the processor only where it must wait; asynchronous copies finish as late
// as the waits allow.
#pragma once
#include <random>

#include "host_memory.h"
#if !defined(__x86_64__) || defined(WB_UCONTEXT)
#undef WB_UCONTEXT
#define WB_UCONTEXT 1
#include <ucontext.h>
#endif

namespace wb_host {
using wb::bf16;
using wb::f16;
Index grid_shape, block_shape;
Lane* self = nullptr;

enum class State { ready, at_warp, at_block, at_named, at_cluster, at_barrier, done };
struct PendingCopy {
  void* to;
  const void* from;
  int bytes, valid;
  u32 group;
};
struct Fiber : Lane, Clocked {
  State state;
  Op op;
  int barrier_id;
  u64* barrier;
  u32 parity;
  u32 group, arrivals, waits;  // cp.async groups committed; cluster arrivals and waits
  std::vector<PendingCopy> copies;
#ifdef WB_UCONTEXT
  ucontext_t context;
#else
  void* stack_pointer;
#endif
};
struct Named {
  int arrived, expected;
};
struct Block {
  int rank, at_block, line, done;
  Index index;
  Named named[16];
};
struct Phase {
  u32 arrivals, pending;
  i64 bytes;
  u32 phase;
  std::vector<u32> building, finished;
};
struct BulkCopy {
  void* to;
  const void* from;
  u32 bytes;
  u64* barrier;
  u32 thread, clock;
  Region* region;
};

static std::vector<Fiber> fibers;
static std::vector<Block> blocks;
static std::vector<u32> clocks, cluster_building, cluster_finished, scratch_clock;
static std::vector<Phase> phases;
static std::vector<BulkCopy> bulk_copies;
static u32 cluster_arrived, cluster_completed, cluster_blocks = 1;
static int threads = 0, seed = 0;
static std::mt19937 generator;
static void** arguments = nullptr;
static Fiber* running = nullptr;
struct Counts {
  u64 switches, ldmatrix, ldmatrix_conflicts, mma, blocks;
};
static Counts counts;

static Fiber& me() { return *running; }
static Block& block_of(const Fiber& f) { return blocks[f.rank]; }
void describe_number(u32 thread, char* text, size_t n) {
  if (cluster_blocks > 1) snprintf(text, n, "block rank %u thread %u", thread / threads, thread % threads);
  else snprintf(text, n, "thread %u", thread);
}
void describe_thread(char* text, size_t n) {
  snprintf(text, n, "block (%u,%u,%u) thread %u", running->block.x, running->block.y, running->block.z, running->thread.x);
}

// ---------------------------------------------------------------- fibers
#ifdef WB_UCONTEXT
static ucontext_t scheduler;
static void switch_to_scheduler() {
  counts.switches++;
  swapcontext(&running->context, &scheduler);
}
static void switch_to_fiber(Fiber& f) { swapcontext(&scheduler, &f.context); }
#else
static void* scheduler = nullptr;
extern "C" void wb_switch(void** save, void* to);
asm(R"(
.text
.globl wb_switch
.type wb_switch,@function
wb_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size wb_switch,.-wb_switch
)");
static void switch_to_scheduler() {
  counts.switches++;
  wb_switch(&running->stack_pointer, scheduler);
}
static void switch_to_fiber(Fiber& f) { wb_switch(&scheduler, f.stack_pointer); }
#endif
static void finish_copies(Fiber& f, int pending);
static void body() {
  kernel_call(arguments);
  running->place = nullptr;
  finish_copies(*running, -1);
  running->state = State::done;
  if (++block_of(*running).done == threads) block_ended[running->rank] = true;
  switch_to_scheduler();
  abort();
}
static void prepare(Fiber& f) {
#ifdef WB_UCONTEXT
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack_low;
  f.context.uc_stack.ss_size = (size_t)(f.stack_high - f.stack_low);
  f.context.uc_link = nullptr;
  makecontext(&f.context, body, 0);
#else
  void** p = (void**)((uintptr_t)f.stack_high & ~(uintptr_t)15);
  *--p = nullptr;
  *--p = (void*)body;
  for (int i = 0; i < 6; i++) *--p = nullptr;
  f.stack_pointer = p;
#endif
}
static void wait_as(State state, const void* place) {
  me().state = state;
  me().place = place;
  switch_to_scheduler();
}

// ---------------------------------------------------------------- barriers and clocks
static void tick(Fiber& f) { f.clock[f.number]++; }
// All these threads have met: each knows what all did before.
template <class Group> static void join_all(const Group& group) {
  if (!races) return;
  std::fill(scratch_clock.begin(), scratch_clock.end(), 0);
  for (Fiber* f : group) join(scratch_clock.data(), f->clock);
  for (Fiber* f : group) {
    memcpy(f->clock, scratch_clock.data(), sizeof(u32) * cluster_threads);
    tick(*f);
  }
}
static void release(std::vector<Fiber*>& group) {
  for (Fiber* f : group)
    if (f->place != group[0]->place) {
      suspects.insert({group[0]->place, f->place});
      break;
    }
  join_all(group);
  for (Fiber* f : group) f->state = State::ready;
}
static std::vector<Fiber*> waiting(int rank, State state, int id = 0) {
  std::vector<Fiber*> group;
  for (int t = 0; t < threads; t++) {
    Fiber& f = fibers[(size_t)rank * threads + t];
    if (f.state == state && (state != State::at_named || f.barrier_id == id)) group.push_back(&f);
  }
  return group;
}
void block_barrier(int line) {
  Fiber& f = me();
  Block& b = block_of(f);
  if (b.at_block == 0) b.line = line;
  if (b.line != line)
    fail(WB_PLACE, "divergence", "the block meets at block_barrier from line %d and line %d; move it out of the branch", b.line,
         line);
  if (++b.at_block == threads) {
    b.at_block = 0;
    f.state = State::at_block;
    f.place = WB_PLACE;
    auto group = waiting(f.rank, State::at_block);
    release(group);
    switch_to_scheduler();
  } else wait_as(State::at_block, WB_PLACE);
}
void named_barrier(int id, int expected) {
  Fiber& f = me();
  Named& b = block_of(f).named[id];
  if (expected % 32 || expected <= 0 || expected > threads)
    fail(WB_PLACE, "barrier", "named_barrier<%d>(%d): whole warps of the block's %d threads", id, expected, threads);
  if (b.arrived && b.expected != expected)
    fail(WB_PLACE, "barrier", "named_barrier<%d> is called with %d and with %d threads", id, b.expected, expected);
  b.expected = expected;
  f.barrier_id = id;
  if (++b.arrived == expected) {
    b.arrived = 0;
    f.state = State::at_named;
    f.place = WB_PLACE;
    auto group = waiting(f.rank, State::at_named, id);
    release(group);
    switch_to_scheduler();
  } else wait_as(State::at_named, WB_PLACE);
}
void cluster_arrive() {
  Fiber& f = me();
  if (f.arrivals++ != f.waits) fail(WB_PLACE, "cluster", "cluster_arrive twice without cluster_wait");
  if (races) {
    join(cluster_building.data(), f.clock);
    tick(f);
  }
  if (++cluster_arrived == cluster_threads) {
    cluster_arrived = 0;
    cluster_completed++;
    cluster_finished = cluster_building;
    for (Fiber& g : fibers)
      if (g.state == State::at_cluster) g.state = State::ready;
  }
}
void cluster_wait() {
  Fiber& f = me();
  if (++f.waits != f.arrivals) fail(WB_PLACE, "cluster", "cluster_wait without cluster_arrive");
  if (cluster_completed < f.waits) wait_as(State::at_cluster, WB_PLACE);
  if (races) join(f.clock, cluster_finished.data());
}
u32 cluster_rank() { return (u32)me().rank; }
u32 cluster_size() { return cluster_blocks; }
unsigned char* dynamic_shared() { return (unsigned char*)shared_regions[me().rank].low; }

// ---------------------------------------------------------------- memory
void fail_index(i64 index, i64 extent, const char* what) {
  fail(WB_PLACE, "out of bounds", "%s %lld outside 0 .. %lld", what, index, extent - 1);
}
void load(void* to, const void* from, u32 bytes) {
  strict_access(WB_PLACE, from, bytes, std::min(bytes, 16u), false);
  memcpy(to, from, bytes);
}
void store(void* to, const void* from, u32 bytes) {
  strict_access(WB_PLACE, to, bytes, std::min(bytes, 16u), true);
  memcpy(to, from, bytes);
}
void add(float* global, float x) {  // atomic: no race with other additions; a plain access between barriers is not looked for
  if ((uintptr_t)global % 4) fail(WB_PLACE, "misaligned", "atomic_add needs 4-byte alignment");
  Region* r = find_region((uintptr_t)global);
  if (!r || r->argument < 0 || (char*)global < r->low || (char*)(global + 1) > r->high || r->constant)
    fail(WB_PLACE, "out of bounds", "atomic_add outside the writable buffers");
  *global += x;
}
static char* peer(const void* place, const void* own_shared, u32 rank) {
  Region& own = shared_regions[me().rank];
  if (rank >= cluster_blocks) fail(place, "cluster", "block rank %u in a cluster of %u", rank, cluster_blocks);
  if ((char*)own_shared < own.low || (char*)own_shared >= own.high)
    fail(place, "out of bounds", "the pointer is not into this block's shared memory");
  return shared_regions[rank].low + ((char*)own_shared - own.low);
}
void load_peer(void* to, const void* own_shared, u32 rank, u32 bytes) {
  const void* from = peer(WB_PLACE, own_shared, rank);
  strict_access(WB_PLACE, from, bytes, bytes, false, true);
  memcpy(to, from, bytes);
}
void store_peer(void* own_shared, u32 rank, const void* from, u32 bytes) {
  void* to = peer(WB_PLACE, own_shared, rank);
  strict_access(WB_PLACE, to, bytes, bytes, true, true);
  memcpy(to, from, bytes);
}
// Asynchronous copies finish as late as allowed: the destination is poisoned now and filled by the wait.
void copy_async(void* shared, const void* global, int bytes, int valid) {
  if (valid < 0 || valid > bytes) fail(WB_PLACE, "out of bounds", "cp.async of %d bytes with %d valid bytes", bytes, valid);
  Region* r = strict_access(WB_PLACE, shared, bytes, bytes, true);
  if (r->argument >= 0) fail(WB_PLACE, "out of bounds", "the destination of cp.async is not shared memory");
  if (valid > 0) {
    if ((uintptr_t)global % bytes) strict_access(WB_PLACE, global, bytes, bytes, false);
    strict_access(WB_PLACE, global, valid, 1, false);
  }
  memset(shared, 0xff, bytes);
  set_in_flight(r, shared, bytes, me().number + 1);
  me().copies.push_back({shared, global, bytes, valid, me().group});
}
void copy_commit() { me().group++; }
// Finish all but the latest `pending` committed groups; -1: everything, as at the thread's end.
static void finish_copies(Fiber& f, int pending) {
  size_t kept = 0;
  for (PendingCopy& c : f.copies) {
    if (pending >= 0 && (i64)c.group >= (i64)f.group - pending) {
      f.copies[kept++] = c;
      continue;
    }
    Region& r = shared_regions[f.rank];
    set_in_flight(&r, c.to, c.bytes, 0);
    memcpy(c.to, c.from, c.valid);
    memset((char*)c.to + c.valid, 0, c.bytes - c.valid);
    record(f.place, r, (uintptr_t)c.to, c.bytes, true);
  }
  f.copies.resize(kept);
}
void copy_wait(int pending) {
  me().place = WB_PLACE;
  finish_copies(me(), pending);
}

// ---------------------------------------------------------------- mbarriers and bulk copies
constexpr u64 BARRIER_TAG = 0xBA881E0000000000ull;
static Phase& phase_of(const void* place, const u64* barrier) {
  if ((*barrier & ~0xffffffffull) != BARRIER_TAG) fail(place, "barrier", "the mbarrier is not initialised, or was overwritten");
  return phases[(u32)*barrier];
}
static void settle(Phase& p) {
  if (p.pending != 0 || p.bytes != 0) return;
  p.phase++;
  p.pending = p.arrivals;
  p.finished = p.building;
}
void barrier_init(u64* barrier, u32 arrivals) {
  strict_access(WB_PLACE, barrier, 8, 8, true);
  *barrier = BARRIER_TAG | phases.size();
  phases.push_back({arrivals, arrivals, 0, 0, std::vector<u32>(cluster_threads), std::vector<u32>(cluster_threads)});
}
void barrier_arrive(u64* barrier, u32 bytes) {
  Phase& p = phase_of(WB_PLACE, barrier);
  if (p.pending == 0) fail(WB_PLACE, "barrier", "more than %u arrivals in one phase of an mbarrier", p.arrivals);
  if (races) {
    join(p.building.data(), me().clock);
    tick(me());
  }
  p.pending--;
  p.bytes += bytes;
  settle(p);
}
void barrier_wait(u64* barrier, u32 parity) {
  Phase& p = phase_of(WB_PLACE, barrier);
  me().barrier = barrier;
  me().parity = parity;
  if ((p.phase & 1) == (parity & 1)) wait_as(State::at_barrier, WB_PLACE);
  if (races) join(me().clock, phase_of(WB_PLACE, barrier).finished.data());
}
void bulk_copy(void* shared, const void* global, u32 bytes, u64* barrier) {
  phase_of(WB_PLACE, barrier);
  if (bytes % 16) fail(WB_PLACE, "misaligned", "a bulk copy of %u bytes; a multiple of 16 is needed", bytes);
  Region* r = strict_access(WB_PLACE, shared, bytes, 16, true);
  strict_access(WB_PLACE, global, bytes, 16, false);
  memset(shared, 0xff, bytes);
  set_in_flight(r, shared, bytes, me().number + 1);
  bulk_copies.push_back({shared, global, bytes, barrier, me().number, me().clock[me().number], r});
}
static bool finish_bulk_copy() {
  if (bulk_copies.empty()) return false;
  const size_t i = seed > 1 ? generator() % bulk_copies.size() : 0;
  const BulkCopy c = bulk_copies[i];
  bulk_copies.erase(bulk_copies.begin() + (long)i);
  set_in_flight(c.region, c.to, c.bytes, 0);
  memcpy(c.to, c.from, c.bytes);
  Phase& p = phase_of(nullptr, c.barrier);
  p.building[c.thread] = std::max(p.building[c.thread], c.clock);
  p.bytes -= c.bytes;
  settle(p);
  return true;
}
}  // namespace wb_host
