// Elements of a Matrix as doubles, one by one. Weights may lie at any byte of a mapped file: read by memcpy.
#pragma once

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

// The value of W[n, k] of a matrix in layout rows (core/matrix.h).
inline double element(const Matrix& W, int64_t n, int64_t k) {
  const int64_t at = n * W.K + k;
  switch (W.format) {
    case WeightFormat::f32: return load<float>(W.data, at);
    case WeightFormat::f16: return f16_to_f32(load<uint16_t>(W.data, at));
    case WeightFormat::bf16: return bf16_to_f32(load<uint16_t>(W.data, at));
    case WeightFormat::fp8_tensor:
      return e4m3_to_f32(load<uint8_t>(W.data, at)) * load_float(W.scale, W.scale_dtype, 0);
    case WeightFormat::fp8_row: return e4m3_to_f32(load<uint8_t>(W.data, at)) * load_float(W.scale, W.scale_dtype, n);
    case WeightFormat::fp8_block:
      return e4m3_to_f32(load<uint8_t>(W.data, at)) *
             load_float(W.scale, W.scale_dtype, n / 128 * ((W.K + 127) / 128) + k / 128);
    case WeightFormat::nvfp4: {
      const auto byte = load<uint8_t>(W.data, n * (W.K / 2) + k / 2);
      const double block = e4m3_to_f32(load<uint8_t>(W.scale, n * (W.K / 16) + k / 16));
      return e2m1_to_f32(k % 2 ? byte >> 4 : byte & 15) * block * static_cast<double>(W.scale_2);
    }
  }
  return 0;
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

}  // namespace wp::kernels::ref
