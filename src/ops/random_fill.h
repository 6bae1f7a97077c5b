// Synthetic weights where kernels read them. Loading thread. Allocates nothing. Exact: every backend makes the bytes of
// fill_random (core/random_fill.h).
#pragma once

#include "core/random_fill.h"
#include "device/device.h"

namespace wp::ops {

// All fill.size_bytes bytes, to memory of the stream's device that is aligned to 8 bytes.
void random_fill(Stream& stream, const RandomFill& fill, std::byte* to);

}  // namespace wp::ops
