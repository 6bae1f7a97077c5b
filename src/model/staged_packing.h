// Weights on their way to a device with memory of its own: several readers copy matrices from the mapped files into a
// ring of pinned buffers, the loading thread packs them from there in order. Reading page cache and uploading then
// overlap, and neither waits for the driver's own staging. Loading thread.
#pragma once

#include <functional>
#include <span>

#include "core/error.h"
#include "core/matrix.h"
#include "device/device.h"
#include "ops/packing.h"

namespace wp {

struct StagedPacking {
  int readers = 8;
  int64_t slot_bytes = int64_t{64} << 20;  // A matrix that is larger is packed from where it lies.
  int slots = 12;
};

// Packs every matrix; each becomes what arena.pack() of it is. `packed(rows)` is called for each in order, with the
// matrix as it was.
Result<void> pack_staged(Device& device, ops::WeightArena& arena, std::span<Matrix* const> matrices,
                         const StagedPacking& staging, const std::function<void(const Matrix& rows)>& packed);

}  // namespace wp
