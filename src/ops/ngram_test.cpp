#include "ops/ngram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "testing/op_case.h"
#include "testing/seeds.h"

namespace wp {
namespace {

using testing::compare_backends;
using testing::OpCase;
using testing::SegmentCase;

// The release's constants and token to row vectors of spec/qwen4_exp.md 3.5.
ops::NgramHash released() {
  ops::NgramHash hash{.order = 3,
                      .heads = 8,
                      .multipliers = {23703573157769, 20109073645365, 8052911324071},
                      .moduli = {20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
                                 20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171},
                      .end_of_text = 248044};
  int64_t sum = 0;
  for (int64_t modulus : hash.moduli) {
    hash.offsets.push_back(sum);
    sum += modulus;
  }
  return hash;
}

TEST(NgramRows, AreTheSpecificationsVectors) {
  compare_backends(1, 0, [](OpCase& op) {
    const auto& batch = op.batch({{.rows = 1}, {.rows = 3}}, 64, 64);
    const Tensor rows = op.blank({4, 16}, DType::i64);
    ops::ngram_rows(op.stream(), batch, released(), op.integers({9707, 100, 200, 300}), 0, rows);
    op.give(rows);
    const std::vector<int64_t> first{16410909,  39682429,  55103279,  60931720,  87006904,  116506179,
                                     131512017, 152932897, 169641436, 182022480, 209277433, 237891023,
                                     256841529, 277007269, 290665954, 300984276};
    const std::vector<int64_t> last{6129193,   20484628,  57667260,  77728366,  86357215,  109234597,
                                    123551585, 149309416, 172664702, 184433127, 201501905, 227445817,
                                    243341740, 279238932, 284538191, 311036336};
    ASSERT_EQ(first, std::vector<int64_t>(rows.i64(), rows.i64() + 16));
    ASSERT_EQ(last, std::vector<int64_t>(rows.i64() + 48, rows.i64() + 64));
  });
}

// However a sequence with ends of text in it is cut; and they hide what is older, but not behind themselves.
TEST(NgramRows, CutsDoNotMatter) {
  compare_backends(2, 0, [](OpCase& op) {
    const ops::NgramHash hash = released();
    std::vector<int32_t> tokens;
    for (int i = 0; i < 40; ++i)
      tokens.push_back(op.rng().percent(20) ? 248044 : static_cast<int32_t>(op.rng().between(0, 1000)));
    std::vector<int64_t> expected;
    for (const std::vector<int32_t>& pieces :
         std::vector<std::vector<int32_t>>{{40}, {1, 1, 1, 37}, {2, 38}, {3, 1, 20, 16}}) {
      const Tensor rows = op.blank({40, 16}, DType::i64), record = op.blank({16});
      int32_t at = 0;
      for (int32_t count : pieces) {
        const kernels::SegmentView segment{
            .rows = count, .position = at, .state_in = at ? record.data : nullptr, .state_out = record.data};
        const kernels::BatchView batch = op.batch_of(segment);
        const Tensor some = op.integers({tokens.begin() + at, tokens.begin() + at + count});
        ops::ngram_rows(op.stream(), batch, hash, some, 0, rows.rows(at, count));
        at += count;
      }
      const auto* state = reinterpret_cast<const int32_t*>(record.data);
      ASSERT_EQ(state[0], tokens[38]);
      ASSERT_EQ(state[1], tokens[39]);
      std::vector<int64_t> found(rows.i64(), rows.i64() + 40 * 16);
      if (expected.empty()) expected = found;
      ASSERT_EQ(found, expected);
    }
    for (int t = 2; t < 40; ++t) {
      const bool hidden = tokens[static_cast<size_t>(t - 1)] == 248044;
      const int64_t older = hidden ? 248044 : tokens[static_cast<size_t>(t - 2)];
      uint64_t mix = static_cast<uint64_t>(tokens[static_cast<size_t>(t)]) * 23703573157769u;
      mix ^= static_cast<uint64_t>(tokens[static_cast<size_t>(t - 1)]) * 20109073645365u;
      mix ^= static_cast<uint64_t>(older) * 8052911324071u;
      ASSERT_EQ(expected[static_cast<size_t>(t * 16 + 8)], static_cast<int64_t>(mix % 20000081u) + hash.offsets[8]);
    }
    op.give(op.integers({static_cast<int32_t>(expected.back())}));
  });
}

TEST(NgramRows, CapturesTheIdsBeforeThePosition) {
  compare_backends(3, 0, [](OpCase& op) {
    const auto& batch = op.batch({{.rows = 130, .captures = {64, 128}}}, 128, 64);
    std::vector<int32_t> tokens(130);
    std::iota(tokens.begin(), tokens.end(), 0);
    ops::ngram_rows(op.stream(), batch, released(), op.integers(tokens), 64, op.blank({130, 16}, DType::i64));
    for (size_t i = 0; i < 2; ++i) {
      const auto* ids = reinterpret_cast<const int32_t*>(op.capture(i) + 64);
      ASSERT_EQ(ids[0], static_cast<int32_t>(64 * (i + 1) - 2));
      ASSERT_EQ(ids[1], static_cast<int32_t>(64 * (i + 1) - 1));
    }
  });
}

TEST(NgramGate, Agrees) {
  for (const auto& [T, S, M] : std::vector<std::array<int64_t, 3>>{{1, 4, 64}, {13, 2, 40}, {7, 4, 256}})
    compare_backends(4, 1e-4, [&, T = T, S = S, M = M](OpCase& op) {
      const ops::NgramNorms norms{.key = op.filled({S * M}), .query = op.filled({S * M}), .conv = op.filled({S * M})};
      const Tensor H = op.filled({T, S * M}), key = op.filled({T, S * M}), value = op.filled({T, M});
      const Tensor gated = op.blank({T, S * M}), normed = op.blank({T, S * M});
      ops::ngram_gate(op.stream(), norms, H, key, value, gated, normed);
      op.give(gated);
      op.give(normed);
      // Last stream of the last row.
      const int64_t at = (T * S - 1) * M;
      double keys = 0, queries = 0, u = 0;
      for (int64_t m = 0; m < M; ++m) {
        keys += std::pow(key.f32()[at + m], 2) / static_cast<double>(M);
        queries += std::pow(H.f32()[at + m], 2) / static_cast<double>(M);
        u += static_cast<double>(key.f32()[at + m]) * H.f32()[at + m] * (1 + norms.key.f32()[(S - 1) * M + m]) *
             (1 + norms.query.f32()[(S - 1) * M + m]);
      }
      u /= std::sqrt((keys + 1e-6) * (queries + 1e-6) * static_cast<double>(M));
      const double gate = 1 / (1 + std::exp(-std::copysign(std::sqrt(std::max(std::abs(u), 1e-6)), u)));
      ASSERT_NEAR(gated.f32()[at + 1], gate * value.f32()[(T - 1) * M + 1], 1e-4);
    });
}

}  // namespace
}  // namespace wp
