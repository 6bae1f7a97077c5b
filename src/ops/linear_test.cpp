#include "ops/linear.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "core/numbers.h"
#include "testing/op_case.h"
#include "testing/seeds.h"

namespace wp {
namespace {

using testing::compare_backends;
using testing::OpCase;

// The formulas of core/matrix.h, written out once more.
double element(const Matrix& W, int64_t n, int64_t k) {
  const auto* bytes = static_cast<const uint8_t*>(W.data);
  const auto* halves = static_cast<const uint16_t*>(W.data);
  const auto* scales = static_cast<const float*>(W.scale);
  const int64_t at = n * W.K + k;
  switch (W.format) {
    case WeightFormat::f32: return static_cast<const float*>(W.data)[at];
    case WeightFormat::f16: return f16_to_f32(halves[at]);
    case WeightFormat::bf16: return bf16_to_f32(halves[at]);
    case WeightFormat::fp8_tensor: return static_cast<double>(e4m3_to_f32(bytes[at])) * scales[0];
    case WeightFormat::fp8_row: return static_cast<double>(e4m3_to_f32(bytes[at])) * scales[n];
    case WeightFormat::fp8_block:
      return static_cast<double>(e4m3_to_f32(bytes[at])) * scales[n / 128 * ((W.K + 127) / 128) + k / 128];
    case WeightFormat::nvfp4:
      return static_cast<double>(e2m1_to_f32(static_cast<uint8_t>(bytes[at / 2] >> (k % 2 * 4) & 15))) *
             e4m3_to_f32(static_cast<const uint8_t*>(W.scale)[at / 16]) * W.scale_2;
  }
  return 0;
}

TEST(Matmul, AgreesInEveryFormatAndSize) {
  for (Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    for (WeightFormat format : testing::all_formats())
      for (const auto& [T, N, K] : std::vector<std::array<int64_t, 3>>{
               {1, 1, 16}, {3, 6, 64}, {8, 17, 144}, {67, 200, 256}, {150, 300, 192}, {9, 130, 1024}, {2, 33, 528}}) {
        SCOPED_TRACE(cat(name(format), " T ", T, " N ", N, " K ", K));
        compare_backends(seed, 1e-5, [&](OpCase& op) {
          const Tensor x = op.filled({T, K}), y = op.blank({T, N});
          const Matrix rows = op.rows_matrix(format, N, K);
          ops::matmul(op.stream(), x, op.packed(rows), y);
          op.give(y);
          if (op.stream().kind() != DeviceKind::ref) return;
          for (int64_t t = 0; t < T; t += 5)
            for (int64_t n = 0; n < N; ++n) {
              double sum = 0;
              for (int64_t k = 0; k < K; ++k) sum += x.f32()[t * K + k] * element(rows, n, k);
              ASSERT_NEAR(y.f32()[t * N + n], sum, 1e-5 * (1 + std::abs(sum)));
            }
        });
      }
  }
}

// Equal bits: a row does not depend on its neighbours, its place, or gathering.
TEST(Matmul, RowsAreIndependent) {
  for (WeightFormat format : testing::all_formats())
    compare_backends(11, 1e-5, [&](OpCase& op) {
      constexpr int64_t kT = 37, kN = 45, kK = 256;
      const Tensor x = op.filled({kT, kK}), y = op.blank({kT, kN}), one = op.blank({1, kN});
      const Matrix W = op.matrix(format, kN, kK);
      ops::matmul(op.stream(), x, W, y);
      for (int64_t t = 0; t < kT; ++t) {
        ops::matmul(op.stream(), x.rows(t, 1), W, one);
        ASSERT_EQ(0, std::memcmp(one.data, y.rows(t, 1).data, kN * 4)) << name(op.stream().kind()) << " row " << t;
      }
      const Tensor rows = op.integers({36, 0, 5, 5, 17}), gathered = op.blank({5, kN});
      ops::matmul(op.stream(), x, W, gathered, rows);
      for (int64_t i = 0; i < 5; ++i)
        ASSERT_EQ(0, std::memcmp(gathered.rows(i, 1).data, y.rows(rows.i32()[i], 1).data, kN * 4));
      op.give(gathered);
    });
}

// Equal bits: a group of products is its products.
TEST(MatmulGroup, IsItsProducts) {
  for (WeightFormat format : testing::all_formats())
    for (const int64_t T : {1, 8, 20, 90}) {
      SCOPED_TRACE(cat(name(format), " T ", T));
      compare_backends(13, 1e-5, [&](OpCase& op) {
        constexpr int64_t kK = 256;
        const Tensor x = op.filled({T, kK});
        const std::array<int64_t, 4> widths = {40, 17, 130, 1};
        std::vector<Matrix> weights;
        std::vector<Tensor> together, apart;
        for (const int64_t N : widths) {
          weights.push_back(op.matrix(N == 1 ? WeightFormat::f32 : format, N, kK));
          together.push_back(op.blank({T, N}));
          apart.push_back(op.blank({T, N}));
        }
        for (size_t i = 0; i < widths.size(); ++i) ops::matmul(op.stream(), x, weights[i], apart[i]);
        const auto equal = [&](size_t count) {
          for (size_t i = 0; i < count; ++i) {
            const auto bytes = static_cast<size_t>(T * widths[i]) * 4;
            ASSERT_EQ(0, std::memcmp(together[i].data, apart[i].data, bytes)) << name(op.stream().kind()) << " " << i;
            std::memset(together[i].data, 0xFF, bytes);
          }
        };
        ops::matmul_group(op.stream(), x,
                          {{weights[0], together[0]}, {weights[1], together[1]}, {weights[2], together[2]}});
        equal(3);
        ops::matmul_group(op.stream(), x,
                          {{weights[0], together[0]},
                           {weights[1], together[1]},
                           {weights[2], together[2]},
                           {weights[3], together[3]}});
        equal(4);
        for (const Tensor& y : apart) op.give(y);
      });
    }
}

// Equal bits: as many rows as any kernel is made for, each row alone, and with and without memory lent to the stream.
// The widest are cut into several slices of K and more tiles than are worked on together.
TEST(Matmul, ManyRowsGiveTheBitsOfOne) {
  for (WeightFormat format : testing::all_formats())
    for (const auto& [T, N, K] : std::vector<std::array<int64_t, 3>>{
             {65, 40, 64}, {130, 130, 1216}, {300, 260, 640}, {2200, 16, 128}, {70, 24, 8320}}) {
      SCOPED_TRACE(cat(name(format), " T ", T, " N ", N, " K ", K));
      compare_backends(12, 1e-5, [&](OpCase& op) {
        const Tensor x = op.filled({T, K}), y = op.blank({T, N}), one = op.blank({1, N});
        const Matrix W = op.matrix(format, N, K);
        ops::matmul(op.stream(), x, W, y);
        for (int64_t t = 0; t < T; t += t < 130 ? 1 : 97) {
          ops::matmul(op.stream(), x.rows(t, 1), W, one);
          ASSERT_EQ(0, std::memcmp(one.data, y.rows(t, 1).data, static_cast<size_t>(N) * 4))
              << name(op.stream().kind()) << " row " << t;
        }
        const Lent lent = lent_to(op.stream());
        op.stream().lend(nullptr, 0);
        const Tensor without = op.blank({T, N});
        ops::matmul(op.stream(), x, W, without);
        op.stream().lend(lent.data, lent.size_bytes);
        ASSERT_EQ(0, std::memcmp(without.data, y.data, static_cast<size_t>(T * N) * 4)) << name(op.stream().kind());
        if (T < 200) op.give(y);
      });
    }
}

TEST(Embed, RepeatsTheRowOfEachToken) {
  for (WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::f16, WeightFormat::fp8_row})
    compare_backends(3, 0, [&](OpCase& op) {
      const Matrix table = op.rows_matrix(format, 50, 37);
      const Tensor tokens = op.integers({0, 49, 7, 7}), y = op.blank({4, 3 * 37});
      ops::embed(op.stream(), table, tokens, y);
      op.give(y);
      for (int64_t t = 0; t < 4; ++t)
        for (int64_t i = 0; i < 3 * 37; ++i)
          ASSERT_EQ(y.f32()[t * 3 * 37 + i], static_cast<float>(element(table, tokens.i32()[t], i % 37)));
    });
}

TEST(TableRows, CrossesShards) {
  for (WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::fp8_tensor})
    compare_backends(4, 0, [&](OpCase& op) {
      std::vector<Matrix> shards;
      for (int i = 0; i < 3; ++i) shards.push_back(op.rows_matrix(format, 10, 16));
      const Tensor rows = op.blank({2, 3}, DType::i64), y = op.blank({2, 3 * 16});
      for (int64_t i = 0; i < 6; ++i)
        rows.i64()[i] = std::array<int64_t, 6>{0, 29, 10, 9, 19, 20}[static_cast<size_t>(i)];
      ops::table_rows(op.stream(), op.copied(shards), 10, rows, y);
      op.give(y);
      for (int64_t i = 0; i < 6; ++i)
        ASSERT_EQ(y.f32()[i * 16 + 3],
                  static_cast<float>(element(shards[static_cast<size_t>(rows.i64()[i] / 10)], rows.i64()[i] % 10, 3)));
    });
}

TEST(Gather, CopiesRowsAndColumns) {
  compare_backends(5, 0, [](OpCase& op) {
    const Tensor x = op.filled({5, 7}), rows = op.integers({4, 0, 4}), y = op.blank({3, 7});
    ops::gather_rows(op.stream(), x, rows, y);
    op.give(y);
    ASSERT_EQ(y.f32()[7 + 2], x.f32()[2]);
    const Tensor columns = op.integers({6, 6, 1}), z = op.blank({5, 3});
    ops::gather_columns(op.stream(), x, columns, z);
    op.give(z);
    ASSERT_EQ(z.f32()[3 * 3 + 2], x.f32()[3 * 7 + 1]);
  });
}

}  // namespace
}  // namespace wp
