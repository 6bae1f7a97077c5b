// Recorder: the kernels launched on a stream, in order, and the time that each took. Attached to a Stream by benchmarks
// and tests; a stream without one pays a comparison for each launch. Owned by whoever attaches it; the stream's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace wp {

struct Launch {
  const char* op = nullptr;
  double seconds = 0;
};

class Recorder {
 public:
  explicit Recorder(size_t launches_max) { launches_.reserve(launches_max); }

  const std::vector<Launch>& launches() const { return launches_; }
  void clear() { launches_.clear(); }

  template <class Call>
  void time(const char* op, const Call& call) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    launches_.push_back({op, taken.count()});
  }

 private:
  std::vector<Launch> launches_;
};

}  // namespace wp
