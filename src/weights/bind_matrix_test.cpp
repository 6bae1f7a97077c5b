// Every storage format of a linear weight, decoded from the Matrix that binding gives and compared with the values that
// the file was made from.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/numbers.h"
#include "core/rng.h"
#include "testing/safetensors_writer.h"
#include "testing/seeds.h"
#include "weights/checkpoint.h"

namespace wp {
namespace {

using testing::bytes_of;
using testing::StoredBytes;

// A checkpoint of one file in a folder of its own.
struct Files {
  testing::TemporaryFolder folder;
  Checkpoint checkpoint;

  explicit Files(const std::vector<StoredBytes>& tensors, int padding = 0)
      : checkpoint(open(folder.write("w.safetensors", testing::safetensors_file(tensors, padding)))) {}
  static Checkpoint open(const std::string& path) {
    auto opened = Checkpoint::open(path);
    if (!opened.ok()) ADD_FAILURE() << opened.error().message;
    return std::move(opened).value();
  }
};

float scale_at(const Matrix& m, int64_t index) {
  if (m.scale_dtype == DType::f32) return static_cast<const float*>(m.scale)[index];
  const uint16_t bits = static_cast<const uint16_t*>(m.scale)[index];
  return m.scale_dtype == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// The value as core/matrix.h defines it, with typed loads: under the sanitizers a misaligned one fails.
double value_at(const Matrix& m, int64_t n, int64_t k) {
  const int64_t at = n * m.K + k;
  const auto* bytes = static_cast<const uint8_t*>(m.data);
  switch (m.format) {
    case WeightFormat::f32: return static_cast<const float*>(m.data)[at];
    case WeightFormat::f16: return f16_to_f32(static_cast<const uint16_t*>(m.data)[at]);
    case WeightFormat::bf16: return bf16_to_f32(static_cast<const uint16_t*>(m.data)[at]);
    case WeightFormat::fp8_tensor: return double{e4m3_to_f32(bytes[at])} * scale_at(m, 0);
    case WeightFormat::fp8_row: return double{e4m3_to_f32(bytes[at])} * scale_at(m, n);
    case WeightFormat::fp8_block:
      return double{e4m3_to_f32(bytes[at])} * scale_at(m, n / 128 * ((m.K + 127) / 128) + k / 128);
    case WeightFormat::nvfp4: {
      const uint8_t pair = bytes[at / 2];
      const uint8_t block = static_cast<const uint8_t*>(m.scale)[at / 16];
      return double{e2m1_to_f32(k % 2 ? pair >> 4 : pair & 15)} * e4m3_to_f32(block) * m.scale_2;
    }
  }
  return NAN;
}

std::vector<uint8_t> codes(Rng& rng, int64_t count) {
  std::vector<uint8_t> out(static_cast<size_t>(count));
  for (uint8_t& code : out) {
    code = static_cast<uint8_t>(rng.next());
    if ((code & 0x7F) == 0x7F) code = 0x38;  // No NaN: it would compare unequal to itself.
  }
  return out;
}

std::vector<float> scales(Rng& rng, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& scale : out) scale = bf16_to_f32(f32_to_bf16(static_cast<float>(rng.real() + 0.01)));
  return out;
}

std::vector<uint16_t> as_bf16(const std::vector<float>& values) {
  std::vector<uint16_t> out;
  for (const float value : values) out.push_back(f32_to_bf16(value));
  return out;
}

// 1.0 is 0x3C00, and 1 + i/1024 counts the mantissa up.
std::vector<uint16_t> f16_ramp(int64_t count) {
  std::vector<uint16_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<uint16_t>(0x3C00 + i % 1024));
  return out;
}

void expect_name_fault(const Result<Matrix>& bound, const std::string& message) {
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.error().code, ErrorCode::bad_file);
  EXPECT_EQ(bound.error().message, message);
}

// Aligned files and files whose header leaves every tensor at an odd address.
class BindMatrix : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Alignments, BindMatrix, ::testing::Values(0, 1, 2, 4));

TEST_P(BindMatrix, FloatFormats) {
  const int64_t N = 3, K = 5;
  std::vector<float> values;
  for (int i = 0; i < N * K; ++i) values.push_back(static_cast<float>(i) - 7.5f);
  Files files({{"a.weight", "F32", {N, K}, bytes_of(values)},
               {"b.weight", "BF16", {N, K}, bytes_of(as_bf16(values))},
               {"c.weight", "F16", {N, K}, bytes_of(f16_ramp(N * K))}},
              GetParam());
  auto a = files.checkpoint.bind_matrix("a", N, K), b = files.checkpoint.bind_matrix("b", N, K),
       c = files.checkpoint.bind_matrix("c", N, K);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(a->format, WeightFormat::f32);
  EXPECT_EQ(b->format, WeightFormat::bf16);
  EXPECT_EQ(c->format, WeightFormat::f16);
  for (int64_t n = 0; n < N; ++n)
    for (int64_t k = 0; k < K; ++k) {
      EXPECT_EQ(value_at(*a, n, k), values[static_cast<size_t>(n * K + k)]);
      EXPECT_EQ(value_at(*b, n, k), values[static_cast<size_t>(n * K + k)]);
      EXPECT_EQ(value_at(*c, n, k), 1.0 + static_cast<double>(n * K + k) / 1024);
    }
  EXPECT_TRUE(files.checkpoint.unbound().empty());
}

TEST_P(BindMatrix, Fp8ScalesByTensorRowAndBlock) {
  const int64_t N = 130, K = 257;  // Two blocks down, three across, the last ones ragged.
  for (const Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    const auto weight = codes(rng, N * K);
    const auto rows = scales(rng, N), grid = scales(rng, 2 * 3);
    const std::string data = bytes_of(weight);
    Files files({{"tensor.weight", "F8_E4M3", {N, K}, data},
                 {"tensor.weight_scale", "F32", {}, bytes_of(std::vector<float>{0.125f})},
                 {"tensor.input_scale", "F32", {}, bytes_of(std::vector<float>{1.0f})},
                 {"one.weight", "F8_E4M3", {N, K}, data},
                 {"one.weight_scale", "BF16", {1}, bytes_of(as_bf16({0.125f}))},
                 {"row.weight", "F8_E4M3", {N, K}, data},
                 {"row.weight_scale", "F32", {N, 1}, bytes_of(rows)},
                 {"flat.weight", "F8_E4M3", {N, K}, data},
                 {"flat.weight_scale", "BF16", {N}, bytes_of(as_bf16(rows))},
                 {"block.weight", "F8_E4M3", {N, K}, data},
                 {"block.weight_scale_inv", "BF16", {2, 3}, bytes_of(as_bf16(grid))},
                 {"half.weight", "F8_E4M3", {N, K}, data},
                 {"half.weight_scale_inv", "F16", {2, 3}, bytes_of(f16_ramp(6))}},
                GetParam());
    const auto bound = [&](const char* name) {
      auto matrix = files.checkpoint.bind_matrix(name, N, K);
      if (!matrix.ok()) ADD_FAILURE() << matrix.error().message;
      return matrix.ok() ? *matrix : Matrix{};
    };
    const Matrix tensor = bound("tensor"), one = bound("one"), row = bound("row"), flat = bound("flat"),
                 block = bound("block"), half = bound("half");
    EXPECT_EQ(tensor.format, WeightFormat::fp8_tensor);
    EXPECT_EQ(one.format, WeightFormat::fp8_tensor);
    EXPECT_EQ(row.format, WeightFormat::fp8_row);
    EXPECT_EQ(flat.format, WeightFormat::fp8_row);
    EXPECT_EQ(block.format, WeightFormat::fp8_block);
    EXPECT_EQ(half.format, WeightFormat::fp8_block);
    int64_t wrong = 0;
    for (int64_t n = 0; n < N; ++n)
      for (int64_t k = 0; k < K; ++k) {
        const double code = e4m3_to_f32(weight[static_cast<size_t>(n * K + k)]);
        const auto cell = static_cast<size_t>(n / 128 * 3 + k / 128);
        wrong += value_at(tensor, n, k) != code * 0.125 || value_at(one, n, k) != code * 0.125;
        wrong += value_at(row, n, k) != code * rows[static_cast<size_t>(n)];
        wrong += value_at(flat, n, k) != code * rows[static_cast<size_t>(n)];
        wrong += value_at(block, n, k) != code * grid[cell];
        wrong += value_at(half, n, k) != code * (1.0 + static_cast<double>(cell) / 1024);
      }
    EXPECT_EQ(wrong, 0);
    EXPECT_TRUE(files.checkpoint.unbound().empty());
  }
}

TEST_P(BindMatrix, Nvfp4OfBothNamingFamilies) {
  const int64_t N = 7, K = 48;
  for (const Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    std::vector<uint8_t> packed(static_cast<size_t>(N * K / 2));
    for (uint8_t& pair : packed) pair = static_cast<uint8_t>(rng.next());
    const auto block = codes(rng, N * K / 16);
    const std::vector<float> scale_2{0.0003f}, global{3000.0f};
    Files files({{"m.weight", "U8", {N, K / 2}, bytes_of(packed)},
                 {"m.weight_scale", "F8_E4M3", {N, K / 16}, bytes_of(block)},
                 {"m.weight_scale_2", "F32", {}, bytes_of(scale_2)},
                 {"m.input_scale", "F32", {}, bytes_of(scale_2)},
                 {"c.weight_packed", "U8", {N, K / 2}, bytes_of(packed)},
                 {"c.weight_scale", "F8_E4M3", {N, K / 16}, bytes_of(block)},
                 {"c.weight_global_scale", "F32", {1}, bytes_of(global)},
                 {"c.input_global_scale", "F32", {1}, bytes_of(global)}},
                GetParam());
    auto m = files.checkpoint.bind_matrix("m", N, K), c = files.checkpoint.bind_matrix("c", N, K);
    ASSERT_TRUE(m.ok() && c.ok());
    EXPECT_EQ(m->format, WeightFormat::nvfp4);
    EXPECT_EQ(c->format, WeightFormat::nvfp4);
    EXPECT_EQ(m->scale_2, 0.0003f);
    EXPECT_EQ(c->scale_2, 1.0f / 3000.0f);
    int64_t wrong = 0;
    for (int64_t n = 0; n < N; ++n)
      for (int64_t k = 0; k < K; ++k) {
        const uint8_t pair = packed[static_cast<size_t>((n * K + k) / 2)];
        const double code = e2m1_to_f32(k % 2 == 0 ? pair & 15 : pair >> 4);
        const double step = e4m3_to_f32(block[static_cast<size_t>((n * K + k) / 16)]);
        wrong += value_at(*m, n, k) != code * step * 0.0003f;
        wrong += value_at(*c, n, k) != code * step * (1.0f / 3000.0f);
      }
    EXPECT_EQ(wrong, 0);
    EXPECT_TRUE(files.checkpoint.unbound().empty());
  }
}

TEST_P(BindMatrix, SlicesOfFusedExperts) {
  const int64_t E = 3, rows = 4, K = 2;
  std::vector<float> values;
  for (int i = 0; i < E * rows * K; ++i) values.push_back(static_cast<float>(i));
  Files files({{"experts.gate_up_proj", "F32", {E, rows, K}, bytes_of(values)},
               {"half", "BF16", {E, rows, K}, bytes_of(as_bf16(values))},
               {"codes", "U8", {E, rows, K}, std::string(24, 'x')}},
              GetParam());
  for (const char* name : {"experts.gate_up_proj", "half"}) {
    auto up = files.checkpoint.bind_expert(name, E, rows, K, 2, 1, 3);
    ASSERT_TRUE(up.ok()) << up.error().message;
    EXPECT_EQ(up->N, 3);
    for (int64_t n = 0; n < 3; ++n)
      for (int64_t k = 0; k < K; ++k) EXPECT_EQ(value_at(*up, n, k), static_cast<double>((2 * rows + 1 + n) * K + k));
    auto again = files.checkpoint.bind_expert(name, E, rows, K, 2, 1, 3);
    EXPECT_EQ(again->data, up->data);
  }
  expect_name_fault(files.checkpoint.bind_expert("experts.gate_up_proj", E, rows, K + 1, 0, 0, 1),
                    "w.safetensors: experts.gate_up_proj: expected [3, 4, 3], found f32 [3, 4, 2]");
  expect_name_fault(files.checkpoint.bind_expert("codes", E, rows, K, 0, 0, 1),
                    "w.safetensors: codes: expected f32, f16 or bf16 [3, 4, 2], found u8");
  expect_name_fault(files.checkpoint.bind_expert("experts.gate_up", E, rows, K, 0, 0, 1),
                    files.checkpoint.path() + ": no tensor experts.gate_up (closest: experts.gate_up_proj)");
}

TEST(BindMatrixFaults, NameWhatWasExpectedAndFound) {
  const std::string eight(8, '\0'), four(4, '\0'), sixteen(16, '\0');
  Files files({{"float.weight", "F32", {2, 2}, sixteen},
               {"int.weight", "I64", {1, 2}, sixteen},
               {"byte.weight", "I8", {4}, four},
               {"bare.weight", "F8_E4M3", {2, 4}, eight},
               {"odd.weight", "F8_E4M3", {2, 4}, eight},
               {"odd.weight_scale", "F32", {4}, sixteen},
               {"kind.weight", "F8_E4M3", {2, 4}, eight},
               {"kind.weight_scale", "F8_E4M3", {1}, "x"},
               {"ragged.weight", "U8", {1, 4}, four},
               {"short.weight", "U8", {1, 4}, four},
               {"short.weight_scale", "F8_E4M3", {1, 2}, "xx"},
               {"lone.weight", "U8", {1, 8}, eight},
               {"scale.weight", "U8", {1, 8}, eight},
               {"scale.weight_scale", "F8_E4M3", {1, 2}, "xx"},
               {"scale.weight_scale_2", "F32", {}, four},
               {"type.weight_scale_2", "F32", {}, four},
               {"type.weight", "U8", {1, 8}, eight},
               {"type.weight_scale", "U8", {1, 1}, "x"},
               {"half.weight", "U8", {1, 8}, eight},
               {"half.weight_scale", "F8_E4M3", {1, 1}, "x"},
               {"pair.weight", "U8", {1, 8}, eight},
               {"pair.weight_scale", "F8_E4M3", {1, 1}, "x"},
               {"pair.weight_scale_2", "F32", {2}, eight},
               {"zero.weight_packed", "U8", {1, 8}, eight},
               {"zero.weight_scale", "F8_E4M3", {1, 1}, "x"},
               {"zero.weight_global_scale", "F32", {1}, four},
               {"nan.weight", "U8", {1, 8}, eight},
               {"nan.weight_scale", "F8_E4M3", {1, 1}, "x"},
               {"nan.weight_scale_2", "F32", {}, bytes_of(std::vector<float>{NAN})}});
  const Checkpoint& c = files.checkpoint;
  expect_name_fault(c.bind_matrix("absent", 2, 2), c.path() + ": no tensor absent.weight (closest: int.weight)");
  expect_name_fault(c.bind_matrix("float", 2, 3), "w.safetensors: float.weight: expected [2, 3], found f32 [2, 2]");
  expect_name_fault(c.bind_matrix("float", 4, 1), "w.safetensors: float.weight: expected [4, 1], found f32 [2, 2]");
  expect_name_fault(c.bind_matrix("int", 1, 2),
                    "w.safetensors: int.weight: expected f32, f16, bf16, f8_e4m3 or u8 (NVFP4) [1, 2], found I64 "
                    "[1, 2]");
  expect_name_fault(c.bind_matrix("byte", 2, 2),
                    "w.safetensors: byte.weight: expected f32, f16, bf16, f8_e4m3 or u8 (NVFP4) [2, 2], found I8 [4]");
  expect_name_fault(c.bind_matrix("bare", 2, 4),
                    "w.safetensors: bare.weight: expected weight_scale or weight_scale_inv beside an E4M3 weight, "
                    "found neither");
  expect_name_fault(c.bind_matrix("odd", 2, 4),
                    "w.safetensors: odd.weight_scale: expected f32, f16 or bf16 of [1], [2] or [1, 1], found F32 [4]");
  expect_name_fault(
      c.bind_matrix("kind", 2, 4),
      "w.safetensors: kind.weight_scale: expected f32, f16 or bf16 of [1], [2] or [1, 1], found F8_E4M3 [1]");
  expect_name_fault(c.bind_matrix("ragged", 1, 8),
                    "w.safetensors: ragged.weight: expected a row of whole groups of 16 for NVFP4, found 8 elements");
  expect_name_fault(c.bind_matrix("short", 1, 16), "w.safetensors: short.weight: expected [1, 8], found u8 [1, 4]");
  expect_name_fault(c.bind_matrix("lone", 1, 16),
                    "w.safetensors: lone.weight: expected weight_scale beside an NVFP4 weight, found none");
  expect_name_fault(c.bind_matrix("scale", 1, 16),
                    "w.safetensors: scale.weight_scale: expected [1, 1], found f8_e4m3 [1, 2]");
  expect_name_fault(c.bind_matrix("type", 1, 16),
                    "w.safetensors: type.weight_scale: expected f8_e4m3 [1, 1], found u8 [1, 1]");
  expect_name_fault(c.bind_matrix("half", 1, 16),
                    "w.safetensors: half.weight: expected weight_scale_2 beside an NVFP4 weight, found none");
  expect_name_fault(c.bind_matrix("pair", 1, 16),
                    "w.safetensors: pair.weight_scale_2: expected f32 [] or [1], found F32 [2]");
  expect_name_fault(c.bind_matrix("zero", 1, 16),
                    "w.safetensors: zero.weight_global_scale: expected a scale that is finite and has a reciprocal, "
                    "found 0");
  expect_name_fault(c.bind_matrix("nan", 1, 16),
                    "w.safetensors: nan.weight_scale_2: expected a scale that is finite and has a reciprocal, found "
                    "nan");
}

}  // namespace
}  // namespace wp
