#include "ops/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cost.h"
#include "testing/op_case.h"
#include "testing/seeds.h"

namespace wp {
namespace {

using testing::compare_backends;
using testing::OpCase;

ops::Routing blank_routing(OpCase& op, int64_t T, int64_t E, int64_t A) {
  return {.experts = op.blank({T, A}, DType::i32),
          .weights = op.blank({T, A}),
          .offsets = op.blank({E + 1}, DType::i32),
          .order = op.blank({T * A}, DType::i32)};
}

void give(OpCase& op, const ops::Routing& routing) {
  for (const Tensor* tensor : {&routing.experts, &routing.weights, &routing.offsets, &routing.order}) op.give(*tensor);
}

TEST(Router, ChoosesWeighsAndGroups) {
  for (Seed seed : testing::seeds_of_this_run())
    for (const auto& [T, E, A] :
         std::vector<std::array<int64_t, 3>>{{1, 8, 3}, {67, 32, 4}, {20, 5, 5}, {9, 512, 10}, {3, 1, 1}})
      for (const bool normalise : {true, false})
        compare_backends(seed, 1e-5, [&, T = T, E = E, A = A](OpCase& op) {
          const Tensor logits = op.filled({T, E}, 2);
          const ops::Routing routing = blank_routing(op, T, E, A);
          ops::router(op.stream(), logits, normalise, routing);
          give(op, routing);
          for (int64_t t = 0; t < T; ++t) {
            std::vector<std::pair<float, int32_t>> sorted;
            double all = 0, weights = 0;
            for (int32_t e = 0; e < E; ++e) {
              sorted.emplace_back(-logits.f32()[t * E + e], e);
              all += std::exp(static_cast<double>(logits.f32()[t * E + e]));
            }
            std::sort(sorted.begin(), sorted.end());
            double some = 0;
            std::vector<int32_t> best;
            for (int64_t i = 0; i < A; ++i) {
              best.push_back(sorted[static_cast<size_t>(i)].second);
              some += std::exp(-static_cast<double>(sorted[static_cast<size_t>(i)].first));
            }
            std::sort(best.begin(), best.end());
            for (int64_t i = 0; i < A; ++i) {
              ASSERT_EQ(routing.experts.i32()[t * A + i], best[static_cast<size_t>(i)]);
              weights += routing.weights.f32()[t * A + i];
            }
            ASSERT_NEAR(weights, normalise ? 1 : some / all, 1e-5);
          }
          for (int64_t e = 0, at = 0; e < E; ++e) {
            ASSERT_EQ(routing.offsets.i32()[e], at);
            for (; at < routing.offsets.i32()[e + 1]; ++at) {
              ASSERT_EQ(routing.experts.i32()[routing.order.i32()[at]], e);
              if (at == routing.offsets.i32()[e]) continue;
              ASSERT_LT(routing.order.i32()[at - 1], routing.order.i32()[at]);
            }
          }
          ASSERT_EQ(routing.offsets.i32()[E], T * A);
        });
}

TEST(Router, TiesGoToTheLowerExpert) {
  compare_backends(2, 1e-6, [](OpCase& op) {
    const Tensor logits = op.filled({2, 6}, 0);
    logits.f32()[6 + 5] = 1;
    logits.f32()[6 + 1] = -0.0f;
    const ops::Routing routing = blank_routing(op, 2, 6, 3);
    ops::router(op.stream(), logits, true, routing);
    give(op, routing);
    const std::vector<int32_t> expected{0, 1, 2, 0, 1, 5};
    ASSERT_EQ(expected, std::vector<int32_t>(routing.experts.i32(), routing.experts.i32() + 6));
  });
}

TEST(Experts, Agree) {
  for (const auto& [T, M, F, E, A] : std::vector<std::array<int64_t, 5>>{
           {1, 64, 32, 8, 3}, {67, 64, 48, 5, 2}, {9, 256, 64, 32, 4}, {3, 48, 16, 4, 4}, {200, 32, 16, 2, 1}})
    for (const WeightFormat format :
         {WeightFormat::f32, WeightFormat::bf16, WeightFormat::nvfp4, WeightFormat::fp8_block})
      compare_backends(3, 1e-4, [&, T = T, M = M, F = F, E = E, A = A](OpCase& op) {
        std::vector<kernels::ExpertWeights> matrices;
        for (int64_t e = 0; e < E; ++e)
          matrices.push_back(
              {.gate = op.matrix(format, F, M), .up = op.matrix(format, F, M), .down = op.matrix(format, M, F)});
        // Some experts chosen by none.
        const Tensor logits = op.filled({T, E});
        for (int64_t t = 0; t < T && A < E; ++t) logits.f32()[t * E + E / 2] = -100;
        const ops::Routing routing = blank_routing(op, T, E, A);
        ops::router(op.stream(), logits, true, routing);
        const Tensor x = op.filled({T, M}), shared = op.filled({T, M}), shared_gate = op.filled({T, 1});
        const Tensor y = op.blank({T, M});
        ops::experts(
            op.stream(), op.copied(matrices), matrices[0], x, routing, shared, shared_gate, y,
            {.hidden = op.blank({T * A, 2 * F}), .outputs = op.blank({T * A, M}), .workspace = op.workspace(64)});
        op.give(y);
      });
}

// Equal bits: a row of a large pass is the row computed alone; with and without memory lent to the stream.
void expect_independent_rows(OpCase& op, WeightFormat format, int64_t T, int64_t M, int64_t F) {
  constexpr int64_t kE = 6, kA = 3;
  std::vector<kernels::ExpertWeights> matrices;
  for (int64_t e = 0; e < kE; ++e)
    matrices.push_back(
        {.gate = op.matrix(format, F, M), .up = op.matrix(format, F, M), .down = op.matrix(format, M, F)});
  const Tensor logits = op.filled({T, kE}), x = op.filled({T, M}), shared = op.filled({T, M});
  const Tensor shared_gate = op.filled({T, 1}), y = op.blank({T, M}), without = op.blank({T, M}),
               one = op.blank({1, M});
  const auto run = [&](int64_t begin, int64_t count, const Tensor& to) {
    const ops::Routing routing = blank_routing(op, count, kE, kA);
    ops::router(op.stream(), logits.rows(begin, count), true, routing);
    ops::experts(op.stream(), op.copied(matrices), matrices[0], x.rows(begin, count), routing,
                 shared.rows(begin, count), shared_gate.rows(begin, count), to,
                 {op.blank({count * kA, 2 * F}), op.blank({count * kA, M}), op.workspace(64)});
  };
  run(0, T, y);
  for (int64_t t = 0; t < T; t += t < 60 ? 1 : 7) {
    run(t, 1, one);
    ASSERT_EQ(0, std::memcmp(one.data, y.rows(t, 1).data, static_cast<size_t>(M) * 4))
        << name(op.stream().kind()) << " row " << t;
  }
  const Lent lent = lent_to(op.stream());
  op.stream().lend(nullptr, 0);
  run(0, T, without);
  op.stream().lend(lent.data, lent.size_bytes);
  ASSERT_EQ(0, std::memcmp(without.data, y.data, static_cast<size_t>(T * M) * 4)) << name(op.stream().kind());
  op.give(y);
}

TEST(Experts, RowsAreIndependent) {
  for (const WeightFormat format : {WeightFormat::f32, WeightFormat::nvfp4, WeightFormat::bf16, WeightFormat::fp8_row})
    for (const auto& [T, M, F] : std::vector<std::array<int64_t, 3>>{
             {40, 64, 32}, {50, 192, 64}, {40, 256, 128}, {100, 256, 128}, {220, 512, 128}}) {
      SCOPED_TRACE(cat(name(format), " T ", T, " M ", M, " F ", F));
      compare_backends(4, 1e-4, [&](OpCase& op) { expect_independent_rows(op, format, T, M, F); });
    }
}

// A profile asks for the work of a launch on the host, where the array of matrices need not be readable.
TEST(Experts, WorkIsKnownWithoutTheMatrices) {
  const Matrix one{.format = WeightFormat::nvfp4, .N = 64, .K = 64};
  const kernels::Experts launch{
      .T = 2, .M = 64, .F = 64, .E = 4, .A = 4, .matrices = nullptr, .first = {.gate = one, .up = one, .down = one}};
  const Cost cost = kernels::cost_of(launch);
  EXPECT_EQ(cost.flops, 6.0 * 2 * 4 * 64 * 64);
  EXPECT_EQ(cost.bytes, 4.0 * 3 * 64 * 64 * 9 / 16 + 4.0 * 2 * 64 * (2 + 4));  // All four experts are met.
}

// One expert, weight 1, no shared part: the formula by hand.
TEST(Experts, FollowTheFormula) {
  compare_backends(5, 1e-5, [](OpCase& op) {
    const Matrix gate = op.rows_matrix(WeightFormat::f32, 16, 16), up = op.rows_matrix(WeightFormat::f32, 16, 16);
    const Matrix down = op.rows_matrix(WeightFormat::f32, 16, 16);
    const Tensor x = op.filled({1, 16}), y = op.blank({1, 16});
    const auto times = [](const Matrix& W, const std::vector<double>& v) {
      std::vector<double> out(16);
      for (size_t n = 0; n < 16; ++n)
        for (size_t k = 0; k < 16; ++k) out[n] += static_cast<const float*>(W.data)[n * 16 + k] * v[k];
      return out;
    };
    const std::vector<double> input(x.f32(), x.f32() + 16);
    std::vector<double> g = times(gate, input);
    const std::vector<double> u = times(up, input);
    for (size_t f = 0; f < 16; ++f) g[f] = g[f] / (1 + std::exp(-g[f])) * u[f];
    const std::vector<double> expected = times(down, g);
    const ops::Routing routing = blank_routing(op, 1, 1, 1);
    ops::router(op.stream(), op.filled({1, 1}), true, routing);
    const kernels::ExpertWeights expert{op.packed(gate), op.packed(up), op.packed(down)};
    ops::experts(op.stream(), op.copied(std::vector{expert}), expert, x, routing, op.filled({1, 16}, 0),
                 op.filled({1, 1}), y, {op.blank({1, 32}), op.blank({1, 16}), op.workspace(64)});
    for (size_t m = 0; m < 16; ++m) ASSERT_NEAR(y.f32()[m], expected[m], 1e-5);
    op.give(y);
  });
}

}  // namespace
}  // namespace wp
