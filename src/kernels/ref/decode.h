// Rows of a Matrix as doubles, and small functions. Weights may lie at any byte of a mapped file: read by memcpy.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/matrix.h"
#include "core/numbers.h"

namespace wp::kernels::ref {

template <class T>
T load(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

inline double load_float(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::bf16: return bf16_to_f32(load<uint16_t>(data, index));
    case DType::f16: return f16_to_f32(load<uint16_t>(data, index));
    default: return load<float>(data, index);
  }
}

// Elements [k, k + count) of row n of a matrix in layout rows (core/matrix.h).
inline void decode_row(const Matrix& W, int64_t n, int64_t k, int64_t count, double* out) {
  const int64_t at = n * W.K + k;
  switch (W.format) {
    case WeightFormat::f32:
      for (int64_t i = 0; i < count; ++i) out[i] = load<float>(W.data, at + i);
      return;
    case WeightFormat::f16:
      for (int64_t i = 0; i < count; ++i) out[i] = f16_to_f32(load<uint16_t>(W.data, at + i));
      return;
    case WeightFormat::bf16:
      for (int64_t i = 0; i < count; ++i) out[i] = bf16_to_f32(load<uint16_t>(W.data, at + i));
      return;
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_row: {
      const double scale = load_float(W.scale, W.scale_dtype, W.format == WeightFormat::fp8_row ? n : 0);
      for (int64_t i = 0; i < count; ++i) out[i] = e4m3_to_f32(load<uint8_t>(W.data, at + i)) * scale;
      return;
    }
    case WeightFormat::fp8_block: {
      const int64_t scales = n / 128 * ((W.K + 127) / 128);
      for (int64_t i = 0; i < count; ++i)
        out[i] =
            e4m3_to_f32(load<uint8_t>(W.data, at + i)) * load_float(W.scale, W.scale_dtype, scales + (k + i) / 128);
      return;
    }
    case WeightFormat::nvfp4:
      for (int64_t i = 0; i < count; ++i) {
        const auto byte = load<uint8_t>(W.data, n * (W.K / 2) + (k + i) / 2);
        const double block = e4m3_to_f32(load<uint8_t>(W.scale, n * (W.K / 16) + (k + i) / 16));
        out[i] = e2m1_to_f32((k + i) % 2 ? byte >> 4 : byte & 15) * block * static_cast<double>(W.scale_2);
      }
      return;
  }
}

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }
inline double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

// 1 / sqrt(mean of squares + epsilon)
inline double inverse_rms(const float* x, int64_t count, double epsilon) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return 1.0 / std::sqrt(sum / static_cast<double>(count) + epsilon);
}

// sums[r] += w . rows[r] over `count` elements, ascending; four rows at a time, each with a sum of its own.
inline void add_dots(const double* w, int64_t count, const float* const* rows, int64_t rows_count, double* sums) {
  for (int64_t r = 0; r < rows_count; r += 4) {
    const float* x[4];
    double part[4];
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t row = std::min(r + i, rows_count - 1);
      x[i] = rows[row];
      part[i] = sums[row];
    }
    for (int64_t k = 0; k < count; ++k) {
      part[0] += w[k] * x[0][k];
      part[1] += w[k] * x[1][k];
      part[2] += w[k] * x[2][k];
      part[3] += w[k] * x[3][k];
    }
    for (int64_t i = 0; i < 4 && r + i < rows_count; ++i) sums[r + i] = part[i];
  }
}

constexpr int64_t kTileRows = 64, kTileK = 512;

// sums[r] = row n of W . rows[r], for up to kTileRows rows.
inline void dots(const Matrix& W, int64_t n, const float* const* rows, int64_t rows_count, double* sums) {
  double piece[kTileK];
  const float* at[kTileRows];
  std::fill_n(sums, rows_count, 0.0);
  for (int64_t k = 0; k < W.K; k += kTileK) {
    const int64_t count = std::min(kTileK, W.K - k);
    decode_row(W, n, k, count, piece);
    for (int64_t r = 0; r < rows_count; ++r) at[r] = rows[r] + k;
    add_dots(piece, count, at, rows_count, sums);
  }
}

}  // namespace wp::kernels::ref
