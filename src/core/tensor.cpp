#include "core/tensor.h"

#include <cstdio>
#include <cstdlib>

#include "core/cat.h"

namespace wp {

const char* name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f8_e4m3: return "f8_e4m3";
    case DType::u8: return "u8";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::f64: return "f64";
  }
  return "?";
}

std::string to_string(DType dtype) { return name(dtype); }

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (int i = 0; i < shape.rank(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

Tensor Tensor::rows(int64_t begin, int64_t count) const {
  WP_ASSERT(shape.rank() >= 1 && begin >= 0 && count >= 0 && begin + count <= shape[0]);
  Tensor out = *this;
  out.data = data + begin * row_stride * wp::size_bytes(dtype);
  Shape changed{count};
  for (int i = 1; i < shape.rank(); ++i) changed.append(shape[i]);
  out.shape = changed;
  return out;
}

Tensor Tensor::reshaped(const Shape& other) const {
  WP_ASSERT(dense() && other.count() == shape.count());
  return Tensor(static_cast<void*>(data), dtype, other);
}

void expect(const char* what, const Tensor& tensor, DType dtype, std::initializer_list<DimRef> dims) {
  bool good = tensor.dtype == dtype && tensor.shape.rank() == static_cast<int>(dims.size());
  int axis = 0;
  for (const DimRef& dim : dims) {
    if (!good) break;
    good = dim.agree(tensor.shape[axis++]);
  }
  if (good) return;
  std::fprintf(stderr, "warmpath: internal error: %s: expected %s with %zu dims that agree, found %s %s\n", what,
               name(dtype), dims.size(), name(tensor.dtype), to_string(tensor.shape).c_str());
  std::abort();
}

}  // namespace wp
