// The largest of many numbers: what greedy decoding does with a quarter of a million logits in every step. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace wp {

// The index of the largest value, the lowest of equals (-0 equals 0). At least one value, none of them NaN.
size_t index_of_largest(std::span<const float> values);
// The same among those whose bit is set; values.size() where there is none. A word for each 64 values, no bit behind
// the last of them.
size_t index_of_largest(std::span<const float> values, std::span<const uint64_t> mask);

}  // namespace wp
