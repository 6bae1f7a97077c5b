#include "core/argmax.h"

#include <algorithm>
#include <array>
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

constexpr int32_t kNone = INT32_MIN;  // Below what any number is ordered as.

// Of up to 64 values, those with a bit; whole words without a branch, so that the loop is vectorised.
int32_t largest_of_word(std::span<const float> values, uint64_t bits) {
  static constexpr auto kBits = [] {
    std::array<uint32_t, 32> made = {};
    for (size_t i = 0; i < made.size(); ++i) made[i] = uint32_t{1} << i;
    return made;
  }();
  int32_t largest = kNone;
  if (values.size() == 64) {
    for (size_t half = 0; half < 2; ++half) {
      const auto mask = static_cast<uint32_t>(bits >> (32 * half));
      const float* from = values.data() + 32 * half;
      for (size_t i = 0; i < 32; ++i) largest = std::max(largest, (mask & kBits[i]) != 0 ? ordered(from[i]) : kNone);
    }
    return largest;
  }
  for (; bits != 0; bits &= bits - 1)
    largest = std::max(largest, ordered(values[static_cast<size_t>(std::countr_zero(bits))]));
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

size_t index_of_largest(std::span<const float> values, std::span<const uint64_t> mask) {
  WP_ASSERT(mask.size() == (values.size() + 63) / 64);
  size_t found = mask.size();
  int32_t largest = kNone;
  const auto word_of = [&](size_t i) { return values.subspan(i * 64, std::min<size_t>(64, values.size() - i * 64)); };
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) continue;
    const int32_t here = largest_of_word(word_of(i), mask[i]);
    if (here <= largest) continue;
    largest = here;
    found = i;
  }
  if (found == mask.size()) return values.size();
  const std::span<const float> word = word_of(found);
  for (uint64_t bits = mask[found]; bits != 0; bits &= bits - 1) {
    const auto at = static_cast<size_t>(std::countr_zero(bits));
    if (ordered(word[at]) == largest) return found * 64 + at;
  }
  return values.size();
}

}  // namespace wp
