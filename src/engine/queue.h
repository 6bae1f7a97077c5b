// RequestQueue: where other threads leave requests and orders for the engine thread. Bounded: it counts everything
// that waits, here or already taken by the engine thread and not yet admitted.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/cache_view.h"
#include "engine/sequence.h"

namespace wp {

// What was asked of the engine since it last looked.
struct Orders {
  uint64_t cancel_before = 0;  // Requests of lower order are to end.
  bool flush = false;
  std::vector<std::string> holds;  // Conversations whose newest anchor is to be kept.
  std::vector<Consolidation> turns;
  std::vector<std::shared_ptr<PathTransfer>> transfers;
  std::vector<std::shared_ptr<CacheViewOrder>> views;
};

class RequestQueue {
 public:
  explicit RequestQueue(int32_t waiting_max) : waiting_max_(waiting_max) {}

  // Any thread. overloaded when full, unavailable when draining; the numbers are in the message.
  Result<void> push(std::unique_ptr<Sequence> sequence);
  void drain();
  void order_cancel_all();  // Of those submitted so far.
  void order_flush();
  void order_hold(const std::string& conversation);
  void order_consolidation(Consolidation turn);  // Not counted where it is not taken.
  void order_transfer(std::shared_ptr<PathTransfer> transfer);
  void order_view(std::shared_ptr<CacheViewOrder> view);  // Refused at once where too many wait.
  int64_t turns_taken() const { return turns_taken_.load(); }
  int64_t waiting() const { return waiting_.load(); }
  int64_t live() const { return live_.load(); }  // Submitted and not finished.
  int64_t submitted() const { return submitted_.load(); }

  // Engine thread.
  Orders take(std::deque<std::unique_ptr<Sequence>>& out);
  void one_left_the_queue() { --waiting_; }
  void one_finished() { --live_; }

 private:
  static constexpr size_t kHoldsMax = 1024;  // A hold is a wish; those above are forgotten.
  static constexpr size_t kTurnsMax = 64;    // So are finished turns.
  static constexpr size_t kViewsMax = 64;

  const int32_t waiting_max_;
  std::atomic<int64_t> waiting_{0}, live_{0}, submitted_{0}, turns_taken_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Sequence>> fresh_;
  Orders orders_;
  bool draining_ = false;
};

}  // namespace wp
