#include "kernels/cpu/panels.h"

#include <cstring>

#include "core/numbers.h"

namespace wp::kernels::cpu {
namespace {

constexpr int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t panel_data_bytes(const Matrix& m) { return rounded(panels_of(m.N) * words_of(m.format, m.K) * kPanelRows * 4); }

int64_t panel_scale_bytes(const Matrix& m) {
  switch (m.format) {
    case WeightFormat::f32:
    case WeightFormat::f16:
    case WeightFormat::bf16: return 0;
    case WeightFormat::fp8_tensor: return 64;
    case WeightFormat::fp8_row: return panels_of(m.N) * kPanelRows * 4;
    case WeightFormat::fp8_block: return rounded(((m.N + 127) / 128) * ((m.K + 127) / 128) * 4);
    case WeightFormat::nvfp4: return rounded(panels_of(m.N) * (m.K / 16) * kPanelRows);
  }
  return 0;
}

float scale_at(const Matrix& m, int64_t index) {
  switch (m.scale_dtype) {
    case DType::bf16: return bf16_to_f32(static_cast<const uint16_t*>(m.scale)[index]);
    case DType::f16: return f16_to_f32(static_cast<const uint16_t*>(m.scale)[index]);
    default: break;
  }
  WP_ASSERT(m.scale_dtype == DType::f32);
  float value;
  std::memcpy(&value, static_cast<const std::byte*>(m.scale) + index * 4, 4);
  return value;
}

void pack_words(const Matrix& rows, std::byte* destination) {
  const int64_t words = words_of(rows.format, rows.K), row_bytes = rows.data_bytes() / rows.N;
  const auto* data = static_cast<const std::byte*>(rows.data);
  for (int64_t n = 0; n < rows.N; ++n) {
    std::byte* panel = destination + n / kPanelRows * words * kPanelRows * 4;
    for (int64_t i = 0; i < words; ++i) {
      uint32_t word = 0;
      std::memcpy(&word, data + n * row_bytes + i * 4, static_cast<size_t>(std::min<int64_t>(4, row_bytes - i * 4)));
      std::memcpy(panel + (i * kPanelRows + n % kPanelRows) * 4, &word, 4);
    }
  }
}

void pack_scales(const Matrix& rows, std::byte* destination) {
  if (rows.format == WeightFormat::nvfp4) {
    const int64_t groups = rows.K / 16;
    const auto* scale = static_cast<const std::byte*>(rows.scale);
    for (int64_t n = 0; n < rows.N; ++n)
      for (int64_t g = 0; g < groups; ++g)
        destination[(n / kPanelRows * groups + g) * kPanelRows + n % kPanelRows] = scale[n * groups + g];
    return;
  }
  int64_t count = 0;
  if (rows.format == WeightFormat::fp8_tensor) count = 1;
  if (rows.format == WeightFormat::fp8_row) count = rows.N;
  if (rows.format == WeightFormat::fp8_block) count = ((rows.N + 127) / 128) * ((rows.K + 127) / 128);
  for (int64_t i = 0; i < count; ++i) {
    const float value = scale_at(rows, i);
    std::memcpy(destination + i * 4, &value, 4);
  }
}

int64_t packed_bytes(const Matrix& rows) { return panel_data_bytes(rows) + panel_scale_bytes(rows); }

Matrix pack(const Matrix& rows, std::byte* destination) {
  WP_ASSERT(rows.layout == WeightLayout::rows && rows.N > 0 && rows.K > 0);
  std::memset(destination, 0, static_cast<size_t>(packed_bytes(rows)));
  pack_words(rows, destination);
  Matrix packed = rows;
  packed.layout = WeightLayout::panels;
  packed.data = destination;
  if (panel_scale_bytes(rows) > 0) {
    std::byte* scale = destination + panel_data_bytes(rows);
    pack_scales(rows, scale);
    packed.scale = scale;
    packed.scale_dtype = rows.format == WeightFormat::nvfp4 ? DType::f8_e4m3 : DType::f32;
  }
  return packed;
}

}  // namespace

Packing packing() { return {packed_bytes, pack}; }

}  // namespace wp::kernels::cpu
