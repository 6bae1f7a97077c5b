#include "core/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/cat.h"

namespace wp {

uint64_t hash_bytes(const void* data, size_t size_bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size_bytes, seed);
}

struct PiecewiseHash::State {
  XXH3_state_t hash;
};

PiecewiseHash::PiecewiseHash() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->hash);
  XXH3_64bits_reset(&state_->hash);
}
PiecewiseHash::~PiecewiseHash() = default;
void PiecewiseHash::add(const void* data, size_t size_bytes) { XXH3_64bits_update(&state_->hash, data, size_bytes); }
uint64_t PiecewiseHash::value() const { return XXH3_64bits_digest(&state_->hash); }

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace wp
