#include "ops/gdn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

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
      ops::gdn(op.stream(), batch, heads, qkv, a, b, A_log, dt_bias, kOffset, o, op.workspace(64));
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
                   b.rows(at, rows), A_log, dt_bias, 0, o.rows(at, rows), op.workspace(64));
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
    ops::gdn(op.stream(), batch, heads, qkv, a, b, A_log, dt_bias, 0, o, op.workspace(64));
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
