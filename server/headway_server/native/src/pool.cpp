// SPDX-License-Identifier: Apache-2.0
// A thread pool for hundreds of short parallel regions a step. A worker that the machine does not
// run in time misses a region instead of holding it up, so that a shared machine slows a step down
// by no more than the time it takes away.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "engine.h"
#include "pool.h"

namespace {

constexpr int SPINS = 2000;  // some 30 to 100 microseconds, longer than the gaps within a step
constexpr uint64_t OPEN = 1u << 31;
constexpr uint64_t JOINED = OPEN - 1;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct Pool {
  explicit Pool(int threads) {
    try {
      for (int worker = 1; worker < threads; ++worker)
        workers.emplace_back([this, worker] { serve(worker); });
    } catch (...) {
      stop();
      throw;
    }
  }

  ~Pool() { stop(); }

  void run(Task new_task, void* new_context, int new_count) {
    task = new_task;
    context = new_context;
    count = new_count;
    next.store(0, std::memory_order_relaxed);
    uint64_t number = (state.load(std::memory_order_relaxed) >> 32) + 1;
    state.store(number << 32 | OPEN, std::memory_order_release);
    call(static_cast<uint32_t>(number));
    work(0);
    state.fetch_and(~OPEN, std::memory_order_acq_rel);
    for (int spins = 0; state.load(std::memory_order_acquire) & JOINED; ++spins)
      spins < SPINS ? relax() : std::this_thread::yield();
  }

  std::vector<std::thread> workers;

 private:
  void call(uint32_t number) {
    region.store(number, std::memory_order_release);
    region.notify_all();
  }

  void work(int worker) {
    for (int index; (index = next.fetch_add(1, std::memory_order_relaxed)) < count;)
      task(context, index, worker);
  }

  void serve(int worker) {
    for (uint32_t seen = 0;;) {
      for (int spins = 0; spins < SPINS && region.load(std::memory_order_acquire) == seen; ++spins)
        relax();
      region.wait(seen, std::memory_order_acquire);
      seen = region.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_acquire)) return;
      join(seen, worker);
    }
  }

  void join(uint32_t number, int worker) {
    uint64_t now = state.load(std::memory_order_acquire);
    while ((now & OPEN) && static_cast<uint32_t>(now >> 32) == number) {
      if (!state.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) continue;
      work(worker);
      state.fetch_sub(1, std::memory_order_acq_rel);
      return;
    }
  }

  void stop() {
    stopping.store(true, std::memory_order_release);
    call(region.load(std::memory_order_relaxed) + 1);
    for (auto& worker : workers) worker.join();
    workers.clear();
  }

  std::atomic<uint64_t> state{0};  // number of the region, whether it may be joined, who has
  std::atomic<uint32_t> region{0};
  std::atomic<bool> stopping{false};
  std::atomic<int> next{0};
  Task task = nullptr;
  void* context = nullptr;
  int count = 0;
};

Pool* pool_open(int threads) { return new Pool(threads); }

void pool_close(Pool* pool) { delete pool; }

int pool_threads(const Pool* pool) { return static_cast<int>(pool->workers.size()) + 1; }

void pool_run(Pool* pool, Task task, void* context, int count) {
  if (count > 1 && !pool->workers.empty()) return pool->run(task, context, count);
  for (int index = 0; index < count; ++index) task(context, index, 0);
}
