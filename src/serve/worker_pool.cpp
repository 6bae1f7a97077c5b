#include "serve/worker_pool.h"

#include <chrono>
#include <system_error>
#include <thread>

namespace wp {
namespace {

constexpr int kThreadsKept = 4;
constexpr auto kIdle = std::chrono::seconds(10);

}  // namespace

void WorkerPool::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
  ended_.wait(lock, [&] { return threads_ == 0; });
}

bool WorkerPool::post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return false;
  if (static_cast<int>(tasks_.size()) >= idle_) {  // Each waiting task has an idle thread of its own already.
    if (threads_ >= threads_max_) return false;
    try {
      std::thread([this] { work(); }).detach();
    } catch (const std::system_error&) {  // The system gives no more threads.
      return false;
    }
    ++threads_;
    ++idle_;  // Counted before it runs, so that the next post() does not take it for its own.
  }
  tasks_.push_back(std::move(task));
  wake_.notify_one();
  return true;
}

int WorkerPool::busy() const {
  const std::lock_guard lock(mutex_);
  return threads_ - idle_ + static_cast<int>(tasks_.size());
}

void WorkerPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    const bool woken = wake_.wait_for(lock, kIdle, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) {
      if (!stopping_ && (woken || threads_ <= kThreadsKept)) continue;
      break;
    }
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    --idle_;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    ++idle_;
  }
  --idle_;
  --threads_;
  ended_.notify_all();  // Under the lock: the destructor may free the pool as soon as it is released.
}

}  // namespace wp
