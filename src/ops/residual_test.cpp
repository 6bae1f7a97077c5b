#include "ops/residual.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "testing/op_case.h"
#include "testing/seeds.h"

namespace wp {
namespace {

using testing::compare_backends;
using testing::OpCase;

TEST(RmsNorm, AgreesInAllItsForms) {
  for (const auto& [T, groups, width] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 16}, {5, 4, 64}, {67, 3, 24}, {2, 1, 1000}, {3, 2, 7}})
    for (const bool wide : {false, true})
      for (const float offset : {0.0f, 1.0f})
        compare_backends(1, 2e-5, [&, T = T, groups = groups, width = width](OpCase& op) {
          const Tensor x = op.filled({T, groups * width}, 3), y = op.blank({T, groups * width});
          const ops::Norm norm{.weight = op.filled({wide ? groups * width : width}), .offset = offset};
          ops::rms_norm(op.stream(), norm, groups, x, y);
          op.give(y);
          if (op.stream().kind() != DeviceKind::ref) return;
          const int64_t at = (T - 1) * groups * width + (groups - 1) * width;
          double squares = 0;
          for (int64_t i = 0; i < width; ++i) squares += static_cast<double>(x.f32()[at + i]) * x.f32()[at + i];
          const double root = std::sqrt(squares / static_cast<double>(width) + 1e-6);
          const float weight = norm.weight.f32()[(wide ? (groups - 1) * width : 0) + width - 1];
          ASSERT_NEAR(y.f32()[at + width - 1], x.f32()[at + width - 1] / root * (offset + weight), 1e-5);
        });
}

TEST(GatedResidual, Agrees) {
  for (const auto& [T, S, M, R] : std::vector<std::array<int64_t, 4>>{
           {1, 4, 64, 8}, {67, 2, 40, 9}, {13, 4, 256, 32}, {20, 4, 32, 64}, {133, 4, 64, 192}})
    for (const bool injects : {true, false})
      for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16})
        compare_backends(2, 1e-4, [&, T = T, S = S, M = M, R = R](OpCase& op) {
          const int64_t W = S * M;
          ops::GatedResidual mixer{
              .norm = op.filled({W}, 0.2), .down = op.matrix(format, R, W), .up = op.matrix(format, W, R)};
          if (injects) mixer.inject = op.matrix(format, S, W);
          const Tensor H = op.filled({T, W}, 2), x = op.blank({T, M});
          const Tensor weights = injects ? op.blank({T, S}) : Tensor();
          ops::gated_residual(op.stream(), mixer, H, x, weights,
                              {.normed = op.blank({T, W}),
                               .low = op.blank({T, R + S}),
                               .gates = op.blank({T, W}),
                               .workspace = op.workspace(64)});
          op.give(x);
          if (injects) op.give(weights);
        });
}

// Equal bits: a row of a large pass is the row computed alone; with and without memory lent to the stream.
TEST(GatedResidual, RowsAreIndependent) {
  for (const auto& [T, M, R] :
       std::vector<std::array<int64_t, 3>>{{16, 64, 32}, {150, 64, 64}, {260, 96, 192}, {66, 2080, 64}})
    for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16})
      compare_backends(5, 1e-4, [&, T = T, M = M, R = R](OpCase& op) {
        constexpr int64_t kS = 4;
        const int64_t W = kS * M;
        const ops::GatedResidual mixer{.norm = op.filled({W}, 0.2),
                                       .down = op.matrix(format, R, W),
                                       .up = op.matrix(format, W, R),
                                       .inject = op.matrix(format, kS, W)};
        const Tensor H = op.filled({T, W}, 2);
        const auto run = [&](int64_t begin, int64_t count) {
          const std::pair<Tensor, Tensor> out{op.blank({count, M}), op.blank({count, kS})};
          ops::gated_residual(
              op.stream(), mixer, H.rows(begin, count), out.first, out.second,
              {op.blank({count, W}), op.blank({count, R + kS}), op.blank({count, W}), op.workspace(64)});
          return out;
        };
        const auto all = run(0, T);
        for (int64_t t = 0; t < T; t += t < 20 ? 1 : 9) {
          const auto one = run(t, 1);
          ASSERT_EQ(0, std::memcmp(one.first.data, all.first.rows(t, 1).data, static_cast<size_t>(M) * 4))
              << "row " << t;
          ASSERT_EQ(0, std::memcmp(one.second.data, all.second.rows(t, 1).data, kS * 4)) << "row " << t;
        }
        op.stream().lend(nullptr, 0);
        const auto without = run(0, T);
        ASSERT_EQ(0, std::memcmp(without.first.data, all.first.data, static_cast<size_t>(T * M) * 4));
        ASSERT_EQ(0, std::memcmp(without.second.data, all.second.data, static_cast<size_t>(T * kS) * 4));
        op.give(all.first);
        op.give(all.second);
      });
}

// Zero weights give a plain residual: injection weights of 1, gates of one half.
TEST(GatedResidual, IsPlainWithZeroWeights) {
  const auto results = compare_backends(3, 1e-5, [](OpCase& op) {
    const Tensor down = op.filled({8, 64}, 0), up = op.filled({64, 8}, 0), inject = op.filled({2, 64}, 0);
    const auto matrix = [&](const Tensor& t) {
      return op.packed({.format = WeightFormat::f32, .N = t.dim(0), .K = t.dim(1), .data = t.data});
    };
    const ops::GatedResidual mixer{
        .norm = op.filled({64}, 0), .down = matrix(down), .up = matrix(up), .inject = matrix(inject)};
    const Tensor H = op.filled({3, 64}), x = op.blank({3, 32}), weights = op.blank({3, 2}), normed = op.blank({3, 64});
    ops::rms_norm(op.stream(), {.weight = mixer.norm}, 2, H, normed);
    ops::gated_residual(op.stream(), mixer, H, x, weights,
                        {op.blank({3, 64}), op.blank({3, 10}), op.blank({3, 64}), op.workspace(64)});
    for (int64_t m = 0; m < 32; ++m)
      ASSERT_NEAR(x.f32()[32 + m], 0.25 * (normed.f32()[64 + m] + normed.f32()[64 + 32 + m]), 1e-5);
    op.give(weights);
  });
  for (float weight : results) EXPECT_NEAR(weight, 1, 1e-6);
}

TEST(Elementwise, Agrees) {
  compare_backends(4, 2e-5, [](OpCase& op) {
    const Tensor H = op.filled({5, 3 * 37}), y = op.filled({5, 37}), weights = op.filled({5, 3});
    const float expected = H.f32()[4 * 111 + 2 * 37 + 5] + weights.f32()[4 * 3 + 2] * y.f32()[4 * 37 + 5];
    ops::inject(op.stream(), H, y, weights);
    ASSERT_NEAR(H.f32()[4 * 111 + 2 * 37 + 5], expected, 1e-5);
    op.give(H);
    const Tensor x = op.filled({5, 37}), a = op.filled({5, 37}), b = op.filled({5, 37});
    const float sum = x.f32()[7] + a.f32()[7] + a.f32()[7] + b.f32()[7];
    ops::add(op.stream(), x, a);
    ops::add(op.stream(), x, a, b);
    ASSERT_NEAR(x.f32()[7], sum, 1e-5);
    op.give(x);
    const Tensor gate = op.filled({5, 37}, 5), up = op.filled({5, 37});
    const double g = gate.f32()[11], product = g / (1 + std::exp(-g)) * up.f32()[11];
    ops::silu_mul(op.stream(), gate, up);
    ASSERT_NEAR(gate.f32()[11], product, 2e-5 * (1 + std::abs(product)));
    op.give(gate);
  });
}

// Where exp leaves the range of f32: no NaN, no infinity.
TEST(Elementwise, SurvivesLargeGates) {
  compare_backends(5, 2e-5, [](OpCase& op) {
    const Tensor gate = op.blank({1, 8}), up = op.filled({1, 8}, 0);
    const float values[8] = {-1e4f, -200, -88, -1e-20f, 0, 88, 200, 1e4f};
    for (int i = 0; i < 8; ++i) {
      gate.f32()[i] = values[i];
      up.f32()[i] = 1;
    }
    ops::silu_mul(op.stream(), gate, up);
    ASSERT_NEAR(gate.f32()[0], 0, 1e-6);
    ASSERT_EQ(gate.f32()[7], 1e4f);
    op.give(gate);
  });
}

}  // namespace
}  // namespace wp
