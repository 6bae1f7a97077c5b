#include "core/matrix.h"

namespace wp {

const char* name(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32: return "f32";
    case WeightFormat::f16: return "f16";
    case WeightFormat::bf16: return "bf16";
    case WeightFormat::fp8_tensor: return "fp8";
    case WeightFormat::fp8_row: return "fp8-row";
    case WeightFormat::fp8_block: return "fp8-block128";
    case WeightFormat::nvfp4: return "nvfp4";
  }
  return "?";
}

int64_t Matrix::data_bytes() const {
  switch (format) {
    case WeightFormat::f32: return N * K * 4;
    case WeightFormat::f16:
    case WeightFormat::bf16: return N * K * 2;
    case WeightFormat::fp8_tensor:
    case WeightFormat::fp8_row:
    case WeightFormat::fp8_block: return N * K;
    case WeightFormat::nvfp4: return N * (K / 2);
  }
  return 0;
}

int64_t Matrix::scale_bytes() const {
  switch (format) {
    case WeightFormat::f32:
    case WeightFormat::f16:
    case WeightFormat::bf16: return 0;
    case WeightFormat::fp8_tensor: return size_bytes(scale_dtype);
    case WeightFormat::fp8_row: return N * size_bytes(scale_dtype);
    case WeightFormat::fp8_block: return ((N + 127) / 128) * ((K + 127) / 128) * size_bytes(scale_dtype);
    case WeightFormat::nvfp4: return N * (K / 16);
  }
  return 0;
}

}  // namespace wp
