// Clock: time as a parameter, so that a simulation repeats from its seed. Any thread.
#pragma once

#include <cstdint>

namespace wp {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() = 0;  // Monotonic, from an arbitrary origin.
};

// The machine's monotonic clock; one for the process, without state.
Clock& system_clock();
// Seconds since 1970, for wire fields and logs only.
int64_t unix_time_s();

}  // namespace wp
