// Writes a synthetic checkpoint to a folder: config.json, safetensors files and their index, as releases are. Loading
// thread; makes each tensor piece by piece, so that a checkpoint larger than the memory can be written.
#pragma once

#include <string>

#include "weights/checkpoint.h"

namespace wp {

// What the checkpoint has been asked for so far. An error where the folder exists already.
Result<void> write_synthetic(const Checkpoint& checkpoint, const std::string& folder,
                             const ProgressSink& progress = nullptr, int64_t file_bytes_max = int64_t{4} << 30);

}  // namespace wp
