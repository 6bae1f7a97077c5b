// Matrix: one weight [N, K] as a view, in its storage format. y = x W^T, row n of W makes output n. Made by
// weights/, packed for a device by ops/, read by kernels/. Owns nothing.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace wp {

// Formats of spec/qwen4_exp.md 2.7 and 2.8. The value of element [n, k] in exact arithmetic:
enum class WeightFormat : uint8_t {
  f32,         // data[n, k]
  f16,         // data[n, k]
  bf16,        // data[n, k]
  fp8_tensor,  // e4m3(data[n, k]) * scale[0]
  fp8_row,     // e4m3(data[n, k]) * scale[n]
  fp8_block,   // e4m3(data[n, k]) * scale[n / 128, k / 128]
  nvfp4        // e2m1(data[n, k / 2], low nibble first) * e4m3(block_scale[n, k / 16]) * scale_2
};

const char* name(WeightFormat format);

// How the numbers lie in memory. `rows` is the checkpoint's own order; `panels` is a backend's packing.
enum class WeightLayout : uint8_t { rows, panels };

struct Matrix {
  WeightFormat format = WeightFormat::f32;
  WeightLayout layout = WeightLayout::rows;
  int64_t N = 0, K = 0;
  const void* data = nullptr;      // [N, K], or [N, K / 2] bytes for nvfp4.
  const void* scale = nullptr;     // fp8 formats, of scale_dtype; nvfp4: E4M3 bytes [N, K / 16].
  DType scale_dtype = DType::f32;  // f32, bf16 or f16 for fp8 formats.
  float scale_2 = 1.0f;            // nvfp4: second scale, already inverted where a file stores its reciprocal.

  explicit operator bool() const { return data != nullptr; }
  int64_t data_bytes() const;   // Bytes of `data` in either layout before padding.
  int64_t scale_bytes() const;  // Bytes of `scale`.
};

}  // namespace wp
