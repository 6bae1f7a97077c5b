#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/test_targets.h"

namespace wp::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Exact = long double (*)(long double);
long double exact_exp(long double x) { return std::exp(x); }
long double exact_sigmoid(long double x) { return 1.0L / (1.0L + std::exp(-x)); }
long double exact_silu(long double x) { return x / (1.0L + std::exp(-x)); }
long double exact_softplus(long double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
long double exact_rsqrt(long double x) { return 1.0L / std::sqrt(x); }

// Every `stride`-th float of [low, high].
std::vector<float> floats_between(float low, float high, uint32_t stride) {
  std::vector<float> found;
  const auto walk = [&](uint32_t from, uint32_t to, uint32_t sign) {
    for (uint64_t bits = from; bits <= to; bits += stride)
      found.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits) | sign));
  };
  if (low < 0) walk(0, std::bit_cast<uint32_t>(-low), 0x80000000u);
  if (high > 0) walk(low > 0 ? std::bit_cast<uint32_t>(low) : 0, std::bit_cast<uint32_t>(high), 0);
  return found;
}

std::vector<float> applied(Function function, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  apply(function, x.data(), static_cast<int64_t>(x.size()), y.data());
  return y;
}

// The worst error in units in the last place of the true value; below the normal range in units of its smallest.
double worst_ulps(Function function, Exact exact, float low, float high) {
  const std::vector<float> x = floats_between(low, high, 2003);
  const std::vector<float> y = applied(function, x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const long double want = exact(x[i]);
    const int exponent = std::max(std::ilogb(static_cast<double>(std::abs(want))), -126);
    const double ulps = static_cast<double>(std::abs(want - y[i])) / std::ldexp(1.0, exponent - 23);
    worst = std::max(worst, ulps);
  }
  return worst;
}

TEST(CpuMath, FunctionsAreWithinAFewUnitsInTheLastPlace) {
  EXPECT_LT(worst_ulps(Function::exp, exact_exp, -87.2f, 87.9f), 1.5);
  EXPECT_LT(worst_ulps(Function::sigmoid, exact_sigmoid, -85.9f, 100.0f), 3.0);
  EXPECT_LT(worst_ulps(Function::silu, exact_silu, -85.9f, 100.0f), 3.5);
  EXPECT_LT(worst_ulps(Function::softplus, exact_softplus, -87.0f, 1000.0f), 4.0);
  EXPECT_LT(worst_ulps(Function::reciprocal_sqrt, exact_rsqrt, 1e-30f, 1e30f), 1.5);
}

TEST(CpuMath, EndsOfTheRangeAreDefined) {
  const std::vector<float> x = {0.0f, -0.0f, -kInfinity, kInfinity, -88.0f, 89.0f, -1000.0f, 1000.0f};
  EXPECT_EQ(applied(Function::exp, x), (std::vector<float>{1, 1, 0, kInfinity, 0, kInfinity, 0, kInfinity}));
  EXPECT_EQ(applied(Function::sigmoid, x), (std::vector<float>{0.5f, 0.5f, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(applied(Function::softplus, {-1000.0f, 1000.0f}), (std::vector<float>{0, 1000}));
  for (const Function function : {Function::exp, Function::sigmoid, Function::silu, Function::softplus})
    EXPECT_TRUE(std::isnan(applied(function, {std::nanf("")})[0]));
}

TEST(CpuMath, TailsEqualWholeVectors) {
  std::vector<float> x(37);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.37f * static_cast<float>(i) - 5.0f;
  const std::vector<float> all = applied(Function::silu, x);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(applied(Function::silu, {x[i]})[0], all[i]);
}

TEST(CpuMath, InstructionSetsAgreeToTheBit) {
  const std::vector<float> x = floats_between(-90.0f, 90.0f, 997);
  for (const Function function :
       {Function::exp, Function::sigmoid, Function::silu, Function::softplus, Function::reciprocal_sqrt}) {
    std::vector<float> positive = x;
    if (function == Function::reciprocal_sqrt)
      for (float& value : positive) value = std::abs(value) + 1e-20f;
    std::vector<std::vector<float>> results;
    for (const int64_t target : runnable_targets()) {
      const ForcedTarget forced(target);
      results.push_back(applied(function, positive));
    }
    for (const std::vector<float>& result : results)
      EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace wp::kernels::cpu
