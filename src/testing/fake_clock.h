// FakeClock: time that moves when a test says so. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/clock.h"

namespace wp::testing {

class FakeClock final : public Clock {
 public:
  int64_t now_ns() override { return now_ns_.load(); }
  void advance(int64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

}  // namespace wp::testing
