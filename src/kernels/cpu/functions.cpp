#include "kernels/cpu/functions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/functions.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

void apply_function(Function function, const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; i += kLanes) {
    V16 value = load_some(x + i, count - i);
    switch (function) {
      case Function::exp: value = exp(value); break;
      case Function::sigmoid: value = sigmoid(value); break;
      case Function::silu: value = silu(value); break;
      case Function::softplus: value = softplus(value); break;
      case Function::reciprocal_sqrt: value = reciprocal_sqrt(value); break;
    }
    store_some(value, y + i, count - i);
  }
}

float native_sum(const float* x, int64_t count) {
  auto sums = hn::Zero(FloatTag());
  int64_t i = 0;
  for (; i + kPartLanes <= count; i += kPartLanes) sums = hn::Add(sums, hn::LoadU(FloatTag(), x + i));
  HWY_ALIGN float lanes[kPartLanes];
  hn::Store(sums, FloatTag(), lanes);
  float total = 0;
  for (const float lane : lanes) total += lane;
  for (; i < count; ++i) total += x[i];
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
HWY_EXPORT(apply_function);
HWY_EXPORT(native_sum);
void apply(Function function, const float* x, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(apply_function)(function, x, count, y);
}
float sum_in_native_width(const float* x, int64_t count) { return HWY_DYNAMIC_DISPATCH(native_sum)(x, count); }
}  // namespace wp::kernels::cpu
#endif
