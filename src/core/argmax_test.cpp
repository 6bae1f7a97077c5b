#include "core/argmax.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace wp
