// Where things lie in memory that is taken once: parts of state records, and activations of a scratch. Loading thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/tensor.h"

namespace wp {

constexpr int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Offsets of a model's recurrent state. An anchor is the first part of a slot, so that one offset holds in both; what
// only a slot has (index keys of an open block) comes behind.
class StateLayout {
 public:
  int64_t add(int64_t bytes) {  // In anchors and slots. All calls before the first of add_pending.
    const int64_t offset = slot_bytes_;
    slot_bytes_ += round_up(bytes, 64);
    anchor_bytes_ = slot_bytes_;
    return offset;
  }
  int64_t add_pending(int64_t bytes) {
    const int64_t offset = slot_bytes_;
    slot_bytes_ += round_up(bytes, 64);
    return offset;
  }
  int64_t anchor_bytes() const { return anchor_bytes_; }
  int64_t slot_bytes() const { return slot_bytes_; }

 private:
  int64_t anchor_bytes_ = 0, slot_bytes_ = 0;
};

// Hands out tensors one behind the other. Run once without memory to learn the size, once with it. Parts that are
// never alive together begin at one mark.
class ScratchLayout {
 public:
  explicit ScratchLayout(std::byte* base = nullptr) : base_(base) {}

  Tensor take(DType dtype, const Shape& shape) {
    std::byte* data = base_ ? base_ + at_ : nullptr;
    at_ += round_up(shape.count() * wp::size_bytes(dtype), 64);
    end_ = std::max(end_, at_);
    return Tensor(static_cast<void*>(data), dtype, shape);
  }
  Tensor f32(const Shape& shape) { return take(DType::f32, shape); }
  Tensor i32(const Shape& shape) { return take(DType::i32, shape); }

  int64_t mark() const { return at_; }
  void back_to(int64_t mark) { at_ = mark; }
  int64_t size_bytes() const { return end_; }

 private:
  std::byte* base_;
  int64_t at_ = 0, end_ = 0;
};

}  // namespace wp
