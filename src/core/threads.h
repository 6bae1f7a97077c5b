// ThreadPool: a fixed set of threads that run one function over a range together. Created once, before the first
// step; run() is called by one thread at a time (the engine thread), which takes part. Never allocates in run().
#pragma once

#include <cstdint>
#include <memory>

namespace wp {

class ThreadPool {
 public:
  // `threads` in all, the caller of run() included; at least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(index, thread) once for each index in [0, count), and returns when all are done. Which thread takes
  // which index is open; so a body must not let its result depend on it (numerics: threads split rows and output
  // columns, never a sum).
  template <class Body>
  void run(int64_t count, const Body& body) {
    run_erased(
        count,
        [](const void* context, int64_t index, int thread) { (*static_cast<const Body*>(context))(index, thread); },
        &body);
  }

 private:
  using Erased = void (*)(const void* context, int64_t index, int thread);
  void run_erased(int64_t count, Erased body, const void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wp
