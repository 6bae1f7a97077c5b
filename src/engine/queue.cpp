#include "engine/queue.h"

#include <utility>

namespace wp {

Result<void> RequestQueue::push(std::unique_ptr<Sequence> sequence) {
  std::lock_guard lock(mutex_);
  if (draining_) return Error{ErrorCode::unavailable, "the server is draining and takes no new requests"};
  if (waiting_ >= waiting_max_)
    return Error{ErrorCode::overloaded,
                 cat("queue: expected fewer than ", waiting_max_, " waiting requests, found ", waiting_.load())};
  sequence->order = static_cast<uint64_t>(submitted_++);
  ++waiting_;
  ++live_;
  fresh_.push_back(std::move(sequence));
  return {};
}

void RequestQueue::drain() {
  std::lock_guard lock(mutex_);
  draining_ = true;
}

void RequestQueue::order_cancel_all() {
  std::lock_guard lock(mutex_);
  orders_.cancel_before = static_cast<uint64_t>(submitted_);
}

void RequestQueue::order_flush() {
  std::lock_guard lock(mutex_);
  orders_.flush = true;
}

void RequestQueue::order_hold(const std::string& conversation) {
  std::lock_guard lock(mutex_);
  if (orders_.holds.size() < kHoldsMax) orders_.holds.push_back(conversation);
}

void RequestQueue::order_consolidation(Consolidation turn) {
  std::lock_guard lock(mutex_);
  if (draining_ || orders_.turns.size() >= kTurnsMax) return;
  ++turns_taken_;
  orders_.turns.push_back(std::move(turn));
}

void RequestQueue::order_transfer(std::shared_ptr<PathTransfer> transfer) {
  std::lock_guard lock(mutex_);
  orders_.transfers.push_back(std::move(transfer));
}

void RequestQueue::order_view(std::shared_ptr<CacheViewOrder> view) {
  {
    std::lock_guard lock(mutex_);
    if (orders_.views.size() < kViewsMax) return orders_.views.push_back(std::move(view));
  }
  view->give(nullptr);
}

Orders RequestQueue::take(std::deque<std::unique_ptr<Sequence>>& out) {
  std::lock_guard lock(mutex_);
  for (std::unique_ptr<Sequence>& sequence : fresh_) out.push_back(std::move(sequence));
  fresh_.clear();
  return std::exchange(orders_, {});
}

}  // namespace wp
