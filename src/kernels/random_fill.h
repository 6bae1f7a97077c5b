// Arguments of the kernel that makes synthetic weights where they are used. Contract: ops/random_fill.h.
#pragma once

#include "core/random_fill.h"

namespace wp::kernels {

struct RandomBytes {
  RandomFill fill;
  std::byte* to = nullptr;  // Aligned to 8 bytes.
};

}  // namespace wp::kernels
