// Chooses experts, spec/qwen4_exp.md 3.4, and groups the choices by expert. Choosing only compares; exponentials and
// their sum are vector code over the chosen or all experts.
#include <algorithm>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/regions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/router.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// exp(logit - best) to `out` where given; returns the sum, vector by vector, then over lanes.
HWY_INLINE float exponentials(const float* logits, int64_t count, float best, float* out) {
  V16 sums = zero();
  for (int64_t e = 0; e < count; e += kLanes) {
    const int64_t rest = count - e;
    HWY_ALIGN float padded[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) padded[i] = i < rest ? logits[e + i] - best : -1000.0f;
    const V16 value = exp(load(padded));
    if (out) store_some(value, out + e, rest);
    sums = add(sums, value);
  }
  return sum(sums);
}

constexpr int64_t kActiveMax = 64;

void choose_row(const Router& p, int64_t t) {
  const float* logits = p.logits + t * p.E;
  int32_t* chosen = p.experts + t * p.A;
  // The A best so far, best first; equal ones stay in order of expert.
  int32_t listed = 0;
  for (int32_t e = 0; e < p.E; ++e) {
    if (listed == p.A && !(logits[e] > logits[chosen[listed - 1]])) continue;
    int32_t place = listed < p.A ? listed++ : listed - 1;
    for (; place > 0 && logits[e] > logits[chosen[place - 1]]; --place) chosen[place] = chosen[place - 1];
    chosen[place] = e;
  }
  const float best = logits[chosen[0]];
  std::sort(chosen, chosen + p.A);
  float picked[kActiveMax];
  for (int64_t i = 0; i < p.A; ++i) picked[i] = logits[chosen[i]];
  float* weights = p.weights + t * p.A;
  const float some = exponentials(picked, p.A, best, weights);
  const V16 total = set(p.normalise ? some : exponentials(logits, p.E, best, nullptr));
  for (int64_t i = 0; i < p.A; i += kLanes)
    store_some(div(load_some(weights + i, p.A - i), total), weights + i, p.A - i);
}

void choose_rows(Stream& stream, const Router& p) {
  WP_ASSERT(p.A <= kActiveMax);
  for_ranges(stream, p.T, 64, p.T * (p.E * 4 + 100), [&](int64_t begin, int64_t end, int) HWY_ATTR {
    for (int64_t t = begin; t < end; ++t) choose_row(p, t);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
namespace {

// A counting sort: integers only.
void group(const Router& p) {
  const int64_t choices = p.T * p.A;
  std::fill_n(p.offsets, p.E + 1, 0);
  for (int64_t i = 0; i < choices; ++i) ++p.offsets[p.experts[i] + 1];
  for (int64_t e = 0; e < p.E; ++e) p.offsets[e + 1] += p.offsets[e];
  // Each group is filled from its end, so that the offsets of ends become those of begins.
  for (int64_t i = choices - 1; i >= 0; --i) p.order[--p.offsets[p.experts[i] + 1]] = static_cast<int32_t>(i);
  std::copy_n(p.offsets + 1, p.E, p.offsets);
  p.offsets[p.E] = static_cast<int32_t>(choices);
}

}  // namespace

HWY_EXPORT(choose_rows);
void router(Stream& stream, const Router& p) {
  HWY_DYNAMIC_DISPATCH(choose_rows)(stream, p);
  group(p);
}
}  // namespace wp::kernels::cpu
#endif
