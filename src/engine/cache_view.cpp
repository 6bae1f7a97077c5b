#include "engine/cache_view.h"

#include <chrono>
#include <utility>

namespace wp {

std::shared_ptr<const CacheView> CacheViewOrder::wait_within(int64_t timeout_ns) {
  std::unique_lock guard(mutex_);
  given_.wait_for(guard, std::chrono::nanoseconds(timeout_ns), [&] { return done_; });
  return view_;
}

void CacheViewOrder::give(std::shared_ptr<const CacheView> view) {
  {
    const std::lock_guard guard(mutex_);
    done_ = true;
    view_ = std::move(view);
  }
  given_.notify_all();
}

}  // namespace wp
