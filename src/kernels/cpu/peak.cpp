// How many fused multiply-adds in FP32 the threads of a device can do: the ceiling that speeds are compared with.
#include "kernels/cpu/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/peak.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/v16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// Enough independent chains in registers to hide the latency of any core; returns something of them, so that they are
// computed.
constexpr int kChains = 12;
HWY_NOINLINE float fma_loop(int64_t rounds, float start) {
  const FloatTag tag;
  const auto factor = hn::Set(tag, 0.999f), term = hn::Set(tag, start);
  decltype(hn::Zero(tag)) chains[kChains];
  for (int c = 0; c < kChains; ++c) chains[c] = hn::Set(tag, static_cast<float>(c));
  for (int64_t i = 0; i < rounds; ++i)
    for (int c = 0; c < kChains; ++c) chains[c] = hn::MulAdd(chains[c], factor, term);
  for (int c = 1; c < kChains; ++c) chains[0] = hn::Add(chains[0], chains[c]);
  return hn::GetLane(chains[0]);
}

double multiply_adds(Stream& stream, int64_t rounds) {
  HWY_ALIGN float results[64];
  const int threads = std::min(stream.threads().threads(), 64);
  stream.threads().run(threads, [&](int64_t index, int)
                                    HWY_ATTR { results[index] = fma_loop(rounds, 1.0f + static_cast<float>(index)); });
  double checked = 0;
  for (int i = 0; i < threads; ++i) checked += results[i] > 0 ? 1 : 0;
  return checked * static_cast<double>(rounds) * kChains * kPartLanes;
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
HWY_EXPORT(multiply_adds);
double multiply_adds(Stream& stream, int64_t rounds) { return HWY_DYNAMIC_DISPATCH(multiply_adds)(stream, rounds); }
}  // namespace wp::kernels::cpu
#endif
