// Recorder: what was launched on a stream, in order: the operation, the part of the model, its work and its time.
// Attached to a Stream by profiles, benchmarks and tests; a stream without one pays a comparison for each launch. Owned
// by whoever attaches it; the stream's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace wp {

class Device;
class Stream;

// Work of one launch, as far as it follows from shapes; 0: it depends on data.
struct Cost {
  double flops = 0, bytes = 0;
};

struct Launch {
  const char* op = nullptr;
  const char* place = "";  // Part of the model: "gdn"; Stream::enter.
  Cost cost;
  double begin_seconds = 0;  // Since the first launch.
  double seconds = 0;
};

class Recorder {
 public:
  // waiting: each launch has finished before the next begins. events: none waits; times are there after resolve().
  enum class Timing : uint8_t { waiting, events };

  explicit Recorder(size_t launches_max, Timing timing = Timing::waiting) : timing_(timing) {
    launches_.reserve(launches_max);
  }
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  const std::vector<Launch>& launches() const { return launches_; }
  void clear() { launches_.clear(); }

  void begin(Stream& stream, const char* op, const Cost& cost);
  void end(Stream& stream);
  // After the stream was synchronized.
  void resolve();

 private:
  double now() const;
  void* event(Stream& stream, size_t index);

  Timing timing_;
  std::vector<Launch> launches_;
  std::chrono::steady_clock::time_point zero_;
  Device* device_ = nullptr;   // Of the events.
  std::vector<void*> events_;  // Two for each launch.
};

}  // namespace wp
