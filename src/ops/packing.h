// WeightArena: the weights of a model as its backend reads them, in one allocation whose size is known before anything
// is packed. Loading thread; const afterwards. A backend that reads weights where they lie takes no memory.
#pragma once

#include "core/matrix.h"
#include "device/device.h"

namespace wp::ops {

// Bytes that pack() will take for this matrix; 0 where it stays where it is.
int64_t packed_bytes(DeviceKind kind, const Matrix& rows);

class WeightArena {
 public:
  WeightArena() = default;
  static Result<WeightArena> make(Device& device, int64_t size_bytes);

  // The same numbers in the backend's layout. Asserts that they fit.
  Matrix pack(const Matrix& rows);
  int64_t size_bytes() const { return buffer_.size_bytes(); }
  int64_t used_bytes() const { return used_bytes_; }

 private:
  Buffer buffer_;
  DeviceKind kind_ = DeviceKind::ref;
  int64_t used_bytes_ = 0;
};

}  // namespace wp::ops
