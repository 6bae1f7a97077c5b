// WorkerPool: threads that run one blocking handler each. Grows to its maximum while requests need threads, and shrinks
// when they have been idle for a while. post() from any thread; its end waits for what runs.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace wp {

class WorkerPool {
 public:
  explicit WorkerPool(int threads_max) : threads_max_(threads_max) {}
  ~WorkerPool() { stop(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False: every thread is busy and no further one may start. The task never waits behind another.
  bool post(std::function<void()> task);
  void stop();  // Nothing is taken any more; waits for what runs.
  int busy() const;

 private:
  void work();

  const int threads_max_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::deque<std::function<void()>> tasks_;
  int threads_ = 0, idle_ = 0;
  bool stopping_ = false;
};

}  // namespace wp
