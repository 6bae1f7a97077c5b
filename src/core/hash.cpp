#include "core/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/cat.h"

namespace wp {

uint64_t hash_bytes(const void* data, size_t size_bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size_bytes, seed);
}

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace wp
