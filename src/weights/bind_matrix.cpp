// The formats of linear weights (spec/qwen4_exp.md 2.6 to 2.8): which one a name has is decided by the tensors that
// are present and by their dtypes, never by what config.json says of them.
#include <cmath>

#include "core/assert.h"
#include "weights/checkpoint_impl.h"
#include "weights/synthetic.h"

namespace wp {
namespace {

constexpr int64_t kFp8Block = 128;
constexpr int64_t kFp4Group = 16;

int64_t blocks(int64_t size) { return (size + kFp8Block - 1) / kFp8Block; }

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }

WeightFormat float_format(DType dtype) {
  if (dtype == DType::f32) return WeightFormat::f32;
  return dtype == DType::f16 ? WeightFormat::f16 : WeightFormat::bf16;
}

}  // namespace

std::optional<WeightFormat> fp8_format(const Shape& scale, int64_t N, int64_t K) {
  if (scale.rank() == 0 || (scale.rank() <= 2 && scale.count() == 1)) return WeightFormat::fp8_tensor;
  if (scale == Shape{N} || scale == Shape{N, 1}) return WeightFormat::fp8_row;
  if (scale == Shape{blocks(N), blocks(K)}) return WeightFormat::fp8_block;
  return std::nullopt;
}

Result<Matrix> Checkpoint::bind_matrix(std::string_view prefix, int64_t N, int64_t K) const {
  return impl_->bind_matrix(std::string(prefix), N, K);
}

Result<Matrix> Checkpoint::Impl::bind_matrix(const std::string& prefix, int64_t N, int64_t K) {
  WP_ASSERT(N > 0 && K > 0);
  if (synthetic) WP_TRY(synthetic->declare_matrix(*this, prefix, N, K));
  const std::string name = prefix + ".weight";
  const int64_t index = find(name);
  if (index < 0) {
    if (find(prefix + ".weight_packed") >= 0) return bind_nvfp4(prefix, ".weight_packed", ".weight_global_scale", N, K);
    return missing(name);
  }
  const TensorInfo& found = tensors[static_cast<size_t>(index)];
  if (found.supported && is_float(found.dtype)) return bind_float(name, N, K);
  if (found.supported && found.dtype == DType::f8_e4m3) return bind_fp8(prefix, N, K);
  if (found.supported && found.dtype == DType::u8) return bind_nvfp4(prefix, ".weight", ".weight_scale_2", N, K);
  return fault(index, cat("expected f32, f16, bf16, f8_e4m3 or u8 (NVFP4) ", Shape{N, K}, ", found ", found.dtype_name,
                          " ", found.shape));
}

Result<Matrix> Checkpoint::Impl::bind_float(const std::string& name, int64_t N, int64_t K) {
  WP_TRY(const int64_t index, checked(name, {N, K}));
  WP_TRY(const Tensor weight, tensor(index));
  Matrix matrix;
  matrix.format = float_format(weight.dtype);
  matrix.N = N;
  matrix.K = K;
  matrix.data = weight.data;
  return matrix;
}

Result<Matrix> Checkpoint::Impl::bind_fp8(const std::string& prefix, int64_t N, int64_t K) {
  WP_TRY(const int64_t index, checked(prefix + ".weight", {N, K}));
  WP_TRY(const Tensor weight, tensor(index));
  int64_t scale_index = find(prefix + ".weight_scale_inv");
  if (scale_index < 0) scale_index = find(prefix + ".weight_scale");
  if (scale_index < 0)
    return fault(index, "expected weight_scale or weight_scale_inv beside an E4M3 weight, found neither");
  const TensorInfo& found = tensors[static_cast<size_t>(scale_index)];
  const auto format = fp8_format(found.shape, N, K);
  if (!found.supported || !is_float(found.dtype) || !format)
    return fault(scale_index, cat("expected f32, f16 or bf16 of [1], ", Shape{N}, " or ", Shape{blocks(N), blocks(K)},
                                  ", found ", found.dtype_name, " ", found.shape));
  mark(scale_index);
  mark_if_present(prefix + ".input_scale");
  WP_TRY(const Tensor scale, tensor(scale_index));
  Matrix matrix;
  matrix.format = *format;
  matrix.N = N;
  matrix.K = K;
  matrix.data = weight.data;
  matrix.scale = scale.data;
  matrix.scale_dtype = scale.dtype;
  return matrix;
}

// modelopt multiplies by weight_scale_2; compressed-tensors divides by weight_global_scale.
Result<Matrix> Checkpoint::Impl::bind_nvfp4(const std::string& prefix, const char* packed, const char* global,
                                            int64_t N, int64_t K) {
  const std::string name = prefix + packed;
  if (K % kFp4Group != 0)
    return fault(find(name), cat("expected a row of whole groups of 16 for NVFP4, found ", K, " elements"));
  WP_TRY(const int64_t index, checked(name, {N, K / 2}));
  for (const char* companion : {".weight_scale", global})
    if (find(prefix + companion) < 0)
      return fault(index, cat("expected ", companion + 1, " beside an NVFP4 weight, found none"));
  WP_TRY(const int64_t scale_index, checked(prefix + ".weight_scale", {N, K / kFp4Group}));
  const TensorInfo &weight = tensors[static_cast<size_t>(index)], &scale = tensors[static_cast<size_t>(scale_index)];
  if (weight.dtype != DType::u8)
    return fault(index, cat("expected u8 ", Shape{N, K / 2}, ", found ", weight.dtype, " ", weight.shape));
  if (scale.dtype != DType::f8_e4m3)
    return fault(scale_index, cat("expected f8_e4m3 ", scale.shape, ", found ", scale.dtype, " ", scale.shape));
  WP_TRY(const float factor, bind_scalar(prefix + global));
  mark_if_present(prefix + ".input_scale");
  mark_if_present(prefix + ".input_global_scale");
  Matrix matrix;
  matrix.format = WeightFormat::nvfp4;
  matrix.N = N;
  matrix.K = K;
  matrix.data = data[static_cast<size_t>(index)];
  matrix.scale = data[static_cast<size_t>(scale_index)];
  matrix.scale_dtype = DType::f8_e4m3;
  matrix.scale_2 = std::string_view(global) == ".weight_global_scale" ? 1.0f / factor : factor;
  if (!std::isfinite(factor) || !std::isfinite(matrix.scale_2))
    return fault(find(prefix + global), cat("expected a scale that is finite and has a reciprocal, found ", factor));
  return matrix;
}

Result<float> Checkpoint::Impl::bind_scalar(const std::string& name) {
  const int64_t index = find(name);
  if (index < 0) return missing(name);
  const TensorInfo& found = tensors[static_cast<size_t>(index)];
  if (!found.supported || found.dtype != DType::f32 || found.shape.rank() > 1 || found.shape.count() != 1)
    return fault(index, cat("expected f32 [] or [1], found ", found.dtype_name, " ", found.shape));
  mark(index);
  WP_TRY(const float* value, as_f32(index));
  return *value;
}

Result<Matrix> Checkpoint::bind_expert(std::string_view name, int64_t E, int64_t rows, int64_t K, int64_t e,
                                       int64_t row, int64_t N) const {
  WP_ASSERT(E > 0 && rows > 0 && K > 0 && N > 0 && e >= 0 && e < E && row >= 0 && row <= rows - N);
  WP_TRY(const int64_t index, impl_->checked(name, {E, rows, K}));
  const TensorInfo& found = impl_->tensors[static_cast<size_t>(index)];
  if (!is_float(found.dtype))
    return impl_->fault(index, cat("expected f32, f16 or bf16 ", found.shape, ", found ", found.dtype));
  const int64_t element_bytes = wp::size_bytes(found.dtype);
  const std::byte* slice = impl_->data[static_cast<size_t>(index)] + (e * rows + row) * K * element_bytes;
  Matrix matrix;
  matrix.format = float_format(found.dtype);
  matrix.N = N;
  matrix.K = K;
  WP_TRY(matrix.data, impl_->aligned(slice, N * K * element_bytes, element_bytes));
  return matrix;
}

}  // namespace wp
