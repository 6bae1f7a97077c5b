// Clock: time as a parameter, so that a simulation repeats from its seed. Any thread.
#pragma once

#include <cstdint>

namespace wp {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() = 0;  // Monotonic, from an arbitrary origin.
};

// Time that moves when it is told to. One thread.
class ManualClock final : public Clock {
 public:
  int64_t now_ns() override { return now_ns_; }
  void advance_ns(int64_t by_ns) { now_ns_ += by_ns; }

 private:
  int64_t now_ns_ = 1;
};

// The machine's monotonic clock; one for the process, without state.
Clock& system_clock();
// Seconds since 1970, for wire fields and logs only.
int64_t unix_time_s();

}  // namespace wp
