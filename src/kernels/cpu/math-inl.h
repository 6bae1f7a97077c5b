// Elementary functions on V16, a few units in the last place from the true value (math_test.cpp measures them), with
// the same bits on each instruction set. NaN in, NaN out. No libm: it would pick its code by the machine. Any thread.

#if defined(WP_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WP_KERNELS_CPU_MATH_INL_H_
#undef WP_KERNELS_CPU_MATH_INL_H_
#else
#define WP_KERNELS_CPU_MATH_INL_H_
#endif

#include <limits>

#include "kernels/cpu/v16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// e^x for x in [-87.3, 88]; outside of it any number (NaN for NaN). x = n ln 2 + r, |r| <= ln 2 / 2; adding
// 1.5 * 2^23 leaves n in the low bits of the sum, from where it is shifted into an exponent. Polynomial in r:
// minimax of (e^r - 1 - r) / r^2, relative error 3e-9 of e^r.
HWY_INLINE V16 exp_in_range(V16 x) {
  const V16 magic = set(12582912.0f);
  const V16 shifted = fma(x, set(1.44269504088896341f), magic);
  const V16 n = sub(shifted, magic);
  V16 r = nfma(n, set(0x1.62E4p-1f), x);  // ln 2 in two parts; the first times n is exact.
  r = nfma(n, set(0x1.7F7D1Cp-20f), r);
  V16 q = set(0.00138145986467f);
  q = fma(q, r, set(0.00836871687973f));
  q = fma(q, r, set(0.0416683880453f));
  q = fma(q, r, set(0.166665206317f));
  q = fma(q, r, set(0.499999934478f));
  const V16 p = fma(fma(q, r, set(1.0f)), r, set(1.0f));
  const V16 scale = float_of(add_bits(shift_left<23>(bits_of(shifted)), set_bits(0x3F800000u)));
  return mul(p, scale);
}

// e^x; 0 below -87.3 (2^-126), infinity above 88.
HWY_INLINE V16 exp(V16 x) {
  V16 r = exp_in_range(x);
  r = select(less(x, set(-87.3f)), zero(), r);
  return select(less(set(88.0f), x), set(std::numeric_limits<float>::infinity()), r);
}

// 1 / d for d in [1, 2^125]: a linear guess from the bits, within 12 %, then Newton steps; each squares the error. Far
// cheaper than a division and, unlike the estimates of the instruction sets, the same everywhere.
HWY_INLINE V16 reciprocal_in_range(V16 d) {
  V16 y = float_of(sub_bits(set_bits(0x7EF311C3u), bits_of(d)));
  V16 e = nfma(d, y, set(1.0f));
  y = fma(fma(e, e, e), y, y);  // 1 + e + e^2: the error becomes e^3.
  e = nfma(d, y, set(1.0f));
  y = fma(fma(e, e, e), y, y);
  e = nfma(d, y, set(1.0f));
  return fma(e, y, y);
}

// 1 / (1 + e^-x). Exactly 0 below -86, 1 above 86; NaN stays.
HWY_INLINE V16 sigmoid(V16 x) {
  V16 r = reciprocal_in_range(add(exp_in_range(neg(x)), set(1.0f)));
  r = select(less(x, set(-86.0f)), zero(), r);
  return select(less(set(86.0f), x), set(1.0f), r);
}

HWY_INLINE V16 silu(V16 x) { return mul(x, sigmoid(x)); }

// ln(1 + e^x) = max(x, 0) + ln(1 + u), u = e^-|x| in [0, 1]; ln(1 + u) = 2 artanh(s), s = u / (2 + u) <= 1/3.
// Polynomial in s^2: minimax of (artanh(s) / s - 1) / s^2, relative error 5e-9 of artanh.
HWY_INLINE V16 softplus(V16 x) {
  const V16 u = exp(neg(abs(x)));
  const V16 s = div(u, add(u, set(2.0f)));
  const V16 z = mul(s, s);
  V16 p = set(0.12150836377f);
  p = fma(p, z, set(0.107137388147f));
  p = fma(p, z, set(0.143084498901f));
  p = fma(p, z, set(0.1999943863f));
  p = fma(p, z, set(0.333333378134f));
  const V16 twice = add(s, s);
  const V16 log_part = fma(mul(p, z), twice, twice);
  const V16 positive = select(less(zero(), x), x, zero());
  return add(positive, log_part);
}

// 1 / sqrt(x): two correctly rounded operations, one value everywhere.
HWY_INLINE V16 reciprocal_sqrt(V16 x) { return div(set(1.0f), sqrt(x)); }

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // WP_KERNELS_CPU_MATH_INL_H_
