// Norms and element-wise kernels: one pass over memory each, bound by it.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/regions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/residual.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

void rms_norm(Stream& stream, const RmsNorm& p) {
  const int64_t rows = p.T * p.groups;
  for_ranges(stream, rows, 64, rows * p.width / 4, [&](int64_t begin, int64_t end, int) HWY_ATTR {
    for (int64_t i = begin; i < end; ++i) {
      const float* x = p.x + i * p.width;
      const float* weight = p.weight + (p.weight_per_group ? i % p.groups * p.width : 0);
      scale_by_weight(x, inverse_rms(x, p.width, p.epsilon), weight, p.weight_offset, p.width, p.y + i * p.width);
    }
  });
}

void inject(Stream& stream, const Inject& p) {
  const int64_t rows = p.T * p.S;
  for_ranges(stream, rows, 64, rows * p.M / 6, [&](int64_t begin, int64_t end, int) HWY_ATTR {
    for (int64_t i = begin; i < end; ++i) {
      const V16 weight = set(p.weights[i]);
      const float* y = p.y + i / p.S * p.M;
      float* H = p.H + i * p.M;
      for (int64_t m = 0; m < p.M; m += kLanes) {
        const int64_t rest = p.M - m;
        store_some(fma(weight, load_some(y + m, rest), load_some(H + m, rest)), H + m, rest);
      }
    }
  });
}

constexpr int64_t kGrain = 4096;  // Elements of one task of an element-wise kernel.

void add_to(Stream& stream, const Add& p) {
  for_ranges(stream, p.count, kGrain, p.count / 6, [&](int64_t begin, int64_t end, int) HWY_ATTR {
    for (int64_t i = begin; i < end; i += kLanes) {
      const int64_t rest = end - i;
      V16 x = add(load_some(p.x + i, rest), load_some(p.a + i, rest));
      if (p.b) x = add(x, load_some(p.b + i, rest));
      store_some(x, p.x + i, rest);
    }
  });
}

void silu_mul(Stream& stream, const SiluMul& p) {
  for_ranges(stream, p.count, kGrain, p.count, [&](int64_t begin, int64_t end, int) HWY_ATTR {
    for (int64_t i = begin; i < end; i += kLanes) {
      const int64_t rest = end - i;
      store_some(mul(silu(load_some(p.gate + i, rest)), load_some(p.up + i, rest)), p.gate + i, rest);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
HWY_EXPORT(rms_norm);
HWY_EXPORT(inject);
HWY_EXPORT(add_to);
HWY_EXPORT(silu_mul);
void rms_norm(Stream& stream, const RmsNorm& p) { HWY_DYNAMIC_DISPATCH(rms_norm)(stream, p); }
void inject(Stream& stream, const Inject& p) { HWY_DYNAMIC_DISPATCH(inject)(stream, p); }
void add(Stream& stream, const Add& p) { HWY_DYNAMIC_DISPATCH(add_to)(stream, p); }
void silu_mul(Stream& stream, const SiluMul& p) { HWY_DYNAMIC_DISPATCH(silu_mul)(stream, p); }
}  // namespace wp::kernels::cpu
#endif
