// How the cpu backend stores weights: panels of 16 outputs, so that a lane is an output and a dot product is one chain
// of fused multiply-adds over ascending k, without sums over lanes. A row is cut into 32-bit words as it lies in the
// checkpoint (1, 2, 4 or 8 weights of consecutive k); a panel interleaves the words of its 16 rows.
//
//   data   [N / 16, words of a row, 16] u32, rows past N are 0
//   scale  nvfp4: [N / 16, K / 16, 16] E4M3; fp8_row: [N rounded up] f32; fp8_tensor: [1] f32;
//          fp8_block: [N / 128, K / 128] f32
//
// Packing runs once, when a model is loaded; any thread.
#pragma once

#include <cstdint>

#include "core/matrix.h"
#include "kernels/linear.h"

namespace wp::kernels::cpu {

constexpr int64_t kPanelRows = 16;

constexpr int64_t panels_of(int64_t N) { return (N + kPanelRows - 1) / kPanelRows; }
constexpr int64_t weights_per_word(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32: return 1;
    case WeightFormat::f16:
    case WeightFormat::bf16: return 2;
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_row:
    case WeightFormat::fp8_block: return 4;
    case WeightFormat::nvfp4: return 8;
  }
  return 1;
}
constexpr int64_t words_of(WeightFormat format, int64_t K) {
  return (K + weights_per_word(format) - 1) / weights_per_word(format);
}

Packing packing();

}  // namespace wp::kernels::cpu
