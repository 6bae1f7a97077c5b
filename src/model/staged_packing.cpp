#include "model/staged_packing.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace wp {
namespace {

int64_t bytes_of(const Matrix& matrix) { return ops::WeightArena::staging_bytes(matrix); }

// Slot i of the ring holds the i-th small matrix, then the i + slots-th, and so on.
class Ring {
 public:
  Ring(std::span<std::byte* const> slots, std::vector<Matrix> matrices)
      : slots_(slots.begin(), slots.end()), matrices_(std::move(matrices)), ready_(matrices_.size(), 0) {}

  // Reader threads: until nothing is left.
  void read() {
    for (;;) {
      size_t index;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return next_ == matrices_.size() || next_ < taken_ + slots_.size(); });
        if (next_ == matrices_.size()) return;
        index = next_++;
      }
      const Matrix& rows = matrices_[index];
      std::byte* to = slots_[index % slots_.size()];
      std::memcpy(to, rows.data, static_cast<size_t>(rows.data_bytes()));
      if (rows.scale_bytes() > 0)
        std::memcpy(to + scale_offset(rows), rows.scale, static_cast<size_t>(rows.scale_bytes()));
      const std::lock_guard lock(mutex_);
      ready_[index] = 1;
      changed_.notify_all();
    }
  }

  // The loading thread: the next matrix in its slot, which stays as it is until release().
  Matrix wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready_[taken_] != 0; });
    Matrix staged = matrices_[taken_];
    std::byte* at = slots_[taken_ % slots_.size()];
    staged.data = at;
    if (staged.scale_bytes() > 0) staged.scale = at + scale_offset(staged);
    return staged;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    ++taken_;
    changed_.notify_all();
  }

 private:
  static int64_t scale_offset(const Matrix& rows) { return (rows.data_bytes() + 63) / 64 * 64; }

  std::vector<std::byte*> slots_;
  std::vector<Matrix> matrices_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint8_t> ready_;
  size_t next_ = 0, taken_ = 0;  // Read or being read; packed.
};

}  // namespace

Result<void> pack_staged(Device& device, ops::WeightArena& arena, std::span<Matrix* const> matrices,
                         const StagedPacking& staging, const std::function<void(const Matrix& rows)>& packed) {
  WP_ASSERT(staging.readers > 0 && staging.slots > 0 && staging.slot_bytes % 64 == 0);
  std::vector<Matrix> small;
  int64_t total_bytes = 0;
  for (const Matrix* matrix : matrices) {
    if (bytes_of(*matrix) > staging.slot_bytes) continue;
    small.push_back(*matrix);
    total_bytes += bytes_of(*matrix);
  }
  // A small model needs no large ring.
  const int64_t slots = std::clamp<int64_t>(total_bytes / staging.slot_bytes + 1, 1, staging.slots);
  WP_TRY(const Buffer memory, Buffer::make(device, slots * staging.slot_bytes, "staging of weights", Memory::shared));
  std::vector<std::byte*> places;
  for (int64_t i = 0; i < slots; ++i) places.push_back(memory.data() + i * staging.slot_bytes);
  Ring ring(places, std::move(small));
  std::vector<std::thread> readers;
  for (int i = 0; i < staging.readers; ++i) readers.emplace_back([&] { ring.read(); });
  for (Matrix* matrix : matrices) {
    const Matrix rows = *matrix;
    if (bytes_of(rows) > staging.slot_bytes) {
      *matrix = arena.pack(rows);
    } else {
      *matrix = arena.pack(ring.wait());
      ring.release();
    }
    packed(rows);
  }
  for (std::thread& reader : readers) reader.join();
  return {};
}

}  // namespace wp
