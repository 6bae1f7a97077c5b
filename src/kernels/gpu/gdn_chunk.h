// The delta rule of prefill in chunks of 64 rows, for DK = 128. Its family of arithmetic is the canonical one.
#pragma once

#include "kernels/gdn.h"

namespace wp {
class Stream;
}

namespace wp::kernels::gpu {

// By the heads' shape alone.
bool fits_chunks(const Gdn& p);
void gdn_chunks(Stream& stream, const Gdn& p);

}  // namespace wp::kernels::gpu
