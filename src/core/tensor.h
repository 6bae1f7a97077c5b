// Tensor: a view of numbers somewhere in memory: pointer, dtype, shape, strides. Copied freely, owns nothing.
// Shape, DType and Dim, which checks shapes where an op is entered. Any thread; allocates nothing but on failure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/assert.h"

namespace wp {

enum class DType : uint8_t { f32, f16, bf16, f8_e4m3, u8, i32, i64, f64 };

constexpr int64_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::f8_e4m3:
    case DType::u8: return 1;
  }
  return 0;
}

const char* name(DType dtype);
std::string to_string(DType dtype);

// Up to five dimensions, outermost first.
class Shape {
 public:
  static constexpr int kRankMax = 5;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    WP_ASSERT(dims.size() <= kRankMax);
    for (int64_t dim : dims) dims_[rank_++] = dim;
  }

  int rank() const { return rank_; }
  int64_t operator[](int axis) const {
    WP_DASSERT(axis < rank_);
    return dims_[axis];
  }
  void append(int64_t dim) {
    WP_ASSERT(rank_ < kRankMax);
    dims_[rank_++] = dim;
  }
  int64_t count() const {
    int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= dims_[i];
    return product;
  }
  bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if (dims_[i] != other.dims_[i]) return false;
    return true;
  }

 private:
  std::array<int64_t, kRankMax> dims_{};
  int rank_ = 0;
};

std::string to_string(const Shape& shape);  // "[4, 128]"

// Row-major and dense, but for the stride between rows of the outermost axis.
struct Tensor {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  int64_t row_stride = 0;  // Elements from one index of the outermost axis to the next.

  Tensor() = default;
  Tensor(void* pointer, DType type, const Shape& s)
      : data(static_cast<std::byte*>(pointer)), dtype(type), shape(s), row_stride(row_count_of(s)) {}
  Tensor(const void* pointer, DType type, const Shape& s) : Tensor(const_cast<void*>(pointer), type, s) {}

  explicit operator bool() const { return data != nullptr; }
  int64_t dim(int axis) const { return shape[axis]; }
  int64_t count() const { return shape.count(); }
  int64_t size_bytes() const { return shape.count() * wp::size_bytes(dtype); }
  bool dense() const { return shape.rank() == 0 || row_stride == row_count_of(shape); }

  template <class T>
  T* as(DType expected) const {
    WP_ASSERT(dtype == expected);
    return reinterpret_cast<T*>(data);
  }
  float* f32() const { return as<float>(DType::f32); }
  uint16_t* bf16() const { return as<uint16_t>(DType::bf16); }
  int32_t* i32() const { return as<int32_t>(DType::i32); }
  int64_t* i64() const { return as<int64_t>(DType::i64); }

  // The first `count` rows, or rows [begin, begin + count).
  Tensor rows(int64_t count) const { return rows(0, count); }
  Tensor rows(int64_t begin, int64_t count) const;
  // The same numbers under another shape; the tensor must be dense.
  Tensor reshaped(const Shape& other) const;

 private:
  static int64_t row_count_of(const Shape& s) {
    int64_t product = 1;
    for (int i = 1; i < s.rank(); ++i) product *= s[i];
    return product;
  }
};

// A named size that takes its value where it is first met and must agree everywhere after:
//   Dim T{"T"}, M{"M"};  expect("matmul x", x, DType::f32, {T, M});
class Dim {
 public:
  explicit Dim(const char* name) : name_(name) {}
  operator int64_t() const {
    WP_ASSERT(value_ >= 0);
    return value_;
  }
  bool agree(int64_t size) const {
    if (value_ < 0) value_ = size;
    return value_ == size;
  }
  const char* name() const { return name_; }

 private:
  const char* name_ = nullptr;
  mutable int64_t value_ = -1;
};

// A Dim of the caller's, bound in place, or a literal size.
class DimRef {
 public:
  DimRef(const Dim& dim) : dim_(&dim) {}    // NOLINT: reads as a list of dims.
  DimRef(int64_t fixed) : fixed_(fixed) {}  // NOLINT
  bool agree(int64_t size) const { return dim_ ? dim_->agree(size) : fixed_ == size; }

 private:
  const Dim* dim_ = nullptr;
  int64_t fixed_ = -1;
};

// Aborts, naming the argument, unless the tensor has this dtype and these dims. A Dim passed by name is bound.
void expect(const char* what, const Tensor& tensor, DType dtype, std::initializer_list<DimRef> dims);

}  // namespace wp
