// Vector types of the compiler, twelve sums that do not wait for one another. This file alone is compiled with
// contraction, so that a * b + c is one instruction; nothing of a model is computed here.
#include "measure/peak.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "core/clock.h"

namespace wp::measure {
namespace {

constexpr int kSums = 12;
constexpr int64_t kRound = 20'000;

// One round: kRound * kSums vector multiply-adds. Returns something that depends on all of them.
template <class Vector>
[[gnu::always_inline]] inline float fma_round(float seed) {
  Vector sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = Vector{} + (seed + static_cast<float>(i));
  const Vector factor = Vector{} + 0.999999f, term = Vector{} + 1e-6f;
  for (int64_t n = 0; n < kRound; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = sums[i] * factor + term;
  }
  Vector all = Vector{};
  for (int i = 0; i < kSums; ++i) all += sums[i];
  float out = 0;
  for (size_t lane = 0; lane < sizeof(Vector) / sizeof(float); ++lane) out += all[lane];
  return out;
}

using Vector4 = float __attribute__((vector_size(16)));
float round_4(float seed) { return fma_round<Vector4>(seed); }

struct Kind {
  float (*round)(float seed);
  int lanes;
  const char* name;
};

#if defined(__x86_64__)
using Vector8 = float __attribute__((vector_size(32)));
using Vector16 = float __attribute__((vector_size(64)));
__attribute__((target("avx2,fma"))) float round_8(float seed) { return fma_round<Vector8>(seed); }
__attribute__((target("avx512f"))) float round_16(float seed) { return fma_round<Vector16>(seed); }

Kind best_kind() {
  if (__builtin_cpu_supports("avx512f")) return {round_16, 16, "avx512f"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {round_8, 8, "avx2+fma"};
  return {round_4, 4, "sse"};
}
#else
Kind best_kind() { return {round_4, 4, "128 bit"}; }
#endif

// Runs work(thread) on all threads from one moment on; seconds until the last is done.
template <class Work>
double timed_together(int threads, const Work& work) {
  std::atomic<int> waiting{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> others;
  const auto run = [&](int thread) {
    ++waiting;
    while (!go) std::this_thread::yield();
    work(thread);
  };
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  while (waiting < threads - 1) std::this_thread::yield();
  const int64_t begin_ns = system_clock().now_ns();
  go = true;
  work(0);
  for (std::thread& other : others) other.join();
  return static_cast<double>(system_clock().now_ns() - begin_ns) * 1e-9;
}

}  // namespace

FmaPeak measure_fma_peak(int threads, double seconds) {
  const Kind kind = best_kind();
  std::atomic<float> sink{0};
  const auto rounds = [&](int64_t count) {
    return timed_together(threads, [&](int thread) {
      float sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += kind.round(static_cast<float>(thread) + sum * 1e-30f);
      sink = sum;
    });
  };
  rounds(10);  // Clocks rise.
  const int64_t count = std::max<int64_t>(1, static_cast<int64_t>(seconds / 3 / (rounds(10) / 10)));
  double best = 1e30;
  for (int i = 0; i < 3; ++i) best = std::min(best, rounds(count));
  const double flops = 2.0 * kind.lanes * kSums * kRound * static_cast<double>(count) * threads;
  return {flops / best * 1e-9, kind.name};
}

double measure_copy_bandwidth(int threads, int64_t buffer_bytes) {
  const int64_t part = buffer_bytes / threads / 64 * 64;
  const std::unique_ptr<char[]> from(new char[static_cast<size_t>(part * threads)]);
  const std::unique_ptr<char[]> to(new char[static_cast<size_t>(part * threads)]);
  std::memset(from.get(), 1, static_cast<size_t>(part * threads));
  std::memset(to.get(), 2, static_cast<size_t>(part * threads));
  double best = 1e30;
  for (int i = 0; i < 4; ++i)
    best = std::min(best, timed_together(threads, [&](int thread) {
                      std::memcpy(to.get() + thread * part, from.get() + thread * part, static_cast<size_t>(part));
                    }));
  return 2.0 * static_cast<double>(part * threads) / best;
}

}  // namespace wp::measure
