#include "core/threads.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "core/assert.h"

namespace wp {
namespace {

// How long a worker watches for the next run before it sleeps. Kernels of one step follow each other within
// microseconds; a step apart they may be milliseconds.
constexpr int kSpinsBeforeSleep = 20000;
// How long the caller waits for the last indices before it offers its core.
constexpr int kSpinsBeforeYield = 2000;

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::State {
  explicit State(int count) : threads_count(count) {}

  // Takes indices while there are any. What is left over is the release point of a run: who takes an index sees the
  // run's body, and the run does not end before that index is done. So a worker that wakes late, or that the system
  // does not schedule, finds nothing and is waited for by nobody.
  void work(int thread) {
    for (;;) {
      const int64_t remaining = left.fetch_sub(1, std::memory_order_acq_rel);
      if (remaining <= 0) return;
      body(context, count - remaining, thread);
      done.fetch_add(1, std::memory_order_release);
    }
  }

  void worker(int thread) {
    uint64_t seen = 0;
    for (;;) {
      int spins = 0;
      while (generation.load(std::memory_order_acquire) == seen) {
        if (++spins < kSpinsBeforeSleep) {
          pause_briefly();
          continue;
        }
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen; });
      }
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      work(thread);
    }
  }

  const int threads_count;
  std::vector<std::thread> workers;
  std::atomic<uint64_t> generation{0};
  std::atomic<int64_t> left{0};
  std::atomic<int64_t> done{0};
  std::atomic<bool> stop{false};
  int64_t count = 0;
  Erased body = nullptr;
  const void* context = nullptr;
  std::mutex mutex;
  std::condition_variable wake;
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>(threads)) {
  WP_ASSERT(threads >= 1);
  for (int i = 1; i < threads; ++i) state_->workers.emplace_back([this, i] { state_->worker(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop.store(true, std::memory_order_release);
    state_->generation.fetch_add(1, std::memory_order_acq_rel);
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return state_->threads_count; }

void ThreadPool::run_erased(int64_t count, Erased body, const void* context) {
  State& s = *state_;
  if (count <= 0) return;
  if (count == 1 || s.threads_count == 1) {
    for (int64_t i = 0; i < count; ++i) body(context, i, 0);
    return;
  }
  s.count = count;
  s.body = body;
  s.context = context;
  s.done.store(0, std::memory_order_relaxed);
  s.left.store(count, std::memory_order_release);
  {
    std::lock_guard lock(s.mutex);
    s.generation.fetch_add(1, std::memory_order_acq_rel);
  }
  s.wake.notify_all();
  s.work(0);
  for (int spins = 0; s.done.load(std::memory_order_acquire) != count; ++spins) {
    if (spins < kSpinsBeforeYield) pause_briefly();
    else std::this_thread::yield();  // On a busy machine the thread that holds the last index may need this core.
  }
}

}  // namespace wp
