#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/hash.h"
#include "core/json.h"
#include "core/numbers.h"
#include "core/rng.h"
#include "core/tensor.h"
#include "core/threads.h"

namespace wp {
namespace {

Result<int> half(int x) {
  if (x % 2) return Error{ErrorCode::bad_request, cat("x: expected an even number, found ", x)};
  return x / 2;
}

Result<int> quarter(int x) {
  WP_TRY(const int h, half(x));
  return half(h);
}

TEST(Error, TryPassesUp) {
  EXPECT_EQ(quarter(8).value(), 2);
  ASSERT_FALSE(quarter(6).ok());
  EXPECT_EQ(quarter(6).error().message, "x: expected an even number, found 3");
  EXPECT_EQ(quarter(6).error().within("config").message, "config: x: expected an even number, found 3");
}

TEST(Numbers, Bf16RoundsToNearestEven) {
  EXPECT_EQ(bf16_to_f32(f32_to_bf16(1.0f)), 1.0f);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F808000u)), 0x3F80);  // A tie goes to the even pattern.
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(NAN))));
}

TEST(Numbers, E4m3KnownValues) {
  EXPECT_EQ(e4m3_to_f32(0x7E), 448.0f);
  EXPECT_EQ(e4m3_to_f32(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_to_f32(0x38), 1.0f);
  EXPECT_EQ(e4m3_to_f32(0xB8), -1.0f);
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0x7F)));
}

TEST(Numbers, F16KnownValues) {
  EXPECT_EQ(f16_to_f32(0x3C00), 1.0f);
  EXPECT_EQ(f16_to_f32(0x0001), 0x1p-24f);
  EXPECT_EQ(f16_to_f32(0x7BFF), 65504.0f);
  EXPECT_TRUE(std::isinf(f16_to_f32(0x7C00)));
}

TEST(Json, LimitsAreErrorsNotCrashes) {
  EXPECT_TRUE(parse_json(R"({"b":1,"a":[1,2.5,null,true,"x"]})").ok());
  EXPECT_EQ(dump_json(*parse_json(R"({"b":1,"a":2})")), R"({"b":1,"a":2})");  // Order is kept.
  const std::string deep(1000, '[');
  EXPECT_FALSE(parse_json(deep + std::string(1000, ']')).ok());
  EXPECT_TRUE(parse_json(std::string(127, '[') + std::string(127, ']')).ok());
  EXPECT_EQ(parse_json("{\"p\":\"\xd6\xd0\"}").error().message, "body is not UTF-8 at byte 6");
  EXPECT_FALSE(parse_json("").ok());
  EXPECT_FALSE(parse_json(R"({"a":1,"a":2})", {.duplicate_keys_allowed = false}).ok());
  EXPECT_EQ((*parse_json(R"({"a":1,"a":2})"))["a"], 2);
}

TEST(Tensor, ViewsAndExpect) {
  std::vector<float> data(12);
  const Tensor t(data.data(), DType::f32, {4, 3});
  EXPECT_EQ(t.rows(1, 2).f32(), data.data() + 3);
  EXPECT_EQ(to_string(t.shape), "[4, 3]");
  Dim T{"T"}, M{"M"};
  expect("x", t, DType::f32, {T, M});
  EXPECT_EQ(T, 4);
  EXPECT_DEATH(expect("y", t, DType::f32, {M, T}), "y: expected f32");
}

TEST(ThreadPool, EveryIndexOnce) {
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> seen(round);
      pool.run(round, [&](int64_t i, int) { seen[i].fetch_add(1); });
      for (auto& count : seen) ASSERT_EQ(count.load(), 1);
    }
  }
}

}  // namespace
}  // namespace wp
