#include "core/random_fill.h"

#include <algorithm>
#include <cstring>

#include "core/assert.h"

namespace wp {

void fill_random(const RandomFill& fill, int64_t begin, int64_t end, std::byte* to) {
  WP_ASSERT(begin % 8 == 0 && begin <= end && end <= fill.size_bytes);
  for (int64_t at = begin; at < end; at += 8) {
    const uint64_t word = random_word(fill, at / 8);
    std::memcpy(to + (at - begin), &word, static_cast<size_t>(std::min<int64_t>(8, end - at)));
  }
}

}  // namespace wp
