// The largest of many numbers: what greedy decoding does with a quarter of a million logits in every step. Any thread.
#pragma once

#include <cstddef>
#include <span>

namespace wp {

// The index of the largest value, the lowest of equals (-0 equals 0). At least one value, none of them NaN.
size_t index_of_largest(std::span<const float> values);

}  // namespace wp
