#include "ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "testing/op_case.h"
#include "testing/seeds.h"

namespace wp {
namespace {

using testing::compare_backends;
using testing::OpCase;
using testing::SegmentCase;

struct Rotary {
  Tensor cosine, sine;
  kernels::Rope rope;
};

Rotary rotary(OpCase& op, int64_t dims) {
  Rotary made{.cosine = op.blank({1024, dims / 2}), .sine = op.blank({1024, dims / 2})};
  ops::fill_rope(made.cosine, made.sine, 1e4);
  made.rope = {.cosine = made.cosine.f32(), .sine = made.sine.f32(), .rotary = dims};
  return made;
}

TEST(Rope, TurnsPairsByPosition) {
  auto device = Device::make(DeviceKind::ref, 1);
  ASSERT_TRUE(device.ok());
  Stream stream(**device);
  OpCase op(stream, 1);
  const Rotary made = rotary(op, 8);
  EXPECT_EQ(made.cosine.f32()[0], 1);
  EXPECT_NEAR(made.sine.f32()[7 * 4 + 0], std::sin(7.0), 1e-6);
  EXPECT_NEAR(made.cosine.f32()[100 * 4 + 2], std::cos(100 * std::pow(1e4, -0.5)), 1e-6);
}

constexpr int64_t kLayerOffset = 128;  // The layer's part does not begin at the page's first byte.

TEST(AttentionInputs, Agrees) {
  for (const auto& [HQ, HK, D, turned] :
       std::vector<std::array<int64_t, 4>>{{4, 2, 32, 8}, {6, 1, 256, 64}, {3, 3, 16, 16}, {2, 1, 24, 6}})
    compare_backends(1, 2e-5, [&, HQ = HQ, HK = HK, D = D, turned = turned](OpCase& op) {
      const kernels::LayerPages pages{.layout = {.HK = HK, .D = D, .DI = 16}, .page_offset = kLayerOffset};
      const auto& batch = op.batch(testing::awkward_segments(), 64, kLayerOffset + pages.layout.layer_bytes());
      const int64_t T = batch.rows;
      const Rotary made = rotary(op, turned);
      const Tensor q_gate = op.filled({T, HQ * 2 * D}), k = op.filled({T, HK * D}), v = op.filled({T, HK * D});
      const Tensor q_norm = op.filled({D}), k_norm = op.filled({D}), q = op.blank({T, HQ * D});
      ops::attention_inputs(op.stream(), batch, pages, made.rope, {HQ, HK, D}, q_gate, k, v, q_norm, k_norm, 1e-6f, q);
      op.give(q);
      op.give(op.pages());
      // Value and, beyond the rotary dims, key of row 66 (page 1, token 2 of the first segment) lie where they should.
      const auto* page = reinterpret_cast<const float*>(batch.pages + batch.page_bytes + kLayerOffset);
      ASSERT_EQ(page[pages.layout.v_at(HK - 1, 2, D - 1)], v.f32()[66 * HK * D + HK * D - 1]);
      if (turned == D) return;
      const float* row = k.f32() + 66 * HK * D + (HK - 1) * D;
      const double scale = 1 / std::sqrt(std::inner_product(row, row + D, row, 0.0) / static_cast<double>(D) + 1e-6);
      ASSERT_NEAR(page[pages.layout.k_at(HK - 1, 2, D - 1)], row[D - 1] * scale * (1 + k_norm.f32()[D - 1]), 1e-4);
    });
}

TEST(IndexKeys, Agrees) {
  constexpr int64_t kHI = 2, kDI = 16, kState = 64 + 3 * kDI * 4;
  compare_backends(2, 2e-5, [](OpCase& op) {
    const kernels::LayerPages pages{.layout = {.HK = 1, .D = 16, .DI = kDI}, .page_offset = kLayerOffset};
    const auto& batch = op.batch(testing::awkward_segments(), kState, kLayerOffset + pages.layout.layer_bytes());
    const Rotary made = rotary(op, 8);
    const Tensor z = op.filled({batch.rows, (kHI + 1) * kDI}), queries = op.blank({batch.rows, kHI * kDI});
    const Tensor q_norm = op.filled({kDI}), k_norm = op.filled({kDI});
    ops::index_keys(op.stream(), batch, pages, made.rope, z, q_norm, k_norm, 1e-6f, 64, queries);
    op.give(queries);
    op.give(op.pages());
    // Only what lies behind the segment's end is defined: 67 % 4 = 3 raw keys of the first segment, by position.
    const auto* pending = reinterpret_cast<const float*>(op.state_out(0) + 64);
    for (int64_t i = 0; i < 3; ++i)
      ASSERT_EQ(0, std::memcmp(pending + i * kDI, z.f32() + ((64 + i) * (kHI + 1) + kHI) * kDI, kDI * 4));
  });
}

// A block whose tokens come in four passes is pooled as if they had come in one.
TEST(IndexKeys, PoolsAcrossPasses) {
  constexpr int64_t kDI = 16;
  const kernels::LayerPages pages{.layout = {.HK = 1, .D = 16, .DI = kDI}};
  compare_backends(3, 2e-5, [&](OpCase& op) {
    const Rotary made = rotary(op, 8);
    const Tensor z = op.filled({23, 2 * kDI}), q_norm = op.filled({kDI}), k_norm = op.filled({kDI});
    std::vector<float> expected;
    for (const std::vector<int32_t>& pieces :
         std::vector<std::vector<int32_t>>{{23}, {1, 1, 1, 1, 19}, {3, 3, 3, 3, 11}, {2, 5, 1, 1, 14}, {22, 1}}) {
      const Tensor page = op.blank({pages.layout.layer_floats()}), record = op.blank({3 * kDI});
      const Tensor ids = op.integers({0});
      int32_t at = 0;
      for (int32_t rows : pieces) {
        kernels::SegmentView segment{.rows = rows,
                                     .position = at,
                                     .state_in = at ? record.data : nullptr,
                                     .state_out = record.data,
                                     .pages = ids.i32()};
        kernels::BatchView batch = op.batch_of(segment);
        batch.pages = page.data;
        batch.page_bytes = pages.layout.layer_bytes();
        ops::index_keys(op.stream(), batch, pages, made.rope, z.rows(at, rows), q_norm, k_norm, 1e-6f, 0,
                        op.blank({rows, kDI}));
        at += rows;
      }
      std::vector<float> found;
      for (int64_t block = 0; block < 5; ++block)
        for (int64_t d = 0; d < kDI; ++d) found.push_back(page.f32()[pages.layout.index_at(block, d)]);
      found.insert(found.end(), record.f32(), record.f32() + 3 * kDI);
      if (expected.empty()) expected = found;
      ASSERT_EQ(0, std::memcmp(found.data(), expected.data(), found.size() * 4)) << name(op.stream().kind());
    }
    op.give(Tensor(static_cast<const void*>(expected.data()), DType::f32, {static_cast<int64_t>(expected.size())}));
  });
}

TEST(SelectBlocks, TakesTheBestAndListsThemInOrder) {
  constexpr int64_t kHI = 3, kDI = 16, kBudget = 7;
  for (Seed seed : testing::seeds_of_this_run())
    compare_backends(seed, 1e-6, [&](OpCase& op) {
      const kernels::LayerPages pages{.layout = {.HK = 1, .D = 16, .DI = kDI}, .page_offset = kLayerOffset};
      const auto& batch = op.batch(testing::awkward_segments(), 64, kLayerOffset + pages.layout.layer_bytes());
      const Tensor queries = op.filled({batch.rows, kHI * kDI});
      const Tensor selected = op.blank({batch.rows, kBudget}, DType::i32);
      ops::select_blocks(op.stream(), batch, pages, queries, selected, op.workspace(1024));
      for (int64_t t = 0; t < batch.rows; ++t) {
        const int64_t blocks = (batch.row_position[t] + 1) / 4;
        if (blocks <= kBudget) continue;
        const kernels::SegmentView& segment = batch.segments[batch.row_segment[t]];
        std::vector<std::pair<double, int32_t>> scores;
        for (int32_t b = 0; b < blocks; ++b) {
          const auto* page =
              reinterpret_cast<const float*>(batch.pages + segment.pages[b / 16] * batch.page_bytes + kLayerOffset);
          double score = 0;
          for (int64_t h = 0; h < kHI; ++h) {
            double dot = 0;
            for (int64_t d = 0; d < kDI; ++d)
              dot +=
                  static_cast<double>(queries.f32()[(t * kHI + h) * kDI + d]) * page[pages.layout.index_at(b % 16, d)];
            score += std::max(0.0, dot);
          }
          scores.emplace_back(-score, b);
        }
        std::sort(scores.begin(), scores.end());
        if (scores[kBudget].first - scores[kBudget - 1].first < 1e-4) continue;  // Too close to call in f32.
        std::vector<int32_t> best;
        for (int64_t i = 0; i < kBudget; ++i) best.push_back(scores[static_cast<size_t>(i)].second);
        std::sort(best.begin(), best.end());
        const int32_t* found = selected.i32() + t * kBudget;
        ASSERT_EQ(best, std::vector<int32_t>(found, found + kBudget)) << name(op.stream().kind()) << " row " << t;
      }
    });
}

// ReLU makes exact zeros common: equal scores go to the lower block, and -0 is 0.
TEST(SelectBlocks, TiesGoToTheLowerBlock) {
  compare_backends(4, 0, [](OpCase& op) {
    const kernels::LayerPages pages{.layout = {.HK = 1, .D = 16, .DI = 16}};
    const auto& batch = op.batch({{.rows = 3, .position = 157}}, 64, pages.layout.layer_bytes());
    const Tensor queries = op.filled({3, 16}), selected = op.blank({3, 6}, DType::i32);
    for (int64_t i = 0; i < 48; ++i) queries.f32()[i] = std::abs(queries.f32()[i]);
    for (int64_t b = 0; b < 48; ++b) {
      auto* page = reinterpret_cast<float*>(batch.pages + b / 16 * batch.page_bytes);
      // Blocks 9 and 30 score, and equally; the others give zeros of either sign.
      for (int64_t d = 0; d < 16; ++d)
        page[pages.layout.index_at(b % 16, d)] = b == 9 || b == 30 ? 1.0f : b % 2 ? -1.0f : b % 4 ? -0.0f : 0.0f;
    }
    ops::select_blocks(op.stream(), batch, pages, queries, selected, op.workspace(1024));
    op.give(selected);
    const std::vector<int32_t> expected{0, 1, 2, 3, 9, 30};
    for (int64_t t = 0; t < 3; ++t)
      ASSERT_EQ(expected, std::vector<int32_t>(selected.i32() + t * 6, selected.i32() + t * 6 + 6))
          << name(op.stream().kind());
  });
}

// Softmax in two passes over the tokens that a row may see.
double attended(const kernels::BatchView& batch, const kernels::LayerPages& pages, int64_t t, const float* q,
                int64_t head, const std::vector<int64_t>& tokens, int64_t dim) {
  const kernels::SegmentView& segment = batch.segments[batch.row_segment[t]];
  std::vector<double> scores;
  double highest = -INFINITY, weight = 0, value = 0;
  const auto page = [&](int64_t token) {
    return reinterpret_cast<const float*>(batch.pages + segment.pages[token / 64] * batch.page_bytes +
                                          pages.page_offset);
  };
  for (int64_t token : tokens) {
    double score = 0;
    for (int64_t d = 0; d < pages.layout.D; ++d)
      score += static_cast<double>(q[d]) * page(token)[pages.layout.k_at(head, token % 64, d)];
    scores.push_back(score / std::sqrt(static_cast<double>(pages.layout.D)));
    highest = std::max(highest, scores.back());
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double share = std::exp(scores[i] - highest);
    weight += share;
    value += share * page(tokens[i])[pages.layout.v_at(head, tokens[i] % 64, dim)];
  }
  return value / weight;
}

TEST(Attention, Agrees) {
  constexpr int64_t kBudget = 5;
  for (const auto& [HQ, HK, D] : std::vector<std::array<int64_t, 3>>{{4, 2, 32}, {6, 1, 256}, {3, 3, 16}, {24, 2, 64}})
    for (const bool sparse : {false, true})
      compare_backends(5, 1e-4, [&, HQ = HQ, HK = HK, D = D](OpCase& op) {
        const kernels::LayerPages pages{.layout = {.HK = HK, .D = D, .DI = 16}, .page_offset = kLayerOffset};
        const auto& batch = op.batch(testing::awkward_segments(), 64, kLayerOffset + pages.layout.layer_bytes());
        const int64_t T = batch.rows;
        const Tensor q = op.filled({T, HQ * D}), q_gate = op.filled({T, HQ * 2 * D}), o = op.blank({T, HQ * D});
        const Tensor selected = op.blank({T, kBudget}, DType::i32);
        std::vector<std::vector<int64_t>> tokens(static_cast<size_t>(T));
        for (int64_t t = 0; t < T; ++t) {
          const int64_t seen = batch.row_position[t] + 1, blocks = seen / 4;
          const bool dense = !sparse || blocks <= kBudget;
          for (int64_t i = 0; !dense && i < kBudget; ++i) {
            const int64_t block = i * blocks / kBudget;
            selected.i32()[t * kBudget + i] = static_cast<int32_t>(block);
            for (int64_t j = 0; j < 4; ++j) tokens[static_cast<size_t>(t)].push_back(4 * block + j);
          }
          for (int64_t p = dense ? 0 : 4 * blocks; p < seen; ++p) tokens[static_cast<size_t>(t)].push_back(p);
        }
        ops::attention(op.stream(), batch, pages, {HQ, HK, D}, q, q_gate, sparse ? selected : Tensor(), o,
                       op.workspace(1024));
        op.give(o);
        for (int64_t t = 0; t < T; t += 9) {
          const int64_t h = t % HQ, d = t % D;
          const double gate = q_gate.f32()[(t * HQ + h) * 2 * D + D + d];
          const double expected =
              attended(batch, pages, t, q.f32() + (t * HQ + h) * D, h / (HQ / HK), tokens[static_cast<size_t>(t)], d) /
              (1 + std::exp(-gate));
          ASSERT_NEAR(o.f32()[(t * HQ + h) * D + d], expected, 1e-4) << name(op.stream().kind()) << " row " << t;
        }
      });
}

// Scores far apart and far from zero: no overflow, no NaN.
TEST(Attention, SurvivesLargeScores) {
  compare_backends(6, 1e-4, [](OpCase& op) {
    const kernels::LayerPages pages{.layout = {.HK = 1, .D = 32}};
    const auto& batch = op.batch({{.rows = 130}}, 64, pages.layout.layer_bytes());
    const Tensor q = op.filled({130, 64}, 300), q_gate = op.filled({130, 128}, 100), o = op.blank({130, 64});
    ops::attention(op.stream(), batch, pages, {2, 1, 32}, q, q_gate, {}, o, op.workspace(1024));
    op.give(o);
  });
}

}  // namespace
}  // namespace wp
