// Products of the shapes of the bundled model, in its formats: GFLOP/s and share of the FMA peak measured right before.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "core/numbers.h"
#include "core/rng.h"
#include "kernels/cpu/cpu.h"

namespace wp::kernels::cpu {
namespace {

double seconds_of(const std::chrono::steady_clock::time_point& begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double peak_gflops(Stream& stream) {
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const double count = multiply_adds(stream, 1'000'000);
    best = std::max(best, 2e-9 * count / seconds_of(begin));
  }
  return best;
}

Device& device() {
  static const std::unique_ptr<Device> made = std::move(Device::make(DeviceKind::cpu)).value();
  return *made;
}

void matmul_shape(benchmark::State& run) {
  const int64_t T = run.range(0), N = run.range(1), K = run.range(2);
  const auto format = static_cast<WeightFormat>(run.range(3));
  Stream stream(device());
  Rng rng(1);
  Matrix rows{.format = format, .N = N, .K = K};
  std::vector<uint8_t> data(static_cast<size_t>(rows.data_bytes()) + 64),
      scales(static_cast<size_t>(rows.scale_bytes()) + 64);
  for (size_t i = 0; i < data.size(); i += 2) {
    const uint16_t code = f32_to_bf16(static_cast<float>(rng.normal()));
    std::memcpy(&data[i], &code, 2);
  }
  for (uint8_t& byte : scales) byte = 0x38;
  rows.data = data.data();
  rows.scale = scales.data();
  auto packed = std::move(Buffer::make(device(), packing().size_bytes(rows), "weights")).value();
  const Matrix W = packing().pack(rows, packed.data());
  std::vector<float> x(static_cast<size_t>(T * K)), y(static_cast<size_t>(T * N));
  for (float& value : x) value = static_cast<float>(rng.normal());
  const Matmul args{.T = T, .W = W, .x = x.data(), .x_stride = K, .y = y.data(), .y_stride = N};
  const double peak = peak_gflops(stream);
  double best = 0;
  for (auto _ : run) {
    const auto begin = std::chrono::steady_clock::now();
    matmul(stream, args);
    best = std::max(best, 2e-9 * static_cast<double>(T * N * K) / seconds_of(begin));
  }
  run.counters["GFLOP/s"] = best;
  run.counters["peak"] = peak;
  run.counters["share"] = best / peak;
  run.counters["GB/s"] = best / 2 / static_cast<double>(T * N * K) * static_cast<double>(W.data_bytes());
}

constexpr int64_t kBf16 = static_cast<int64_t>(WeightFormat::bf16), kNvfp4 = static_cast<int64_t>(WeightFormat::nvfp4);
BENCHMARK(matmul_shape)
    ->ArgNames({"T", "N", "K", "format"})
    ->Args({512, 1280, 256, kBf16})
    ->Args({512, 3072, 256, kBf16})
    ->Args({512, 256, 1536, kBf16})
    ->Args({512, 256, 768, kBf16})
    ->Args({512, 1024, 32, kBf16})
    ->Args({512, 36, 1024, kBf16})
    ->Args({64, 64, 256, kNvfp4})
    ->Args({1, 1280, 256, kBf16})
    ->Args({1, 8192, 256, kBf16})
    ->Args({1, 256, 1536, kBf16})
    ->Args({4, 1280, 256, kBf16})
    ->Args({8, 1280, 256, kBf16})
    ->UseRealTime();

}  // namespace
}  // namespace wp::kernels::cpu
