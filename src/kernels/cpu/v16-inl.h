// V16: a virtual vector of 16 float lanes (one AVX-512 register, two of AVX2, four of NEON), and what kernels do with
// it. Every lane sees the same IEEE operations in the same order on each instruction set, fused multiply-adds are
// written out, and sums over lanes follow one fixed tree: so the builds agree to the bit. Tails go through the same
// vector code, padded; there is no scalar arithmetic and no libm. Included once for each target, by files that
// foreach_target.h compiles; any thread.

#if defined(WP_KERNELS_CPU_V16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WP_KERNELS_CPU_V16_INL_H_
#undef WP_KERNELS_CPU_V16_INL_H_
#else
#define WP_KERNELS_CPU_V16_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLanes = 16;

using FloatTag = hn::CappedTag<float, kLanes>;
using IntTag = hn::Rebind<int32_t, FloatTag>;
using UintTag = hn::Rebind<uint32_t, FloatTag>;
using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;
using ShortTag = hn::Rebind<uint16_t, FloatTag>;
using ByteTag = hn::Rebind<uint8_t, FloatTag>;

constexpr int kPartLanes = static_cast<int>(HWY_LANES(float) < 16 ? HWY_LANES(float) : 16);
constexpr int kParts = 16 / kPartLanes;

struct V16 {
  hn::Vec<FloatTag> part[kParts];
};
struct U16 {
  hn::Vec<UintTag> part[kParts];
};
struct M16 {
  hn::Mask<FloatTag> part[kParts];
};

#define WP_EACH_PART for (int i = 0; i < kParts; ++i)

HWY_INLINE V16 set(float value) {
  V16 r;
  WP_EACH_PART r.part[i] = hn::Set(FloatTag(), value);
  return r;
}
HWY_INLINE V16 zero() {
  V16 r;
  WP_EACH_PART r.part[i] = hn::Zero(FloatTag());
  return r;
}
HWY_INLINE V16 load(const float* from) {
  V16 r;
  WP_EACH_PART r.part[i] = hn::LoadU(FloatTag(), from + i * kPartLanes);
  return r;
}
HWY_INLINE void store(V16 v, float* to) { WP_EACH_PART hn::StoreU(v.part[i], FloatTag(), to + i * kPartLanes); }

// The first `count` lanes, at most 16; the others are 0. Reads and writes nothing beyond them.
HWY_INLINE V16 load_some(const float* from, int64_t count) {
  if (count >= kLanes) return load(from);
  HWY_ALIGN float padded[kLanes] = {};
  if (count > 0) std::memcpy(padded, from, static_cast<size_t>(count) * sizeof(float));
  return load(padded);
}
HWY_INLINE void store_some(V16 v, float* to, int64_t count) {
  if (count >= kLanes) return store(v, to);
  HWY_ALIGN float padded[kLanes];
  store(v, padded);
  if (count > 0) std::memcpy(to, padded, static_cast<size_t>(count) * sizeof(float));
}

HWY_INLINE V16 add(V16 a, V16 b) {
  WP_EACH_PART a.part[i] = hn::Add(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE V16 sub(V16 a, V16 b) {
  WP_EACH_PART a.part[i] = hn::Sub(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE V16 mul(V16 a, V16 b) {
  WP_EACH_PART a.part[i] = hn::Mul(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE V16 div(V16 a, V16 b) {
  WP_EACH_PART a.part[i] = hn::Div(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE V16 sqrt(V16 a) {
  WP_EACH_PART a.part[i] = hn::Sqrt(a.part[i]);
  return a;
}
HWY_INLINE V16 neg(V16 a) {
  WP_EACH_PART a.part[i] = hn::Neg(a.part[i]);
  return a;
}
HWY_INLINE V16 abs(V16 a) {
  WP_EACH_PART a.part[i] = hn::Abs(a.part[i]);
  return a;
}
HWY_INLINE V16 fma(V16 a, V16 b, V16 c) {  // a * b + c, rounded once.
  WP_EACH_PART c.part[i] = hn::MulAdd(a.part[i], b.part[i], c.part[i]);
  return c;
}
HWY_INLINE V16 nfma(V16 a, V16 b, V16 c) {  // c - a * b, rounded once.
  WP_EACH_PART c.part[i] = hn::NegMulAdd(a.part[i], b.part[i], c.part[i]);
  return c;
}
HWY_INLINE V16 max(V16 a, V16 b) {  // Neither is NaN; of two zeros any.
  WP_EACH_PART a.part[i] = hn::Max(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE M16 less(V16 a, V16 b) {
  M16 r;
  WP_EACH_PART r.part[i] = hn::Lt(a.part[i], b.part[i]);
  return r;
}
HWY_INLINE V16 select(M16 mask, V16 yes, V16 no) {
  WP_EACH_PART yes.part[i] = hn::IfThenElse(mask.part[i], yes.part[i], no.part[i]);
  return yes;
}
HWY_INLINE V16 keep(M16 mask, V16 yes) {  // Else 0.
  WP_EACH_PART yes.part[i] = hn::IfThenElseZero(mask.part[i], yes.part[i]);
  return yes;
}

HWY_INLINE U16 bits_of(V16 a) {
  U16 r;
  WP_EACH_PART r.part[i] = hn::BitCast(UintTag(), a.part[i]);
  return r;
}
HWY_INLINE V16 float_of(U16 a) {
  V16 r;
  WP_EACH_PART r.part[i] = hn::BitCast(FloatTag(), a.part[i]);
  return r;
}
HWY_INLINE U16 set_bits(uint32_t value) {
  U16 r;
  WP_EACH_PART r.part[i] = hn::Set(UintTag(), value);
  return r;
}
HWY_INLINE U16 load_bits(const uint32_t* from) {
  U16 r;
  WP_EACH_PART r.part[i] = hn::LoadU(UintTag(), from + i * kPartLanes);
  return r;
}
template <int kBits>
HWY_INLINE U16 shift_left(U16 a) {
  WP_EACH_PART a.part[i] = hn::ShiftLeft<kBits>(a.part[i]);
  return a;
}
template <int kBits>
HWY_INLINE U16 shift_right(U16 a) {
  WP_EACH_PART a.part[i] = hn::ShiftRight<kBits>(a.part[i]);
  return a;
}
HWY_INLINE U16 and_bits(U16 a, U16 b) {
  WP_EACH_PART a.part[i] = hn::And(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE U16 or_bits(U16 a, U16 b) {
  WP_EACH_PART a.part[i] = hn::Or(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE U16 add_bits(U16 a, U16 b) {
  WP_EACH_PART a.part[i] = hn::Add(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE U16 sub_bits(U16 a, U16 b) {
  WP_EACH_PART a.part[i] = hn::Sub(a.part[i], b.part[i]);
  return a;
}

// Sums and maxima over lanes by one tree: i with i + 8, then i + 4, i + 2, i + 1.
namespace tree {
using Four = hn::Full128<float>;
struct Sum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Max {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};
// Lanes i, i + 4, i + 8, i + 12 joined: what is left has four lanes.
template <class Op>
HWY_INLINE hn::Vec<Four> to_four(V16 v, Op op) {
#if HWY_TARGET == HWY_AVX3
  const hn::Half<FloatTag> eight;
  const auto joined = op(hn::LowerHalf(eight, v.part[0]), hn::UpperHalf(eight, v.part[0]));
  return op(hn::LowerHalf(Four(), joined), hn::UpperHalf(Four(), joined));
#elif HWY_TARGET == HWY_AVX2
  const auto joined = op(v.part[0], v.part[1]);
  return op(hn::LowerHalf(Four(), joined), hn::UpperHalf(Four(), joined));
#else
  return op(op(v.part[0], v.part[2]), op(v.part[1], v.part[3]));
#endif
}
template <class Op>
HWY_INLINE float to_one(V16 v, Op op) {
  auto four = to_four(v, op);
  four = op(four, hn::Shuffle1032(four));
  four = op(four, hn::Shuffle2301(four));
  return hn::GetLane(four);
}
}  // namespace tree
HWY_INLINE float sum(V16 v) { return tree::to_one(v, tree::Sum()); }
HWY_INLINE float maximum(V16 v) { return tree::to_one(v, tree::Max()); }

// Storage formats, exactly.
HWY_INLINE V16 from_f16(const uint16_t* from) {
  V16 r;
  WP_EACH_PART {
    const auto half = hn::LoadU(HalfTag(), reinterpret_cast<const hwy::float16_t*>(from) + i * kPartLanes);
    r.part[i] = hn::PromoteTo(FloatTag(), half);
  }
  return r;
}
HWY_INLINE V16 from_bf16(const uint16_t* from) {
  U16 r;
  WP_EACH_PART r.part[i] = hn::PromoteTo(UintTag(), hn::LoadU(ShortTag(), from + i * kPartLanes));
  return float_of(shift_left<16>(r));
}
HWY_INLINE U16 bytes(const uint8_t* from) {
  U16 r;
  WP_EACH_PART r.part[i] = hn::PromoteTo(UintTag(), hn::LoadU(ByteTag(), from + i * kPartLanes));
  return r;
}

// F16 codes in the low half of each lane.
HWY_INLINE V16 f16_code(U16 code) {
  V16 r;
  WP_EACH_PART {
    const auto half = hn::TruncateTo(ShortTag(), code.part[i]);
    r.part[i] = hn::PromoteTo(FloatTag(), hn::BitCast(HalfTag(), half));
  }
  return r;
}
// E4M3 codes in the low byte of each lane, other bits 0. An E4M3 number with its exponent read as F16's is 2^-8 of
// itself, subnormals included. 0x7F and 0xFF are NaN.
HWY_INLINE V16 e4m3_code(U16 code) {
  const U16 magnitude = and_bits(code, set_bits(0x7F));
  const U16 half = or_bits(shift_left<7>(magnitude), shift_left<8>(and_bits(code, set_bits(0x80))));
  const V16 value = mul(f16_code(half), set(256.0f));
  V16 r;
  WP_EACH_PART {
    const auto is_nan = hn::RebindMask(FloatTag(), hn::Eq(magnitude.part[i], hn::Set(UintTag(), 0x7Fu)));
    const auto nan = hn::BitCast(FloatTag(), hn::Set(UintTag(), 0x7FC00000u));
    r.part[i] = hn::IfThenElse(is_nan, nan, value.part[i]);
  }
  return r;
}
// E2M1 codes in the low four bits of each lane; higher bits are ignored.
HWY_INLINE V16 e2m1_code(U16 code) {
#if HWY_TARGET == HWY_AVX3
  const auto values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f,
                                     -3.0f, -4.0f, -6.0f);
  V16 r;
  r.part[0] = hn::Vec<FloatTag>{_mm512_permutexvar_ps(code.part[0].raw, values)};
  return r;
#elif HWY_TARGET == HWY_AVX2
  const auto values = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const U16 sign = shift_left<28>(and_bits(code, set_bits(8)));
  U16 r;
  WP_EACH_PART r.part[i] = hn::Vec<UintTag>{_mm256_castps_si256(_mm256_permutevar8x32_ps(values, code.part[i].raw))};
  return float_of(or_bits(r, sign));
#else
  // Exponent and mantissa read as F16's are 2^-14 of the number.
  const U16 half = or_bits(shift_left<9>(and_bits(code, set_bits(7))), shift_left<12>(and_bits(code, set_bits(8))));
  return mul(f16_code(half), set(16384.0f));
#endif
}

#undef WP_EACH_PART

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // WP_KERNELS_CPU_V16_INL_H_
