// Runs one kernel launch on the host: the blocks of a cluster together, their threads as fibers, clusters one by one.
//
// Compiled once, linked with each kernel. A fiber runs until it meets others (barrier, warp collective, wait); the
// scheduler picks the next warp in an order given by the seed. Nothing can wait for ever: when no fiber can run, the
// report says where each group of threads stands. Not modelled: time, weak memory order, proxies.
#include <signal.h>
#include <time.h>

#include <string>

#include "host_warp.h"

namespace wb_host {
// ---------------------------------------------------------------- scheduler
static bool can_run(Fiber& f) {
  if (f.state == State::at_barrier && (phase_of(f.place, f.barrier).phase & 1) != (f.parity & 1)) f.state = State::ready;
  return f.state == State::ready;
}
static bool run_warp(Fiber* w, std::vector<int>& order) {
  bool moved = false;
  if (seed > 1) std::shuffle(order.begin(), order.end(), generator);
  for (int i : order) {
    Fiber& f = w[seed == 1 ? 31 - i : i];
    if (!can_run(f)) continue;
    running = &f;
    current = &f;
    self = &f;
    switch_to_fiber(f);
    moved = true;
  }
  int met = 0;
  for (int l = 0; l < 32; l++) met += w[l].state == State::at_warp;
  if (met == 32) {
    run_collective(w);
    moved = true;
  }
  return moved;
}
static void report_deadlock() {
  static const char* const names[] = {"ready",        "a warp collective", "block_barrier", "named_barrier",
                                      "cluster_wait", "barrier_wait",      "the end"};
  std::string text;
  std::vector<bool> told(fibers.size());
  const void* place = nullptr;
  int groups = 0;
  for (size_t i = 0; i < fibers.size(); i++) {
    if (told[i]) continue;
    int n = 0;
    for (size_t j = i; j < fibers.size(); j++)
      if (fibers[j].state == fibers[i].state && fibers[j].place == fibers[i].place && fibers[j].rank == fibers[i].rank) {
        told[j] = true;
        n++;
      }
    if (fibers[i].state != State::done && !place) {
      place = fibers[i].place;
      running = &fibers[i];
      current = running;
    }
    if (++groups > 8) continue;
    char one[200];
    const char* where = fibers[i].state == State::at_warp ? OP_NAMES[(int)fibers[i].op] : names[(int)fibers[i].state];
    snprintf(one, sizeof one, "%s%d threads from thread %u of block rank %d at %s @%p", text.empty() ? "" : "; ", n,
             fibers[i].thread.x, fibers[i].rank, where, fibers[i].place);
    text += one;
  }
  fail(place, "deadlock", "no thread can go on: %s", text.c_str());
}
static void run_cluster() {
  const int warps = (int)fibers.size() / 32;
  std::vector<int> order(32), warp_order(warps);
  for (int i = 0; i < 32; i++) order[i] = i;
  for (int i = 0; i < warps; i++) warp_order[i] = seed == 1 ? warps - 1 - i : i;
  for (;;) {
    bool moved = false;
    if (seed > 1) std::shuffle(warp_order.begin(), warp_order.end(), generator);
    for (int w : warp_order) {
      // a warp runs as far ahead of the others as it can, or (random) one step
      while (run_warp(&fibers[(size_t)w * 32], order)) {
        moved = true;
        if (seed > 1 && generator() % 4 == 0) break;
      }
      if (seed > 1 && generator() % 4 == 0) finish_bulk_copy();
    }
    if (moved) continue;
    if (finish_bulk_copy()) continue;
    bool ended = true;
    for (Fiber& f : fibers) ended = ended && f.state == State::done;
    if (ended) return;
    report_deadlock();
  }
}

// ---------------------------------------------------------------- launch
static void on_signal(int number, siginfo_t* info, void* context) {
  const void* place = nullptr;
#if defined(__x86_64__) && defined(__linux__)
  place = (void*)(((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] + 1);
#endif
  (void)context;
  const char* a = (const char*)info->si_addr;
  char where[160];
  if (number == SIGSEGV || number == SIGBUS) {
    for (Fiber& f : fibers)
      if (a >= f.stack_low - PAGE && a < f.stack_low)
        fail(place, "stack overflow", "a thread's local arrays need more than %td bytes", f.stack_high - f.stack_low);
    describe_address(a, where, sizeof where);
    fail(place, "out of bounds", "access at %s", where);
  }
  if (number == SIGILL || number == SIGTRAP)
    fail(place, "undefined", "an index outside a local array, or other undefined behaviour");
  fail(place, "arithmetic", number == SIGFPE ? "integer division by zero" : "signal %d", number);
}
static void start_cluster(u64 cluster, const Index& shape) {
  serial = (u32)cluster + 1;
  cluster_arrived = cluster_completed = 0;
  phases.clear();
  bulk_copies.clear();
  std::fill(clocks.begin(), clocks.end(), 0);
  std::fill(cluster_building.begin(), cluster_building.end(), 0);
  const u64 cx = grid_shape.x / shape.x, cy = grid_shape.y / shape.y;
  const Index first{(unsigned)(cluster % cx * shape.x), (unsigned)(cluster / cx % cy * shape.y),
                    (unsigned)(cluster / cx / cy * shape.z)};
  for (u32 rank = 0; rank < cluster_blocks; rank++) {
    blocks[rank] = Block{};
    blocks[rank].index = {first.x + rank % shape.x, first.y + rank / shape.x % shape.y, first.z + rank / shape.x / shape.y};
    block_ended[rank] = false;
    Region& r = shared_regions[rank];
    memset(r.low, 0xff, (size_t)(r.high - r.low));
    for (int t = 0; t < threads; t++) {
      Fiber& f = fibers[(size_t)rank * threads + t];
      f.thread = {(unsigned)t, 0, 0};
      f.block = blocks[rank].index;
      f.number = rank * threads + t;
      f.clock = &clocks[(size_t)f.number * (races ? cluster_threads : 0)];
      f.clock[races ? f.number : 0] = 1;
      f.rank = (int)rank;
      f.state = State::ready;
      f.group = f.arrivals = f.waits = 0;
      f.copies.clear();
      prepare(f);
    }
  }
  counts.blocks += cluster_blocks;
}
static int run(FILE* job, const char* data_path, const char* out_path) {
  Index cluster;
  unsigned shared_bytes;
  int count, stack_bytes, look_for_races;
  if (fscanf(job, "%u %u %u %d %u %u %u %u %d %d %d %d", &grid_shape.x, &grid_shape.y, &grid_shape.z, &threads, &cluster.x,
             &cluster.y, &cluster.z, &shared_bytes, &seed, &look_for_races, &stack_bytes, &count) != 12)
    fail(nullptr, "job", "the job file is broken");
  block_shape = {(unsigned)threads, 1, 1};
  cluster_blocks = cluster.x * cluster.y * cluster.z;
  cluster_threads = cluster_blocks * (u32)threads;
  races = look_for_races != 0;
  generator.seed((unsigned)seed);
  FILE* data = fopen(data_path, "rb");
  static char scalars[64][64];
  static void* pointers[64];
  void* values[64];
  for (int i = 0; i < count; i++) {
    char kind;
    size_t bytes;
    if (fscanf(job, " %c %zu", &kind, &bytes) != 2) fail(nullptr, "job", "the job file is broken");
    void* to = scalars[i];
    values[i] = scalars[i];
    if (kind == 'n') {
      pointers[i] = nullptr;
      values[i] = &pointers[i];
    } else if (kind != 's') {
      global_regions.push_back(map_region(bytes, 16, i, kind == 'c'));
      to = pointers[i] = global_regions.back().low;
      values[i] = &pointers[i];
    }
    if (bytes && fread(to, 1, bytes, data) != bytes) fail(nullptr, "job", "the data file is short");
  }
  fclose(data);
  arguments = values;
  for (Region& r : global_regions) {
    if (r.constant) mprotect(r.area, (size_t)(r.area_end - r.area), PROT_READ);
    else if (races) map_shadow(r);
  }
  for (u32 rank = 0; rank < cluster_blocks; rank++) {
    shared_regions.push_back(map_region(shared_bytes, 1024, -1 - (int)rank, false));
    map_shadow(shared_regions.back());
  }
  fibers = std::vector<Fiber>(cluster_threads);
  blocks.resize(cluster_blocks);
  block_ended.resize(cluster_blocks);
  clocks.resize(races ? (size_t)cluster_threads * cluster_threads : 1);
  cluster_building.resize(cluster_threads);
  cluster_finished.resize(cluster_threads);
  scratch_clock.resize(cluster_threads);
  const size_t each = round_up((size_t)stack_bytes, PAGE) + PAGE;
  char* stacks = static_cast<char*>(
      mmap(nullptr, each * cluster_threads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (stacks == MAP_FAILED) fail(nullptr, "memory", "no room for %u stacks of %d bytes", cluster_threads, stack_bytes);
  for (u32 i = 0; i < cluster_threads; i++) {
    mprotect(stacks + i * each, PAGE, PROT_NONE);
    fibers[i].stack_low = stacks + i * each + PAGE;
    fibers[i].stack_high = stacks + (i + 1) * each;
  }
  static char signal_stack[1 << 16];
  stack_t alternative{};
  alternative.ss_sp = signal_stack;
  alternative.ss_size = sizeof signal_stack;
  sigaltstack(&alternative, nullptr);
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP}) sigaction(number, &action, nullptr);

  std::vector<u32> clusters(grid_shape.x / cluster.x * (grid_shape.y / cluster.y) * (grid_shape.z / cluster.z));
  for (u32 i = 0; i < clusters.size(); i++) clusters[i] = seed == 1 ? (u32)clusters.size() - 1 - i : i;
  if (seed > 1) std::shuffle(clusters.begin(), clusters.end(), generator);
  timespec t0, t1;
  clock_gettime(CLOCK_MONOTONIC, &t0);
  for (u32 c : clusters) {
    start_cluster(c, cluster);
    run_cluster();
  }
  clock_gettime(CLOCK_MONOTONIC, &t1);
  running = nullptr;
  current = nullptr;
  for (auto* list : {&global_regions, &shared_regions})
    for (const Region& r : *list) check_slack(r);
  FILE* out = fopen(out_path, "wb");
  for (const Region& r : global_regions)
    if (!r.constant && fwrite(r.low, 1, (size_t)(r.high - r.low), out) != (size_t)(r.high - r.low))
      fail(nullptr, "job", "cannot write the outputs");
  if (fclose(out) != 0) fail(nullptr, "job", "cannot write the outputs");
  printf("%.6f %llu %llu %llu %llu %llu\n", (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec),
         counts.switches, counts.blocks, counts.mma, counts.ldmatrix, counts.ldmatrix_conflicts);
  for (const auto& [one, other] : suspects) printf("%p %p\n", one, other);
  return 0;
}
}  // namespace wb_host

// `kernel describe` prints the kernel's parameters; `kernel JOB DATA OUT` runs a launch.
int main(int argc, char** argv) {
  using namespace wb_host;
  if (argc == 2) {
    for (const Parameter* p = kernel_parameters; p->bytes; p++)
      printf("%c %u %d %u\n", p->kind, p->bytes, (int)p->constant, p->pointee_bytes);
    return 0;
  }
  FILE* job = argc == 4 ? fopen(argv[1], "r") : nullptr;
  return job ? run(job, argv[2], argv[3]) : 2;
}
