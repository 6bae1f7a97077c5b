#include "ops/packing.h"

#include "ops/random_fill.h"
#include "ops/tables.h"

namespace wp::ops {

int64_t packed_bytes(DeviceKind kind, const Matrix& rows) {
  const kernels::Packing packing = ops::packing(kind);
  WP_ASSERT(packing.size_bytes);  // Loading checked it: check_backend.
  return packing.size_bytes(rows);
}

int64_t placed_bytes(DeviceKind kind, int64_t size_bytes) {
  return reads_host_memory(kind) ? 0 : (size_bytes + 63) / 64 * 64;
}

Result<WeightArena> WeightArena::make(Device& device, int64_t size_bytes, int64_t shared_bytes) {
  WeightArena arena;
  arena.device_ = &device;
  if (size_bytes > 0) {
    WP_TRY(arena.buffer_, Buffer::make(device, size_bytes, "weights", Memory::device));
  }
  if (shared_bytes > 0) {
    WP_TRY(arena.shared_, Buffer::make(device, shared_bytes, "tables of weights", Memory::shared));
  }
  return arena;
}

std::byte* WeightArena::take(const Buffer& buffer, int64_t& used_bytes, int64_t size_bytes) {
  WP_ASSERT(size_bytes % 64 == 0 && used_bytes + size_bytes <= buffer.size_bytes());
  std::byte* taken = buffer.data() + used_bytes;
  used_bytes += size_bytes;
  return taken;
}

Matrix WeightArena::pack(const Matrix& rows) {
  const int64_t bytes = packed_bytes(device_->kind(), rows);
  if (bytes == 0) return rows;
  return ops::packing(device_->kind()).pack(rows, take(buffer_, used_bytes_, bytes));
}

int64_t WeightArena::staging_bytes(const Matrix& rows) {
  return (rows.data_bytes() + 63) / 64 * 64 + (rows.scale_bytes() + 63) / 64 * 64;
}

Matrix WeightArena::pack_random(Stream& stream, const Matrix& rows, const RandomFill* data, const RandomFill* scale,
                                const Buffer& staging) {
  WP_ASSERT(staging_bytes(rows) <= staging.size_bytes());
  Matrix made = rows;
  if (data) {
    random_fill(stream, *data, staging.data());
    made.data = staging.data();
  }
  if (scale) {
    std::byte* at = staging.data() + (rows.data_bytes() + 63) / 64 * 64;
    random_fill(stream, *scale, at);
    made.scale = at;
  }
  return pack(made);
}

const void* WeightArena::place(const void* data, int64_t size_bytes) {
  const int64_t bytes = placed_bytes(device_->kind(), size_bytes);
  if (bytes == 0) return data;
  std::byte* placed = take(buffer_, used_bytes_, bytes);
  device_->copy(placed, data, size_bytes);
  return placed;
}

const void* WeightArena::share(const void* data, int64_t size_bytes) {
  const int64_t bytes = placed_bytes(device_->kind(), size_bytes);
  if (bytes == 0) return data;
  std::byte* placed = take(shared_, shared_used_bytes_, bytes);
  device_->copy(placed, data, size_bytes);
  return placed;
}

}  // namespace wp::ops
