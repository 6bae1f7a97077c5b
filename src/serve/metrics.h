// Metrics: counters and histograms of the serving layer, and their Prometheus text beside the engine's and the cache's
// (spec/api.md 11, spec/prefix_cache.md 15.3). Nothing is reset by a scrape. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/service.h"

namespace wp {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void observe(double value);
  void print(std::string& out, std::string_view name) const;
  // The lines alone, with one more label: `source="ram"`.
  void print_labelled(std::string& out, std::string_view name, std::string_view label) const;

 private:
  std::vector<double> bounds_;  // Upper ends, ascending; one more bucket is open.
  std::vector<int64_t> counts_;
  double sum_ = 0;
  int64_t count_ = 0;
};

// A finished generation, in numbers.
struct RecentRequest {
  int64_t number = 0;  // Of finished ones, from 1.
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t ttft_ns = 0, queue_ns = 0;
  MissReason miss = MissReason::none;
  Tier tier = Tier::device;
};

class Metrics {
 public:
  static constexpr size_t kRecentMax = 128;
  void count_http(std::string_view route, int status);
  void count_repair(std::string_view kind);  // A tool call that was not quite well formed.
  void count_template_error();
  void count_finish(std::string_view reason);    // stop, length, tool_calls.
  void count_cancelled(std::string_view phase);  // A client that left.
  void count_repeated_call();                    // A history with the same call three times.
  void count_volatile_lines(int lines);          // Taken out of system texts.
  void observe(const RequestStats& stats);       // Once per finished generation.
  void observe_gap(double seconds);              // Between two tokens of one stream.

  std::vector<RecentRequest> recent() const;  // The last kRecentMax, the oldest first.

  // The whole page. `service` may be null.
  std::string print(const Service* service) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> http_;
  std::map<std::string, int64_t, std::less<>> repairs_, finishes_, cancelled_;
  std::deque<RecentRequest> recent_;
  int64_t finished_ = 0;
  int64_t template_errors_ = 0, repeated_calls_ = 0, volatile_lines_ = 0;
  Histogram ttft_{latencies()}, gap_{gaps()}, total_{latencies()}, queue_{latencies()}, prefill_{latencies()},
      decode_{latencies()}, prompt_tokens_{sizes()}, generated_tokens_{sizes()};
  std::array<Histogram, kTiers> restores_{Histogram{latencies()}, Histogram{latencies()}, Histogram{latencies()}};

  static std::vector<double> latencies();
  static std::vector<double> gaps();
  static std::vector<double> sizes();
};

}  // namespace wp
