#include "ops/packing.h"

#include "ops/tables.h"

namespace wp::ops {

int64_t packed_bytes(DeviceKind kind, const Matrix& rows) {
  const kernels::Packing packing = ops::packing(kind);
  WP_ASSERT(packing.size_bytes);  // Loading checked it: check_backend.
  return packing.size_bytes(rows);
}

Result<WeightArena> WeightArena::make(Device& device, int64_t size_bytes) {
  WeightArena arena;
  arena.kind_ = device.kind();
  if (size_bytes > 0) {
    WP_TRY(arena.buffer_, Buffer::make(device, size_bytes, "weights"));
  }
  return arena;
}

Matrix WeightArena::pack(const Matrix& rows) {
  const int64_t bytes = packed_bytes(kind_, rows);
  if (bytes == 0) return rows;
  WP_ASSERT(bytes % 64 == 0 && used_bytes_ + bytes <= buffer_.size_bytes());
  std::byte* destination = buffer_.data() + used_bytes_;
  used_bytes_ += bytes;
  return ops::packing(kind_).pack(rows, destination);
}

}  // namespace wp::ops
