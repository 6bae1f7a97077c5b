#include "core/assert.h"
#include "kernels/ref/decode.h"
#include "kernels/ref/ref.h"

namespace wp::kernels::ref {

void rms_norm(Stream& stream, const RmsNorm& p) {
  stream.threads().run(p.T * p.groups, [&](int64_t i, int) {
    const float* x = p.x + i * p.width;
    const float* weight = p.weight + (p.weight_per_group ? i % p.groups * p.width : 0);
    float* y = p.y + i * p.width;
    const double scale = inverse_rms(x, p.width, p.epsilon);
    for (int64_t k = 0; k < p.width; ++k)
      y[k] = static_cast<float>(x[k] * scale * (static_cast<double>(p.weight_offset) + weight[k]));
  });
}

void gated_residual(Stream& stream, const GatedResidual& p) {
  const int64_t W = p.S * p.M;
  const double streams = static_cast<double>(p.S);
  rms_norm(stream, {.T = p.T,
                    .groups = p.S,
                    .width = p.M,
                    .x = p.H,
                    .weight = p.norm,
                    .weight_per_group = true,
                    .weight_offset = 1,
                    .epsilon = p.epsilon,
                    .y = p.normed});
  matmul(stream, {.T = p.T, .W = p.down, .x = p.normed, .x_stride = W, .y = p.low, .y_stride = p.R});
  stream.threads().run(p.T, [&](int64_t t, int) {
    for (int64_t r = 0; r < p.R; ++r) {
      float& low = p.low[t * p.R + r];
      low = static_cast<float>(silu(low / streams));  // The division comes before the silu.
    }
  });
  matmul(stream, {.T = p.T, .W = p.up, .x = p.low, .x_stride = p.R, .y = p.gates, .y_stride = W});
  if (p.weights)
    matmul(stream, {.T = p.T, .W = p.inject, .x = p.normed, .x_stride = W, .y = p.weights, .y_stride = p.S});
  stream.threads().run(p.T, [&](int64_t t, int) {
    for (int64_t m = 0; m < p.M; ++m) {
      double sum = 0;
      for (int64_t s = 0; s < p.S; ++s) {
        const int64_t at = t * W + s * p.M + m;
        sum += sigmoid(p.gates[at]) * p.normed[at];
      }
      p.x[t * p.M + m] = static_cast<float>(sum / streams);
    }
    if (!p.weights) return;
    for (int64_t s = 0; s < p.S; ++s) {
      float& weight = p.weights[t * p.S + s];
      weight = static_cast<float>(2 * sigmoid(weight / streams));
    }
  });
}

void inject(Stream& stream, const Inject& p) {
  stream.threads().run(p.T * p.S, [&](int64_t i, int) {
    const double weight = p.weights[i];
    const float* y = p.y + i / p.S * p.M;
    float* H = p.H + i * p.M;
    for (int64_t m = 0; m < p.M; ++m) H[m] = static_cast<float>(H[m] + weight * y[m]);
  });
}

void add(Stream&, const Add& p) {
  for (int64_t i = 0; i < p.count; ++i) {
    p.x[i] += p.a[i];
    if (p.b) p.x[i] += p.b[i];
  }
}

void silu_mul(Stream&, const SiluMul& p) {
  for (int64_t i = 0; i < p.count; ++i) p.gate[i] = static_cast<float>(silu(p.gate[i]) * p.up[i]);
}

}  // namespace wp::kernels::ref
