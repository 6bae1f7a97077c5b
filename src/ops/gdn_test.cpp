#include "ops/gdn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "device/recorder.h"
#include "testing/op_case.h"
#include "testing/seeds.h"

namespace wp {
namespace {

using testing::compare_backends;
using testing::OpCase;
using testing::SegmentCase;

constexpr int64_t kOffset = 64;  // The op's part does not begin at the record's first byte.

TEST(ConvSilu, Agrees) {
  for (const auto& [C, taps, dilation] :
       std::vector<std::array<int64_t, 3>>{{16, 4, 1}, {37, 4, 3}, {160, 2, 1}, {24, 4, 4}})
    compare_backends(1, 2e-5, [&, C = C, taps = taps, dilation = dilation](OpCase& op) {
      const int64_t bytes = (kOffset + (taps - 1) * dilation * C * 4 + 63) / 64 * 64;
      const kernels::BatchView& batch = op.batch(testing::awkward_segments(), bytes, 64);
      const Tensor u = op.filled({batch.rows, C}), y = op.blank({batch.rows, C}), weight = op.filled({taps, C});
      ops::conv_silu(op.stream(), batch, u, weight, dilation, kOffset, y);
      op.give(y);
      op.give_states(bytes);
      // A row deep inside the first segment, by the formula.
      double sum = 0;
      for (int64_t i = 0; i < taps; ++i)
        sum += static_cast<double>(weight.f32()[i * C + 1]) * u.f32()[(50 - (taps - 1 - i) * dilation) * C + 1];
      ASSERT_NEAR(y.f32()[50 * C + 1], sum / (1 + std::exp(-sum)), 2e-5 * (1 + std::abs(sum)));
    });
}

// Equal bits however a sequence is cut, on every backend; the state behind the last piece too.
template <class Run>
void expect_cuts_do_not_matter(int64_t state_bytes, const Run& run) {
  compare_backends(2, 1e-4, [&](OpCase& op) {
    const int64_t whole = 150;
    std::vector<float> expected;
    for (const std::vector<int32_t>& pieces : std::vector<std::vector<int32_t>>{
             {150}, {1, 149}, {2, 1, 3, 144}, {64, 86}, {63, 2, 64, 21}, {7, 57, 1, 1, 84}}) {
      OpCase part(op.stream(), 5);  // The same numbers for every way of cutting.
      const std::span<std::byte> record = part.copied(std::vector<std::byte>(static_cast<size_t>(state_bytes)));
      std::vector<float> results = run(part, whole, pieces, record);
      const auto* state = reinterpret_cast<const float*>(record.data());
      results.insert(results.end(), state, state + state_bytes / 4);
      if (expected.empty()) expected = results;
      ASSERT_EQ(expected.size(), results.size());
      ASSERT_EQ(0, std::memcmp(expected.data(), results.data(), expected.size() * 4)) << name(op.stream().kind());
    }
    for (float value : expected) op.give(Tensor(static_cast<const void*>(&value), DType::f32, {1}));
  });
}

kernels::BatchView cut(OpCase& op, int32_t rows, int32_t position, std::byte* record) {
  return op.batch_of(
      {.rows = rows, .position = position, .state_in = position ? record : nullptr, .state_out = record});
}

TEST(ConvSilu, CutsDoNotMatter) {
  constexpr int64_t kC = 20;
  expect_cuts_do_not_matter(9 * kC * 4, [](OpCase& op, int64_t whole, const std::vector<int32_t>& pieces,
                                           auto& record) {
    const Tensor u = op.filled({whole, kC}), y = op.blank({whole, kC}), weight = op.filled({4, kC});
    int32_t at = 0;
    for (int32_t rows : pieces) {
      ops::conv_silu(op.stream(), cut(op, rows, at, record.data()), u.rows(at, rows), weight, 3, 0, y.rows(at, rows));
      at += rows;
    }
    op.give(y);
    return op.results();
  });
}

TEST(Gdn, Agrees) {
  for (const ops::GdnHeads& heads :
       {ops::GdnHeads{2, 6, 16, 16}, ops::GdnHeads{1, 3, 128, 128}, ops::GdnHeads{3, 3, 24, 40}})
    compare_backends(3, 1e-4, [&](OpCase& op) {
      const int64_t bytes = kOffset + (heads.state_floats() * 4 + 63) / 64 * 64;
      const kernels::BatchView& batch = op.batch(testing::awkward_segments(), bytes, 64);
      const int64_t T = batch.rows;
      const Tensor o = op.blank({T, heads.HV * heads.DV});
      const Tensor qkv = op.filled({T, heads.channels()}), a = op.filled({T, heads.HV}), b = op.filled({T, heads.HV});
      const Tensor A_log = op.filled({heads.HV}), dt_bias = op.filled({heads.HV});
      ops::gdn(op.stream(), batch, heads, qkv, a, b, A_log, dt_bias, kOffset, o, op.blank({T, heads.channels()}),
               op.workspace(64));
      op.give(o);
      op.give_states(bytes);
    });
}

TEST(Gdn, CutsDoNotMatter) {
  constexpr ops::GdnHeads kHeads{1, 2, 16, 24};
  expect_cuts_do_not_matter(
      kHeads.state_floats() * 4, [&](OpCase& op, int64_t whole, const std::vector<int32_t>& pieces, auto& record) {
        const Tensor qkv = op.filled({whole, kHeads.channels()}), a = op.filled({whole, 2}), b = op.filled({whole, 2});
        const Tensor A_log = op.filled({2}), dt_bias = op.filled({2}), o = op.blank({whole, 48});
        int32_t at = 0;
        for (int32_t rows : pieces) {
          ops::gdn(op.stream(), cut(op, rows, at, record.data()), kHeads, qkv.rows(at, rows), a.rows(at, rows),
                   b.rows(at, rows), A_log, dt_bias, 0, o.rows(at, rows), op.blank({rows, kHeads.channels()}),
                   op.workspace(64));
          at += rows;
        }
        op.give(o);
        return op.results();
      });
}

// The chunked form of spec/qwen4_exp.md 3.2 for one chunk of C tokens from a zero state, by forward substitution.
std::vector<double> chunked(int64_t C, int64_t D, const std::vector<double>& q, const std::vector<double>& k,
                            const std::vector<double>& v, const std::vector<double>& beta,
                            const std::vector<double>& g) {
  std::vector<double> total(static_cast<size_t>(C)), R(static_cast<size_t>(C * D)), o(static_cast<size_t>(C * D));
  const auto dot = [&](const std::vector<double>& x, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t d = 0; d < D; ++d) sum += x[i * D + d] * k[j * D + d];
    return sum;
  };
  double running = 0;
  for (int64_t i = 0; i < C; ++i) total[i] = running += g[i];
  for (int64_t i = 0; i < C; ++i)
    for (int64_t d = 0; d < D; ++d) {
      double u = beta[i] * v[i * D + d];
      for (int64_t j = 0; j < i; ++j) u -= beta[i] * dot(k, i, j) * std::exp(total[i] - total[j]) * R[j * D + d];
      R[i * D + d] = u;
    }
  for (int64_t i = 0; i < C; ++i)
    for (int64_t d = 0; d < D; ++d)
      for (int64_t j = 0; j <= i; ++j) o[i * D + d] += dot(q, i, j) * std::exp(total[i] - total[j]) * R[j * D + d];
  return o;
}

// Heads that cuda takes in chunks of 64 rows in prefill and in one launch in decode.
constexpr ops::GdnHeads kWide{.HK = 1, .HV = 2, .DK = 128, .DV = 64};

struct WideInputs {
  WideInputs(OpCase& op, int64_t T)
      : qkv(op.filled({T, kWide.channels()})),
        a(op.filled({T, kWide.HV}, 2)),
        b(op.filled({T, kWide.HV})),
        A_log(op.filled({kWide.HV}, 0.5)),
        dt_bias(op.filled({kWide.HV})) {
    for (int64_t i = 0; i < a.count(); ++i) a.f32()[i] -= 3;  // Most decays near one, as trained ones are.
  }
  // o of rows [at, at + batch.rows); the kernel may overwrite its inputs.
  Tensor run(OpCase& op, const kernels::BatchView& batch, int64_t at, int64_t state_offset = 0) const {
    const int64_t T = batch.rows;
    const auto part = [&](const Tensor& from) {
      const Tensor rows = from.rows(at, T);
      const std::span<float> values = op.copied(std::vector<float>(rows.f32(), rows.f32() + rows.count()));
      return Tensor(reinterpret_cast<std::byte*>(values.data()), DType::f32, rows.shape);
    };
    const Tensor o = op.blank({T, kWide.HV * kWide.DV});
    ops::gdn(op.stream(), batch, kWide, part(qkv), part(a), part(b), A_log, dt_bias, state_offset, o,
             op.blank({T, kWide.channels()}), op.workspace(64));
    return o;
  }
  Tensor qkv, a, b, A_log, dt_bias;
};

// compare_backends allows for bf16 operands; the delta rule keeps to its contract on cuda too.
void expect_within_contract(Seed seed, const std::function<void(OpCase&)>& run) {
  std::vector<std::vector<float>> results;
  compare_backends(seed, 1e-4, [&](OpCase& op) {
    run(op);
    results.push_back(op.results());
  });
  double largest = 0;
  for (float value : results[0]) largest = std::max(largest, std::abs(static_cast<double>(value)));
  for (const std::vector<float>& found : results)
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_LE(std::abs(static_cast<double>(found[i]) - results[0][i]), 1e-4 * largest) << i;
}

TEST(Gdn, ChunksAgree) {
  const int64_t bytes = kOffset + kWide.state_floats() * 4;
  std::vector<std::vector<SegmentCase>> cases = {
      {{.rows = 300, .captures = {64, 192, 256}}},
      {{.rows = 5, .position = 62, .source = SegmentCase::same, .captures = {2}},
       {.rows = 1, .position = 191, .source = SegmentCase::other, .captures = {1}},
       {.rows = 70, .position = 64, .source = SegmentCase::other, .captures = {64}},
       {.rows = 2},
       {.rows = 100, .position = 37, .source = SegmentCase::same, .captures = {27, 91}},
       {.rows = 1, .position = 5, .source = SegmentCase::same}}};
  for (int32_t rows : {1, 63, 64, 65, 127, 128})
    cases.push_back({{.rows = rows, .position = 64, .source = SegmentCase::other}});
  for (const std::vector<SegmentCase>& segments : cases)
    expect_within_contract(7, [&](OpCase& op) {
      const kernels::BatchView& batch = op.batch(segments, bytes, 64);
      op.give(WideInputs(op, batch.rows).run(op, batch, 0, kOffset));
      op.give_states(bytes);
    });
}

TEST(Gdn, DecodeAgrees) {
  const int64_t bytes = kOffset + kWide.state_floats() * 4;
  expect_within_contract(8, [&](OpCase& op) {
    kernels::BatchView batch = op.batch({{.rows = 1, .position = 63, .source = SegmentCase::same},
                                         {.rows = 1, .position = 64, .source = SegmentCase::other},
                                         {.rows = 1},
                                         {.rows = 4, .position = 9, .source = SegmentCase::same}},
                                        bytes, 64);
    batch.decode = true;
    op.give(WideInputs(op, batch.rows).run(op, batch, 0, kOffset));
    op.give_states(bytes);
  });
}

bool equal_bits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * 4) == 0;
}

// Rows and the last state of a sequence of 300 rows in pieces; `between` may spoil the state behind the first.
std::vector<float> in_pieces(Stream& stream, const std::vector<int32_t>& pieces,
                             const std::function<void(float*)>& between = nullptr) {
  OpCase op(stream, 9);
  const WideInputs inputs(op, 300);
  const auto record = op.copied(std::vector<float>(static_cast<size_t>(kWide.state_floats())));
  std::vector<float> results;
  int32_t at = 0;
  for (int32_t rows : pieces) {
    if (between && at > 0) between(record.data());
    const Tensor o = inputs.run(op, cut(op, rows, at, reinterpret_cast<std::byte*>(record.data())), at);
    results.insert(results.end(), o.f32(), o.f32() + o.count());
    at += rows;
  }
  if (at == 300) results.insert(results.end(), record.begin(), record.end());
  return results;
}

TEST(Gdn, RowsDoNotKnowTheirPieces) {
  for (DeviceKind kind : testing::backends()) {
    auto device = Device::make(kind, 2);
    Stream stream(**device);
    Recorder recorder(1);
    stream.record(&recorder);
    const std::vector<float> whole = in_pieces(stream, {300});
    for (const std::vector<int32_t>& pieces :
         std::vector<std::vector<int32_t>>{{64, 236}, {128, 64, 108}, {64, 64, 64, 64, 44}, {256, 44}}) {
      const std::vector<float> found = in_pieces(stream, pieces);
      ASSERT_EQ(found.size(), whole.size());
      ASSERT_TRUE(equal_bits(found.data(), whole.data(), std::ssize(whole))) << name(kind) << " " << pieces[0];
    }
    for (int32_t rows : {1, 2, 17, 63, 64, 65, 100, 127, 299}) {  // The last chunk's other rows are absent.
      const std::vector<float> found = in_pieces(stream, {rows});
      ASSERT_TRUE(equal_bits(found.data(), whole.data(), std::ssize(found))) << name(kind) << " " << rows;
    }
    // A state that lost its last bits on the way must show.
    const std::vector<float> spoilt = in_pieces(stream, {64, 236}, [](float* state) {
      for (int64_t i = 0; i < kWide.state_floats(); ++i) std::memset(&state[i], 0, 1);
    });
    EXPECT_FALSE(equal_bits(spoilt.data(), whole.data(), std::ssize(whole)));
  }
}

// A segment beside others, in prefill and in decode, against the same one alone.
TEST(Gdn, RowsDoNotKnowTheirNeighbours) {
  const int64_t bytes = kWide.state_floats() * 4;
  for (DeviceKind kind : testing::backends())
    for (const bool decode : {false, true}) {
      auto device = Device::make(kind, 2);
      Stream stream(**device);
      Recorder recorder(1);
      stream.record(&recorder);
      OpCase op(stream, 10);
      const int32_t rows = decode ? 1 : 70;
      kernels::BatchView batch = op.batch({{.rows = decode ? 1 : 9, .position = 3},
                                           {.rows = rows, .position = 128, .source = SegmentCase::other},
                                           {.rows = decode ? 1 : 64}},
                                          bytes, 64);
      batch.decode = decode;
      const WideInputs inputs(op, batch.rows);
      const Tensor o = inputs.run(op, batch, 0);
      const std::span<const float> state(reinterpret_cast<const float*>(op.state_out(1)),
                                         static_cast<size_t>(kWide.state_floats()));
      const std::vector<float> beside(state.begin(), state.end());
      kernels::SegmentView segment = batch.segments[1];
      const int32_t at = segment.row_begin;
      segment.row_begin = 0;
      kernels::BatchView alone = op.batch_of(segment);
      alone.decode = decode;
      const Tensor same = inputs.run(op, alone, at);
      EXPECT_TRUE(equal_bits(same.f32(), o.rows(at, rows).f32(), same.count())) << name(kind) << decode;
      EXPECT_TRUE(equal_bits(state.data(), beside.data(), kWide.state_floats())) << name(kind) << decode;
      const Tensor other = inputs.run(op, alone, at - 1);  // Rows of a neighbour: the comparison must tell.
      EXPECT_FALSE(equal_bits(other.f32(), o.rows(at, rows).f32(), other.count()));
    }
}

TEST(Gdn, EqualsTheChunkedForm) {
  constexpr int64_t kC = 40, kD = 16;
  compare_backends(4, 1e-4, [](OpCase& op) {
    const ops::GdnHeads heads{1, 1, kD, kD};
    const kernels::BatchView& batch = op.batch({{.rows = kC}}, heads.state_floats() * 4, 64);
    const Tensor qkv = op.filled({kC, 3 * kD}), a = op.filled({kC, 1}), b = op.filled({kC, 1}), o = op.blank({kC, kD});
    const Tensor A_log = op.filled({1}), dt_bias = op.filled({1});
    std::vector<double> parts[3], beta, g;
    for (int64_t t = 0; t < kC; ++t) {
      for (int part = 0; part < 3; ++part) {
        const float* x = qkv.f32() + t * 3 * kD + part * kD;
        double squares = 0;
        for (int64_t d = 0; d < kD; ++d) squares += static_cast<double>(x[d]) * x[d];
        const double scale = part == 2 ? 1 : 1 / std::sqrt(squares + 1e-6) / (part == 0 ? std::sqrt(kD) : 1);
        for (int64_t d = 0; d < kD; ++d) parts[part].push_back(x[d] * scale);
      }
      beta.push_back(1 / (1 + std::exp(-static_cast<double>(b.f32()[t]))));
      g.push_back(-std::exp(static_cast<double>(A_log.f32()[0])) * std::log1p(std::exp(a.f32()[t] + dt_bias.f32()[0])));
    }
    const auto expected = chunked(kC, kD, parts[0], parts[1], parts[2], beta, g);
    ops::gdn(op.stream(), batch, heads, qkv, a, b, A_log, dt_bias, 0, o, op.blank({kC, 3 * kD}), op.workspace(64));
    for (int64_t i = 0; i < kC * kD; ++i) ASSERT_NEAR(o.f32()[i], expected[static_cast<size_t>(i)], 1e-5);
    op.give(o);
  });
}

TEST(GatedNorm, Agrees) {
  for (const auto& [T, HV, DV] : std::vector<std::array<int64_t, 3>>{{1, 6, 16}, {9, 3, 128}, {5, 2, 24}})
    for (const kernels::Gate gate : {kernels::Gate::sigmoid, kernels::Gate::silu})
      compare_backends(6, 2e-5, [&, T = T, HV = HV, DV = DV](OpCase& op) {
        const Tensor o = op.filled({T, HV * DV}, 2), z = op.filled({T, HV * DV}, 3), weight = op.filled({DV});
        double squares = 0;
        for (int64_t i = 0; i < DV; ++i) squares += static_cast<double>(o.f32()[i]) * o.f32()[i];
        const double scale = 1 / std::sqrt(squares / static_cast<double>(DV) + 1e-6);
        const double s = 1 / (1 + std::exp(-static_cast<double>(z.f32()[1])));
        const double expected =
            o.f32()[1] * scale * weight.f32()[1] * (gate == kernels::Gate::sigmoid ? s : s * z.f32()[1]);
        ops::gated_norm(op.stream(), o, z, weight, 1e-6f, gate, o);
        ASSERT_NEAR(o.f32()[1], expected, 2e-5 * (1 + std::abs(expected)));
        op.give(o);
      });
}

}  // namespace
}  // namespace wp
