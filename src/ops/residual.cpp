#include "ops/residual.h"

#include "ops/tables.h"

namespace wp::ops {

void rms_norm(Stream& stream, const Norm& norm, int64_t groups, const Tensor& x, const Tensor& y) {
  Dim T{"T"}, row{"groups * width"}, weight{"weight"};
  expect("rms_norm x", x, DType::f32, {T, row});
  expect("rms_norm y", y, DType::f32, {T, row});
  expect("rms_norm weight", norm.weight, DType::f32, {weight});
  WP_ASSERT(groups > 0 && row % groups == 0 && x.dense() && y.dense());
  const int64_t width = row / groups;
  WP_ASSERT(weight == width || weight == row);
  if (T == 0) return;
  rms_norm_kernels.run(stream, {.T = T,
                                .groups = groups,
                                .width = width,
                                .x = x.f32(),
                                .weight = norm.weight.f32(),
                                .weight_per_group = weight == row,
                                .weight_offset = norm.offset,
                                .epsilon = norm.epsilon,
                                .y = y.f32()});
}

void gated_residual(Stream& stream, const GatedResidual& mixer, const Tensor& H, const Tensor& x, const Tensor& weights,
                    const GatedResidualScratch& scratch) {
  Dim T{"T"}, M{"M"}, W{"S * M"};
  expect("gated_residual H", H, DType::f32, {T, W});
  expect("gated_residual x", x, DType::f32, {T, M});
  WP_ASSERT(W % M == 0 && H.dense() && x.dense());
  const int64_t S = W / M, R = mixer.down.N;
  expect("gated_residual norm", mixer.norm, DType::f32, {W});
  WP_ASSERT(mixer.down.K == W && mixer.up.N == W && mixer.up.K == R);
  WP_ASSERT(static_cast<bool>(mixer.inject) == static_cast<bool>(weights));
  if (weights) {
    expect("gated_residual weights", weights, DType::f32, {T, S});
    WP_ASSERT(mixer.inject.N == S && mixer.inject.K == W && weights.dense());
  }
  expect("gated_residual normed", scratch.normed, DType::f32, {T, W});
  expect("gated_residual low", scratch.low, DType::f32, {T, R + S});
  expect("gated_residual gates", scratch.gates, DType::f32, {T, W});
  if (T == 0) return;
  gated_residual_kernels.run(stream, {.T = T,
                                      .S = S,
                                      .M = M,
                                      .R = R,
                                      .H = H.f32(),
                                      .norm = mixer.norm.f32(),
                                      .epsilon = mixer.epsilon,
                                      .down = mixer.down,
                                      .up = mixer.up,
                                      .inject = mixer.inject,
                                      .x = x.f32(),
                                      .weights = weights ? weights.f32() : nullptr,
                                      .normed = scratch.normed.f32(),
                                      .low = scratch.low.f32(),
                                      .gates = scratch.gates.f32(),
                                      .workspace = scratch.workspace});
}

void inject(Stream& stream, const Tensor& H, const Tensor& y, const Tensor& weights) {
  Dim T{"T"}, S{"S"}, M{"M"};
  expect("inject weights", weights, DType::f32, {T, S});
  expect("inject y", y, DType::f32, {T, M});
  expect("inject H", H, DType::f32, {T, S * M});
  WP_ASSERT(H.dense() && y.dense() && weights.dense());
  if (T == 0) return;
  inject_kernels.run(stream, {.T = T, .S = S, .M = M, .H = H.f32(), .y = y.f32(), .weights = weights.f32()});
}

void add(Stream& stream, const Tensor& x, const Tensor& a, const Tensor& b) {
  Dim T{"T"}, M{"M"};
  expect("add x", x, DType::f32, {T, M});
  expect("add a", a, DType::f32, {T, M});
  if (b) expect("add b", b, DType::f32, {T, M});
  WP_ASSERT(x.dense() && a.dense() && (!b || b.dense()));
  if (T == 0) return;
  add_kernels.run(stream, {.count = T * M, .x = x.f32(), .a = a.f32(), .b = b ? b.f32() : nullptr});
}

void silu_mul(Stream& stream, const Tensor& gate, const Tensor& up) {
  Dim T{"T"}, F{"F"};
  expect("silu_mul gate", gate, DType::f32, {T, F});
  expect("silu_mul up", up, DType::f32, {T, F});
  WP_ASSERT(gate.dense() && up.dense());
  if (T == 0) return;
  silu_mul_kernels.run(stream, {.count = T * F, .gate = gate.f32(), .up = up.f32()});
}

}  // namespace wp::ops
