// Memory of a kernel that runs on the host: guarded regions, the race detector, and how a fault is reported.
//
// Part of host_runtime.cpp. Every buffer lies between unmapped pages and ends where a page ends, so a stray access
// faults even in an uninstrumented kernel; with instrumentation (-fsanitize=thread, whose callbacks are ours) each
// access is checked against the exact bytes. Races are found by vector clocks: two accesses to a granule of 2 bytes,
// one of them a write, that no barrier orders (FastTrack, Flanagan and Freund, PLDI 2009).
#pragma once
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "host_shim.h"

namespace wb_host {
constexpr size_t PAGE = 4096, GUARD = 16 << 20;
inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

struct Access {
  u32 serial, thread, clock;
};  // serial: number of the cluster that ran, 0 for none
struct Shadow {
  Access write, read, other_read;
  u32 in_flight;
};  // in_flight: 1 + thread whose copy is under way
struct Region {
  char *low, *high;       // exact bytes of the buffer
  char *area, *area_end;  // mapped pages around them
  int argument;           // index of the kernel's argument; -1 - rank: shared memory of a block
  bool constant;
  Shadow* shadow;  // one for 2 bytes, or null: races and copies in flight are not looked for
};
struct Fault {
  const char* kind;
};

// ---- the thread that runs now, as memory needs it
struct Clocked {
  u32 number;
  u32* clock;
  const void* place;
  char *stack_low, *stack_high;
  int rank;
};
inline Clocked* current = nullptr;
inline u32 serial = 0;           // of the cluster that runs
inline bool races = true;        // look for races
inline u32 cluster_threads = 0;  // threads of a cluster, the length of a clock
inline std::vector<Region> global_regions, shared_regions;
inline std::vector<bool> block_ended;
inline std::set<std::pair<const void*, const void*>> suspects;  // places that met at one barrier or collective

// Where the kernel called the runtime: for the report, and to see whether threads meet at one line.
#define WB_PLACE __builtin_extract_return_addr(__builtin_return_address(0))

void describe_thread(char* text, size_t n);  // "block (0,0,0) thread 5" of the running thread
inline bool reporting = false;
// Report an error and end the process; the parent turns addresses into lines.
[[noreturn]] inline void fail(const void* place, const char* kind, const char* format, ...) {
  if (reporting) _exit(4);
  reporting = true;
  char who[96] = "", text[1024];
  if (current) describe_thread(who, sizeof who);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "WB_HOST_ERROR\t%s\t%p\t%s\t%s\n", kind, place, who, text);
  fflush(stderr);
  _exit(3);
}

inline void name_region(const Region& r, char* text, size_t n) {
  if (r.argument >= 0) snprintf(text, n, "argument %d (%zu bytes)", r.argument, (size_t)(r.high - r.low));
  else snprintf(text, n, "shared memory of block rank %d (%zu bytes)", -1 - r.argument, (size_t)(r.high - r.low));
}
// "12 bytes past the end of argument 2 (4096 bytes)"; false if the address is near no buffer.
inline bool describe_address(const void* address, char* text, size_t n) {
  const char* a = static_cast<const char*>(address);
  const Region* best = nullptr;
  size_t best_distance = (size_t)-1;
  for (auto* list : {&global_regions, &shared_regions})
    for (const Region& r : *list) {
      const size_t d = a < r.low ? (size_t)(r.low - a) : a >= r.high ? (size_t)(a - r.high) : 0;
      if (d < best_distance) {
        best_distance = d;
        best = &r;
      }
    }
  if (!best || best_distance > (size_t)1 << 40) {
    snprintf(text, n, "address %p, in no buffer", address);
    return false;
  }
  char name[96];
  name_region(*best, name, sizeof name);
  if (a < best->low) snprintf(text, n, "%zu bytes before the start of %s", best_distance, name);
  else if (a >= best->high) snprintf(text, n, "%zu bytes past the end of %s", best_distance, name);
  else snprintf(text, n, "byte %zu of %s", (size_t)(a - best->low), name);
  return true;
}

// Map `bytes` between guards; the buffer ends at a page's end but for alignment. Slack holds a pattern that is checked.
constexpr unsigned char SLACK = 0xCB;
inline Region map_region(size_t bytes, size_t align, int argument, bool constant) {
  const size_t body = round_up(std::max<size_t>(bytes, 1), PAGE), padded = round_up(bytes, align);
  char* all =
      static_cast<char*>(mmap(nullptr, GUARD + body + GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (all == MAP_FAILED || mprotect(all + GUARD, body, PROT_READ | PROT_WRITE) != 0)
    fail(nullptr, "memory", "cannot map %zu bytes", bytes);
  char *area = all + GUARD, *low = area + body - padded;
  memset(area, SLACK, body);
  return Region{low, low + bytes, area, area + body, argument, constant, nullptr};
}
// Give a region its shadow: 20 bytes a byte, untouched pages cost nothing.
inline void map_shadow(Region& r) {
  const size_t n = ((size_t)(r.high - r.low) / 2 + 1) * sizeof(Shadow);
  void* p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail(nullptr, "memory", "cannot map %zu bytes", n);
  r.shadow = static_cast<Shadow*>(p);
}
inline void check_slack(const Region& r) {
  char name[96];
  for (const char* p = r.area; p < r.area_end; p++)
    if ((p < r.low || p >= r.high) && (unsigned char)*p != SLACK) {
      name_region(r, name, sizeof name);
      fail(nullptr, "out of bounds", "a thread wrote beside %s, %td bytes from its start", name, p - r.low);
    }
}

// The region whose pages or guards hold the address.
inline Region* find_region(uintptr_t a) {
  static Region* last = nullptr;
  if (last && a >= (uintptr_t)last->low && a < (uintptr_t)last->high) return last;
  for (auto* list : {&shared_regions, &global_regions})
    for (Region& r : *list)
      if (a >= (uintptr_t)r.area - GUARD && a < (uintptr_t)r.area_end + GUARD) return last = &r;
  return nullptr;
}

inline bool ordered(const Access& a) {
  return a.serial == serial && (a.thread == current->number || current->clock[a.thread] >= a.clock);
}
void describe_number(u32 thread, char* text, size_t n);  // "block rank 1 thread 5" of a thread of this cluster

[[noreturn]] inline void race(const void* place, uintptr_t a, const Access& before, bool was_write, bool write) {
  char where[160], whom[64] = "another cluster";
  describe_address((void*)a, where, sizeof where);
  if (before.serial == serial) describe_number(before.thread, whom, sizeof whom);
  fail(place, "race", "%s of %s, %s by %s with no barrier between", write ? "write" : "read", where,
       was_write ? "written" : "read", whom);
}
// Look at (and record) an access of the running thread to bytes that are known to lie in `r`.
inline void record(const void* place, Region& r, uintptr_t a, size_t n, bool write) {
  if (!r.shadow) return;
  const bool shared = r.argument < 0;
  const Access me{serial, current->number, current->clock[current->number]};
  for (size_t i = (a - (uintptr_t)r.low) / 2; i <= (a + n - 1 - (uintptr_t)r.low) / 2; i++) {
    Shadow& s = r.shadow[i];
    const uintptr_t at = (uintptr_t)r.low + 2 * i;
    if (s.in_flight) {
      char where[160];
      describe_address((void*)at, where, sizeof where);
      fail(place, "copy in flight", "%s of %s, which an asynchronous copy is still filling; wait for it, then pass a barrier",
           write ? "write" : "read", where);
    }
    if (!races) continue;
    if (shared && s.write.serial != serial) s.write.serial = 0;
    if (s.write.serial && !ordered(s.write)) race(place, at, s.write, true, write);
    if (shared && s.read.serial != serial) s.read.serial = s.other_read.serial = 0;
    if (!write) {
      if (!s.read.serial || ordered(s.read)) s.read = me;
      else s.other_read = me;
    } else {
      if (s.read.serial && !ordered(s.read)) race(place, at, s.read, false, write);
      if (s.other_read.serial && !ordered(s.other_read)) race(place, at, s.other_read, false, write);
      s.write = me;
      s.read.serial = s.other_read.serial = 0;
    }
  }
}
// Check n bytes at p: inside one buffer, not another block's, not constant if written, no race.
inline Region* access(const void* place, const void* p, size_t n, bool write, bool peer = false) {
  const uintptr_t a = (uintptr_t)p;
  if (current && a >= (uintptr_t)current->stack_low && a < (uintptr_t)current->stack_high) return nullptr;
  Region* r = find_region(a);
  if (!r) return nullptr;
  if (a < (uintptr_t)r->low || a + n > (uintptr_t)r->high) {
    char where[160];
    describe_address(a < (uintptr_t)r->low ? p : (const void*)std::max(a, (uintptr_t)r->high), where, sizeof where);
    fail(place, "out of bounds", "%s of %zu bytes, %s", write ? "write" : "read", n, where);
  }
  if (write && r->constant) fail(place, "write to input", "write to argument %d, which the kernel takes as const", r->argument);
  if (r->argument < 0) {
    const int rank = -1 - r->argument;
    if (!peer && current && rank != current->rank)
      fail(place, "out of bounds", "a plain access to the shared memory of block rank %d; use cluster_to_register", rank);
    if (block_ended[rank])
      fail(place, "cluster", "access to the shared memory of block rank %d, which has ended; a cluster_barrier is missing", rank);
  }
  if (current) record(place, *r, a, n, write);
  return r;
}
// An access by an intrinsic: as above, and it must lie in a buffer and be aligned.
inline Region* strict_access(const void* place, const void* p, size_t n, size_t align, bool write, bool peer = false) {
  if ((uintptr_t)p % align) {
    char where[160];
    describe_address(p, where, sizeof where);
    fail(place, "misaligned", "%s of %zu bytes at %s needs %zu-byte alignment", write ? "write" : "read", n, where, align);
  }
  Region* r = access(place, p, n, write, peer);
  if (!r) fail(place, "out of bounds", "%s of %zu bytes at %p, which is in no buffer", write ? "write" : "read", n, p);
  return r;
}
inline void set_in_flight(Region* r, const void* p, size_t n, u32 mark) {
  if (!r->shadow) return;
  const size_t first = ((uintptr_t)p - (uintptr_t)r->low) / 2;
  for (size_t i = 0; i < (n + 1) / 2; i++) r->shadow[first + i].in_flight = mark;
}

// ---- clocks
inline void join(u32* into, const u32* from) {
  for (u32 i = 0; i < cluster_threads; i++) into[i] = std::max(into[i], from[i]);
}
}  // namespace wb_host

// ---- callbacks of -fsanitize=thread in the kernel's object file; the library libtsan is not linked
#define WB_CALLBACK(name, bytes, write) \
  extern "C" void name(void* p) { wb_host::access(WB_PLACE, p, bytes, write); }
#define WB_CALLBACKS(bytes)                                                                         \
  extern "C" void __tsan_read##bytes(void* p) { wb_host::typed_access(WB_PLACE, p, bytes, false); } \
  extern "C" void __tsan_write##bytes(void* p) { wb_host::typed_access(WB_PLACE, p, bytes, true); }
namespace wb_host {
inline void typed_access(const void* place, void* p, size_t n, bool write) {
  if ((uintptr_t)p % n && find_region((uintptr_t)p)) strict_access(place, p, n, n, write);
  else access(place, p, n, write);
}
}  // namespace wb_host
WB_CALLBACKS(1)
WB_CALLBACKS(2) WB_CALLBACKS(4) WB_CALLBACKS(8) WB_CALLBACK(__tsan_read16, 16, false) WB_CALLBACK(__tsan_write16, 16, true)
    WB_CALLBACK(__tsan_unaligned_read2, 2, false) WB_CALLBACK(__tsan_unaligned_write2, 2, true)
        WB_CALLBACK(__tsan_unaligned_read4, 4, false) WB_CALLBACK(__tsan_unaligned_write4, 4, true)
            WB_CALLBACK(__tsan_unaligned_read8, 8, false) WB_CALLBACK(__tsan_unaligned_write8, 8, true)
                WB_CALLBACK(__tsan_unaligned_read16, 16, false)
                    WB_CALLBACK(__tsan_unaligned_write16, 16, true) extern "C" void __tsan_read_range(void* p, unsigned long n) {
  wb_host::access(WB_PLACE, p, n, false);
}
extern "C" void __tsan_write_range(void* p, unsigned long n) { wb_host::access(WB_PLACE, p, n, true); }
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
