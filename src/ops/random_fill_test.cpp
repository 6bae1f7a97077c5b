#include "ops/random_fill.h"

#include <gtest/gtest.h>

#include "testing/op_case.h"

namespace wp {
namespace {

// Byte for byte on every backend, whatever the size leaves of the last word.
TEST(RandomFill, IsOneOnAllBackends) {
  for (const RandomKind kind :
       {RandomKind::bf16, RandomKind::f32, RandomKind::fp4, RandomKind::scales, RandomKind::e4m3})
    for (const int64_t size : {2, 8, 4096, 70002}) {
      const RandomFill fill{.kind = kind, .seed = 7, .size_bytes = size, .center = 0.5f, .spread = 0.3f};
      testing::compare_backends(1, 0, [&](testing::OpCase& op) {
        const Tensor bytes = op.blank({size + 8}, DType::u8);
        ops::random_fill(op.stream(), fill, bytes.data);
        op.stream().synchronize();
        std::vector<int32_t> values;
        for (int64_t i = 0; i < bytes.count(); ++i) values.push_back(static_cast<int32_t>(bytes.data[i]));
        for (int64_t i = size; i < bytes.count(); ++i) ASSERT_EQ(values[static_cast<size_t>(i)], 255);
        op.give(op.integers(values));
      });
    }
}

// A tensor's part is what the whole has there, and its numbers are those that were asked for.
TEST(RandomFill, PartsAreOfTheWhole) {
  const RandomFill fill{.kind = RandomKind::bf16, .seed = 3, .size_bytes = 20000, .center = 1, .spread = 0.25f};
  std::vector<uint16_t> whole(10000), part(1000);
  fill_random(fill, 0, 20000, reinterpret_cast<std::byte*>(whole.data()));
  fill_random(fill, 4000, 6000, reinterpret_cast<std::byte*>(part.data()));
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 2000));
  double sum = 0, squares = 0;
  for (const uint16_t bits : whole) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    ASSERT_LE(std::abs(value - 1), 0.2501f);
    sum += value;
    squares += (value - 1) * (value - 1);
  }
  EXPECT_NEAR(sum / 10000, 1, 0.01);
  EXPECT_NEAR(squares / 10000, 0.25 * 0.25 / 3, 0.001);
}

}  // namespace
}  // namespace wp
