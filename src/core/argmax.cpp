#include "core/argmax.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/assert.h"

namespace wp {
namespace {

constexpr size_t kBlock = 256;

// Orders as the values do; a compiler makes vectors of the maximum of integers, not of floats.
int32_t ordered(float value) {
  const auto bits = std::bit_cast<int32_t>(value + 0.0f);  // -0 becomes 0.
  return bits ^ static_cast<int32_t>(static_cast<uint32_t>(bits >> 31) >> 1);
}

int32_t largest_of_block(const float* values) {
  int32_t largest = ordered(values[0]);
  for (size_t i = 0; i < kBlock; ++i) largest = std::max(largest, ordered(values[i]));
  return largest;
}

}  // namespace

size_t index_of_largest(std::span<const float> values) {
  WP_ASSERT(!values.empty());
  // The first block that holds the largest value, then the place in it; what is left of the last block at the end.
  const size_t blocks = values.size() / kBlock;
  size_t block = 0;
  int32_t largest = blocks > 0 ? largest_of_block(values.data()) : 0;
  for (size_t i = 1; i < blocks; ++i) {
    const int32_t found = largest_of_block(values.data() + i * kBlock);
    if (found <= largest) continue;
    largest = found;
    block = i;
  }
  size_t at = block * kBlock;
  const auto look = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      if (values[i] > values[at]) at = i;
  };
  if (blocks > 0) look(at, at + kBlock);
  look(blocks * kBlock, values.size());
  return at;
}

}  // namespace wp
