// Hyper-connections, spec/qwen4_exp.md 3.1 steps 1 to 5, in one pass over H: a task takes a block of rows through norm,
// down, inject, up and gated mean while all of it stays in its workspace (L2). Reads H once, writes x and weights.
// Work per row: 2 S M R + S S M multiply-adds and S M sigmoids.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/regions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gated_residual.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/gemm-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// low = silu(low / S). S is a small integer: a division, as the specification has it.
HWY_INLINE void squash(const GatedResidual& p, float* low, int64_t count) {
  const V16 streams = set(static_cast<float>(p.S));
  for (int64_t i = 0; i < count; i += kLanes)
    store_some(silu(div(load_some(low + i, count - i), streams)), low + i, count - i);
}

// x[m] = sum over s ascending of sigmoid(gates[s, m]) * normed[s, m], over S.
HWY_INLINE void gated_mean(const GatedResidual& p, const float* gates, const float* normed, float* x) {
  const V16 streams = set(static_cast<float>(p.S));
  for (int64_t m = 0; m < p.M; m += kLanes) {
    const int64_t rest = p.M - m;
    V16 sums = zero();
    for (int64_t s = 0; s < p.S; ++s)
      sums = fma(sigmoid(load_some(gates + s * p.M + m, rest)), load_some(normed + s * p.M + m, rest), sums);
    store_some(div(sums, streams), x + m, rest);
  }
}

HWY_INLINE void inject_weights(const GatedResidual& p, float* weights, int64_t count) {
  const V16 streams = set(static_cast<float>(p.S));
  for (int64_t i = 0; i < count; i += kLanes) {
    const V16 half = sigmoid(div(load_some(weights + i, count - i), streams));
    store_some(add(half, half), weights + i, count - i);
  }
}

HWY_INLINE void normalise(const GatedResidual& p, int64_t t, float* normed) {
  for (int64_t s = 0; s < p.S; ++s) {
    const float* H = p.H + (t * p.S + s) * p.M;
    scale_by_weight(H, inverse_rms(H, p.M, p.epsilon), p.norm + s * p.M, 1.0f, p.M, normed + s * p.M);
  }
}

void residual_block(const GatedResidual& p, int64_t begin, int64_t rows, float* normed, float* gates, float* low) {
  GemmScratch scratch;
  const int64_t W = p.S * p.M;
  for (int64_t r = 0; r < rows; ++r) normalise(p, begin + r, normed + r * W);
  multiply({normed, W}, rows, p.down, 0, panels_of(p.R), {low, p.R}, scratch);
  squash(p, low, rows * p.R);
  multiply({low, p.R}, rows, p.up, 0, panels_of(W), {gates, W}, scratch);
  for (int64_t r = 0; r < rows; ++r) gated_mean(p, gates + r * W, normed + r * W, p.x + (begin + r) * p.M);
  if (!p.weights) return;
  multiply({normed, W}, rows, p.inject, 0, panels_of(p.S), {p.weights + begin * p.S, p.S}, scratch);
  inject_weights(p, p.weights + begin * p.S, rows * p.S);
}

// Few rows of a wide model: the products are split over their outputs instead, at a region each.
void residual_split(Stream& stream, const GatedResidual& p) {
  const int64_t W = p.S * p.M;
  for (int64_t t = 0; t < p.T; ++t) normalise(p, t, p.normed + t * W);
  cpu::matmul(stream, {.T = p.T, .W = p.down, .x = p.normed, .x_stride = W, .y = p.low, .y_stride = p.R});
  squash(p, p.low, p.T * p.R);
  cpu::matmul(stream, {.T = p.T, .W = p.up, .x = p.low, .x_stride = p.R, .y = p.gates, .y_stride = W});
  for (int64_t t = 0; t < p.T; ++t) gated_mean(p, p.gates + t * W, p.normed + t * W, p.x + t * p.M);
  if (!p.weights) return;
  cpu::matmul(stream, {.T = p.T, .W = p.inject, .x = p.normed, .x_stride = W, .y = p.weights, .y_stride = p.S});
  inject_weights(p, p.weights, p.T * p.S);
}

void gated_residual(Stream& stream, const GatedResidual& p) {
  const int64_t W = p.S * p.M, row_floats = 2 * W + p.R;
  constexpr int64_t kSplitWeights = 1 << 18;  // From here on a row's products pay for three regions.
  if (p.T <= kFewRows && W * p.R >= kSplitWeights) return residual_split(stream, p);
  const int64_t fits = p.workspace.bytes_per_thread / 4 / row_floats;
  WP_ASSERT(fits > 0);
  // Whole tiles of rows, few enough to stay in L2.
  const int64_t grain = fits >= 2 * kTileRows ? std::min<int64_t>(48, fits / kTileRows * kTileRows) : fits;
  const int64_t work = p.T * W * (2 * p.R + p.S) / 16;
  for_ranges(stream, p.T, std::min(grain, kBlockRows), p.T <= kFewRows ? 0 : work,
             [&](int64_t begin, int64_t end, int thread) HWY_ATTR {
               float* normed = p.workspace.of<float>(thread);
               float* gates = normed + (end - begin) * W;
               residual_block(p, begin, end - begin, normed, gates, gates + (end - begin) * W);
             });
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
HWY_EXPORT(gated_residual);
void gated_residual(Stream& stream, const GatedResidual& p) { HWY_DYNAMIC_DISPATCH(gated_residual)(stream, p); }
}  // namespace wp::kernels::cpu
#endif
