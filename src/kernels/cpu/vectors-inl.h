// What several kernels do with vectors of any width: sums of squares, norms, rows of tables. Reduction orders are fixed
// by the width alone. Any thread.

#if defined(WP_KERNELS_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WP_KERNELS_CPU_VECTORS_INL_H_
#undef WP_KERNELS_CPU_VECTORS_INL_H_
#else
#define WP_KERNELS_CPU_VECTORS_INL_H_
#endif

#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// Four chains, vector i in chain i mod 4, joined pairwise.
HWY_INLINE float dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t width) {
  V16 sums[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes)
    for (int c = 0; c < 4; ++c) sums[c] = fma(load(a + i + c * kLanes), load(b + i + c * kLanes), sums[c]);
  for (int c = 0; c < 4; ++c, i += kLanes)
    if (i < width) sums[c] = fma(load_some(a + i, width - i), load_some(b + i, width - i), sums[c]);
  return sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

// 1 / sqrt(mean(x^2) + epsilon), in all lanes.
HWY_INLINE V16 inverse_rms(const float* x, int64_t width, float epsilon) {
  const V16 mean = div(set(dot(x, x, width)), set(static_cast<float>(width)));
  return reciprocal_sqrt(add(mean, set(epsilon)));
}

// y = x * scale * (offset + weight); y may be x.
HWY_INLINE void scale_by_weight(const float* x, V16 scale, const float* weight, float offset, int64_t width, float* y) {
  const V16 one = set(offset);
  for (int64_t i = 0; i < width; i += kLanes) {
    const int64_t rest = width - i;
    const V16 factor = add(one, load_some(weight + i, rest));
    store_some(mul(mul(load_some(x + i, rest), scale), factor), y + i, rest);
  }
}

// (1 + weight) RMS norm, then rotation of pairs (i, i + half) by cosine[i], sine[i]; y is not x.
HWY_INLINE void norm_and_rotate(const float* HWY_RESTRICT x, int64_t width, const float* weight, float epsilon,
                                const float* cosine, const float* sine, int64_t half, float* HWY_RESTRICT y) {
  scale_by_weight(x, inverse_rms(x, width, epsilon), weight, 1.0f, width, y);
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t rest = half - i;
    const V16 c = load_some(cosine + i, rest), s = load_some(sine + i, rest);
    const V16 low = load_some(y + i, rest), high = load_some(y + half + i, rest);
    store_some(nfma(high, s, mul(low, c)), y + i, rest);
    store_some(fma(low, s, mul(high, c)), y + half + i, rest);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // WP_KERNELS_CPU_VECTORS_INL_H_
