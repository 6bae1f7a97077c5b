// WeightArena: the weights of a model as its backend reads them, in one allocation whose size is known before anything
// is packed. Loading thread; const afterwards. A backend that reads weights where they lie takes no memory.
#pragma once

#include "core/matrix.h"
#include "core/random_fill.h"
#include "device/device.h"

namespace wp::ops {

// Bytes that pack() will take for this matrix; 0 where it stays where it is.
int64_t packed_bytes(DeviceKind kind, const Matrix& rows);
// The same for place() and share().
int64_t placed_bytes(DeviceKind kind, int64_t size_bytes);

class WeightArena {
 public:
  WeightArena() = default;
  // `shared_bytes`: of all that share() is given.
  static Result<WeightArena> make(Device& device, int64_t size_bytes, int64_t shared_bytes = 0);

  // The same numbers in the backend's layout. Asserts that they fit.
  Matrix pack(const Matrix& rows);
  // The same where data and scale are not there yet and are made on the device first: null means copied as above.
  // `staging` holds staging_bytes(rows).
  Matrix pack_random(Stream& stream, const Matrix& rows, const RandomFill* data, const RandomFill* scale,
                     const Buffer& staging);
  static int64_t staging_bytes(const Matrix& rows);
  // Where kernels read these bytes of host memory: there, or in a copy. After share() the host reads them too.
  const void* place(const void* data, int64_t size_bytes);
  const void* share(const void* data, int64_t size_bytes);
  int64_t size_bytes() const { return buffer_.size_bytes() + shared_.size_bytes(); }
  int64_t used_bytes() const { return used_bytes_; }

 private:
  static std::byte* take(const Buffer& buffer, int64_t& used_bytes, int64_t size_bytes);

  Device* device_ = nullptr;
  Buffer buffer_, shared_;
  int64_t used_bytes_ = 0, shared_used_bytes_ = 0;
};

}  // namespace wp::ops
