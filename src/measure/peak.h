// What this machine can do, measured now: FP32 fused multiply-adds of so many threads, and copying of memory. The
// limits beside which speeds are reported. Uses threads of its own.
#pragma once

#include <cstdint>
#include <string>

namespace wp::measure {

struct FmaPeak {
  double gflops = 0;         // Two per multiply-add, all threads together.
  std::string instructions;  // "avx512f", "avx2+fma"
};

FmaPeak measure_fma_peak(int threads, double seconds = 0.3);
// Bytes read and written per second, in buffers too large for caches.
double measure_copy_bandwidth(int threads, int64_t buffer_bytes = 256 << 20);

}  // namespace wp::measure
