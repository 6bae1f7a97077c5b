// Norms, hyper-connections and what is done element by element. Bound by the bytes of the activations.
#include "kernels/gpu/device_math.h"
#include "kernels/gpu/gpu.h"

namespace wp::kernels::gpu {
namespace {

// Grid: rows times groups.
__global__ void rms_norm_kernel(RmsNorm p) {
  __shared__ float shared[kThreads];
  const int64_t at = blockIdx.x * p.width;
  const float* weight = p.weight + (p.weight_per_group ? blockIdx.x % p.groups * p.width : 0);
  const float scale = inverse_rms(p.width, p.epsilon, shared, [&](int64_t i) { return p.x[at + i]; });
  for (int64_t i = threadIdx.x; i < p.width; i += kThreads)
    p.y[at + i] = p.x[at + i] * scale * (p.weight_offset + weight[i]);
}

// Thread i of the grid's flat order.
__device__ int64_t flat() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }

// The division comes before the silu.
__global__ void low_kernel(float* low, int64_t count, float streams) {
  if (flat() < count) low[flat()] = silu(low[flat()] / streams);
}

// x[t, m] = sum over s of sigmoid(gates) * normed, over S; thread per (t, m). Then the injection weights.
__global__ void mix_kernel(GatedResidual p) {
  const int64_t t = flat() / p.M, m = flat() % p.M;
  if (t >= p.T) return;
  const auto streams = static_cast<float>(p.S);
  float sum = 0;
  for (int64_t s = 0; s < p.S; ++s) {
    const int64_t at = (t * p.S + s) * p.M + m;
    sum = fmaf(sigmoid(p.gates[at]), p.normed[at], sum);
  }
  p.x[t * p.M + m] = sum / streams;
}

__global__ void inject_weights_kernel(float* weights, int64_t count, float streams) {
  if (flat() < count) weights[flat()] = 2 * sigmoid(weights[flat()] / streams);
}

__global__ void inject_kernel(Inject p) {
  const int64_t row = flat() / p.M;
  if (row >= p.T * p.S) return;
  p.H[flat()] = fmaf(p.weights[row], p.y[row / p.S * p.M + flat() % p.M], p.H[flat()]);
}

__global__ void add_kernel(Add p) {
  const int64_t i = flat();
  if (i >= p.count) return;
  const float sum = p.x[i] + p.a[i];
  p.x[i] = p.b ? sum + p.b[i] : sum;
}

__global__ void silu_mul_kernel(SiluMul p) {
  if (flat() < p.count) p.gate[flat()] = silu(p.gate[flat()]) * p.up[flat()];
}

}  // namespace

void rms_norm(Stream& stream, const RmsNorm& p) {
  rms_norm_kernel<<<blocks_for(p.T * p.groups, 1), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

void gated_residual(Stream& stream, const GatedResidual& p) {
  const int64_t W = p.S * p.M;
  const auto streams = static_cast<float>(p.S);
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
  low_kernel<<<blocks_for(p.T * p.R, kThreads), kThreads, 0, on(stream)>>>(p.low, p.T * p.R, streams);
  matmul(stream, {.T = p.T, .W = p.up, .x = p.low, .x_stride = p.R, .y = p.gates, .y_stride = W});
  mix_kernel<<<blocks_for(p.T * p.M, kThreads), kThreads, 0, on(stream)>>>(p);
  check_launch();
  if (!p.weights) return;
  matmul(stream, {.T = p.T, .W = p.inject, .x = p.normed, .x_stride = W, .y = p.weights, .y_stride = p.S});
  inject_weights_kernel<<<blocks_for(p.T * p.S, kThreads), kThreads, 0, on(stream)>>>(p.weights, p.T * p.S, streams);
  check_launch();
}

void inject(Stream& stream, const Inject& p) {
  inject_kernel<<<blocks_for(p.T * p.S * p.M, kThreads), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

void add(Stream& stream, const Add& p) {
  add_kernel<<<blocks_for(p.count, kThreads), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

void silu_mul(Stream& stream, const SiluMul& p) {
  silu_mul_kernel<<<blocks_for(p.count, kThreads), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
