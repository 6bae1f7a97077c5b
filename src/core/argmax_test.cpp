#include "core/argmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/rng.h"

namespace wp {
namespace {

size_t plain(const std::vector<float>& values) {
  size_t at = 0;
  for (size_t i = 1; i < values.size(); ++i)
    if (values[i] > values[at]) at = i;
  return at;
}

// Few distinct values, so that ties are everywhere, zeros of both signs among them; sizes around the blocks.
TEST(IndexOfLargest, IsTheFirstOfTheLargest) {
  Rng rng(1);
  for (const size_t size : {1, 2, 255, 256, 257, 511, 512, 1000, 4099})
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<float> values(size);
      const int64_t high = rng.between(-2, 3);
      for (float& value : values) {
        const auto drawn = static_cast<float>(rng.between(-4, high));
        value = drawn == 0 && rng.percent(50) ? -0.0f : drawn * 0.25f;
      }
      ASSERT_EQ(index_of_largest(values), plain(values)) << size << " " << repeat;
    }
}

TEST(IndexOfLargest, FindsItAnywhere) {
  std::vector<float> values(1500, -1e30f);
  for (size_t at = 0; at < values.size(); ++at) {
    values[at] = -1e29f;
    ASSERT_EQ(index_of_largest(values), at);
    values[at] = -1e30f;
  }
}

TEST(IndexOfLargest, OfThoseWithABit) {
  Rng rng(2);
  for (const size_t size : {1, 63, 64, 65, 128, 1000, 4099})
    for (int repeat = 0; repeat < 60; ++repeat) {
      std::vector<float> values(size);
      for (float& value : values) {
        const auto drawn = static_cast<float>(rng.between(-4, 3));
        value = drawn == 0 && rng.percent(50) ? -0.0f : rng.percent(3) ? -INFINITY : drawn * 0.25f;
      }
      const int64_t density = rng.between(0, 100);
      std::vector<uint64_t> mask((size + 63) / 64);
      size_t want = size;
      for (size_t i = 0; i < size; ++i) {
        if (!rng.percent(density)) continue;
        mask[i / 64] |= uint64_t{1} << (i % 64);
        if (want == size || values[i] > values[want]) want = i;
      }
      ASSERT_EQ(index_of_largest(values, mask), want) << size << " " << repeat;
    }
}

}  // namespace
}  // namespace wp
