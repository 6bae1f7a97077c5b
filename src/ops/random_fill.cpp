#include "ops/random_fill.h"

#include "ops/tables.h"

namespace wp::ops {

void random_fill(Stream& stream, const RandomFill& fill, std::byte* to) {
  WP_ASSERT(fill.size_bytes >= 0 && reinterpret_cast<uintptr_t>(to) % 8 == 0);
  if (fill.size_bytes == 0) return;
  random_fill_kernels.run(stream, {.fill = fill, .to = to});
}

}  // namespace wp::ops
