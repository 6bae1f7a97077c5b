// The operations at the flagship's shapes (spec/qwen4_exp.md 1.3) on the cuda backend, where there is one: time of
// each, TFLOP/s and GB/s. Weights are random, and each repetition takes another copy of them, so that none is in a
// cache.
//   ops_bench --benchmark_filter=flagship
#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <cstring>

#include "core/numbers.h"
#include "core/rng.h"
#include "ops/gdn.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/packing.h"
#include "ops/residual.h"

namespace wp {
namespace {

constexpr int64_t kM = 2560;

// Memory of one case on the device, filled from the host.
class Case {
 public:
  explicit Case(Device& device) : device_(device), stream_(device) {
    const Tensor lent = blank({8192, 4 * kM * 2}, DType::u8);
    stream_.lend(lent.data, lent.size_bytes());
  }

  Stream& stream() { return stream_; }
  Tensor blank(const Shape& shape, DType dtype = DType::f32) {
    auto made = Buffer::make(device_, shape.count() * size_bytes(dtype), "bench", Memory::device);
    WP_ASSERT(made.ok());
    buffers_.push_back(std::move(*made));
    return buffers_.back().view(dtype, shape);
  }
  // Numbers in [-scale, scale), repeated with a period that no width divides.
  Tensor filled(const Shape& shape, float scale = 1) {
    const Tensor tensor = blank(shape);
    std::vector<float> values(static_cast<size_t>(std::min<int64_t>(shape.count(), 1'000'003)));
    for (float& value : values) value = static_cast<float>(2 * rng_.real() - 1) * scale;
    fill(tensor.data, shape.count() * 4, values.data(), static_cast<int64_t>(values.size()) * 4);
    return tensor;
  }
  Matrix matrix(WeightFormat format, int64_t N, int64_t K) {
    Matrix rows{.format = format, .N = N, .K = K, .scale_2 = 0.01f};
    std::vector<uint8_t> codes(1'000'004), scales(1'000'003);
    for (size_t i = 0; i + 1 < codes.size(); i += 2) {
      const uint16_t code = f32_to_bf16(static_cast<float>(rng_.normal() * 0.02));
      std::memcpy(&codes[i], &code, 2);
      if (format != WeightFormat::bf16) codes[i] = static_cast<uint8_t>(rng_.next()), codes[i + 1] = codes[i] ^ 0x5A;
    }
    for (uint8_t& scale : scales) scale = static_cast<uint8_t>(rng_.between(0x28, 0x40));
    const Tensor data = blank({rows.data_bytes()}, DType::u8);
    fill(data.data, rows.data_bytes(), codes.data(), static_cast<int64_t>(codes.size()));
    rows.data = data.data;
    if (rows.scale_bytes() > 0) {
      const Tensor scale = blank({rows.scale_bytes()}, DType::u8);
      fill(scale.data, rows.scale_bytes(), scales.data(), static_cast<int64_t>(scales.size()));
      rows.scale = scale.data;
    }
    return rows;
  }
  Tensor integers(const std::vector<int32_t>& values) {
    const Tensor tensor = blank({static_cast<int64_t>(values.size())}, DType::i32);
    device_.copy(tensor.data, values.data(), static_cast<int64_t>(values.size()) * 4);
    return tensor;
  }
  template <class T>
  T* placed(const std::vector<T>& values, Memory memory = Memory::device) {
    auto made = Buffer::make(device_, static_cast<int64_t>(values.size() * sizeof(T)), "bench", memory);
    WP_ASSERT(made.ok());
    buffers_.push_back(std::move(*made));
    device_.copy(buffers_.back().data(), values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
    return reinterpret_cast<T*>(buffers_.back().data());
  }

 private:
  void fill(std::byte* to, int64_t bytes, const void* from, int64_t from_bytes) {
    for (int64_t at = 0; at < bytes; at += from_bytes) device_.copy(to + at, from, std::min(from_bytes, bytes - at));
  }

  Device& device_;
  Stream stream_;
  Rng rng_{1};
  std::vector<Buffer> buffers_;
};

Device* device() {
  static const std::unique_ptr<Device> made = [] {
    auto found = Device::make(DeviceKind::cuda, 1);
    return found.ok() ? std::move(*found) : nullptr;
  }();
  return made.get();
}

// The median of several launches, each waited for, after two that do not count.
template <class Launch>
void measure(benchmark::State& run, Case& c, double flop, double bytes, Launch launch) {
  int64_t i = 0;
  std::vector<double> seconds;
  for (; i < 2; ++i) launch(i);
  c.stream().synchronize();
  for (auto _ : run) {
    const auto begin = std::chrono::steady_clock::now();
    launch(i++);
    c.stream().synchronize();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    run.SetIterationTime(seconds.back());
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(seconds.size() / 2), seconds.end());
  const double median = seconds[seconds.size() / 2];
  run.counters["us"] = median * 1e6;
  run.counters["TFLOPs"] = flop / median * 1e-12;
  run.counters["GBs"] = bytes / median * 1e-9;
}

void flagship_matmul(benchmark::State& run, WeightFormat format, int64_t N, int64_t K) {
  if (!device()) return run.SkipWithError("no cuda device");
  Case c(*device());
  const int64_t T = run.range(0);
  std::vector<Matrix> weights;
  for (int i = 0; i < 3; ++i) weights.push_back(c.matrix(format, N, K));
  const Tensor x = c.filled({T, K}), y = c.blank({T, N});
  const double weight = static_cast<double>(weights[0].data_bytes() + weights[0].scale_bytes());
  measure(run, c, 2.0 * static_cast<double>(T * N * K), weight + 4.0 * static_cast<double>(T * (N + K)),
          [&](int64_t i) { ops::matmul(c.stream(), x, weights[static_cast<size_t>(i % 3)], y); });
}

void flagship_experts(benchmark::State& run) {
  if (!device()) return run.SkipWithError("no cuda device");
  Case c(*device());
  constexpr int64_t kF = 640, kE = 512, kA = 10;
  const int64_t T = run.range(0);
  std::vector<kernels::ExpertWeights> experts;
  for (int64_t e = 0; e < kE; ++e)
    experts.push_back({.gate = c.matrix(WeightFormat::nvfp4, kF, kM),
                       .up = c.matrix(WeightFormat::nvfp4, kF, kM),
                       .down = c.matrix(WeightFormat::nvfp4, kM, kF)});
  const auto* matrices = c.placed(experts);
  const ops::Routing routing{.experts = c.blank({T, kA}, DType::i32),
                             .weights = c.blank({T, kA}),
                             .offsets = c.blank({kE + 1}, DType::i32),
                             .order = c.blank({T * kA}, DType::i32)};
  ops::router(c.stream(), c.filled({T, kE}, 3), true, routing);
  const Tensor x = c.filled({T, kM}), y = c.blank({T, kM}), gate = c.filled({T, 1});
  const int64_t parts = device()->workspaces(), each = 1 << 16;
  const ops::ExpertsScratch scratch{
      .hidden = c.blank({T * kA, 2 * kF}),
      .outputs = c.blank({T * kA, kM}),
      .workspace = {.data = c.blank({parts * each}, DType::u8).data, .bytes_per_thread = each, .threads = parts}};
  const double touched = std::min<double>(kE, static_cast<double>(T * kA));
  measure(run, c, 6.0 * static_cast<double>(T * kA * kF * kM), touched * 3 * kF * kM * 9 / 16, [&](int64_t) {
    ops::experts(c.stream(), {matrices, kE}, experts[0], x, routing, x, gate, y, scratch);
  });
}

constexpr ops::GdnHeads kGdn{.HK = 16, .HV = 48, .DK = 128, .DV = 128};

// A pass of `sequences` segments with `rows` each, states in slots of their own.
kernels::BatchView gdn_batch(Case& c, int32_t sequences, int32_t rows, int64_t state_bytes, bool decode) {
  const Tensor slots = c.filled({sequences, state_bytes / 4}, 0.1f);
  std::vector<int32_t> row_segment, positions;
  std::vector<kernels::SegmentView> segments;
  for (int32_t i = 0; i < sequences; ++i) {
    std::byte* slot = slots.data + i * state_bytes;
    segments.push_back({.row_begin = i * rows, .rows = rows, .state_in = slot, .state_out = slot});
    for (int32_t t = 0; t < rows; ++t) {
      row_segment.push_back(i);
      positions.push_back(t);
    }
  }
  return {.rows = sequences * rows,
          .segments_count = sequences,
          .segments = c.placed(segments),
          .row_segment = c.placed(row_segment),
          .row_position = c.placed(positions),
          .decode = decode};
}

// Prefill of one sequence of range(0) rows, or a decode step of so many sequences.
void flagship_gdn(benchmark::State& run, bool decode) {
  if (!device()) return run.SkipWithError("no cuda device");
  Case c(*device());
  const auto T = static_cast<int32_t>(run.range(0)), sequences = decode ? T : 1;
  const int64_t state = kGdn.state_floats() * 4;
  const kernels::BatchView batch = gdn_batch(c, sequences, T / sequences, state, decode);
  const Tensor qkv = c.filled({T, kGdn.channels()}), a = c.filled({T, kGdn.HV}), b = c.filled({T, kGdn.HV});
  const Tensor A_log = c.filled({kGdn.HV}), dt_bias = c.filled({kGdn.HV}), o = c.blank({T, kGdn.HV * kGdn.DV});
  const Tensor spare = c.blank({T, kGdn.channels()});
  measure(run, c, 7.0 * static_cast<double>(T * kGdn.state_floats()),
          2.0 * static_cast<double>(state * sequences) +
              4.0 * static_cast<double>(T * (kGdn.channels() + kGdn.HV * kGdn.DV)),
          [&](int64_t) { ops::gdn(c.stream(), batch, kGdn, qkv, a, b, A_log, dt_bias, 0, o, spare, {}); });
}

void flagship_residual(benchmark::State& run) {
  if (!device()) return run.SkipWithError("no cuda device");
  Case c(*device());
  constexpr int64_t kS = 4, kR = 320, kW = kS * kM;
  const int64_t T = run.range(0);
  std::vector<ops::GatedResidual> mixers;
  for (int i = 0; i < 3; ++i)
    mixers.push_back({.norm = c.filled({kW}, 0.2f),
                      .down = c.matrix(WeightFormat::bf16, kR, kW),
                      .up = c.matrix(WeightFormat::bf16, kW, kR),
                      .inject = c.matrix(WeightFormat::bf16, kS, kW)});
  const Tensor H = c.filled({T, kW}), x = c.blank({T, kM}), weights = c.blank({T, kS});
  const ops::GatedResidualScratch scratch{c.blank({T, kW}), c.blank({T, kR + kS}), c.blank({T, kW}), {}};
  measure(run, c, 2.0 * static_cast<double>(T * kW * (2 * kR + kS)), 8.0 * static_cast<double>(T * kW), [&](int64_t i) {
    ops::gated_residual(c.stream(), mixers[static_cast<size_t>(i % 3)], H, x, weights, scratch);
  });
}

const int registered = [] {
  const auto rows = [](benchmark::internal::Benchmark* bench, std::vector<int64_t> counts) {
    for (int64_t T : counts) bench->Arg(T);
    bench->UseManualTime()->Iterations(11)->Unit(benchmark::kMicrosecond);
  };
  const std::vector<int64_t> all = {1, 8, 32, 64, 300, 2048, 8192};
  struct Shape {
    const char* name;
    int64_t N, K;
  };
  for (const Shape& shape : {Shape{"gdn_in", 16384, kM}, Shape{"gdn_out", kM, 6144}, Shape{"qsa_q", 12288, kM},
                             Shape{"hc_down", 320, 4 * kM}, Shape{"hc_up", 4 * kM, 320}, Shape{"router", 512, kM},
                             Shape{"shared_gate", 640, kM}})
    rows(benchmark::RegisterBenchmark((std::string("flagship_matmul/") + shape.name).c_str(), flagship_matmul,
                                      WeightFormat::bf16, shape.N, shape.K),
         all);
  rows(benchmark::RegisterBenchmark("flagship_matmul/head", flagship_matmul, WeightFormat::bf16, 248320, kM), {1, 8});
  rows(benchmark::RegisterBenchmark("flagship_experts", flagship_experts), all);
  rows(benchmark::RegisterBenchmark("flagship_residual", flagship_residual), all);
  rows(benchmark::RegisterBenchmark("flagship_gdn/prefill", flagship_gdn, false), {1, 64, 128, 300, 2048, 8192});
  rows(benchmark::RegisterBenchmark("flagship_gdn/decode", flagship_gdn, true), {1, 8, 32});
  return 0;
}();

}  // namespace
}  // namespace wp
