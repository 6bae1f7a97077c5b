// Norms and what is done element by element. Bound by the bytes of the activations.
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

// Thread per four columns of a row of a stream. Grid: rows times streams, columns.
__global__ void inject_kernel(Inject p) {
  const int64_t m = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 4, row = blockIdx.x;
  if (m >= p.M) return;
  const float weight = p.weights[row];
  const float4 y = *reinterpret_cast<const float4*>(p.y + row / p.S * p.M + m);
  auto& H = *reinterpret_cast<float4*>(p.H + row * p.M + m);
  H = {fmaf(weight, y.x, H.x), fmaf(weight, y.y, H.y), fmaf(weight, y.z, H.z), fmaf(weight, y.w, H.w)};
}

// The same where rows do not lie on 16 bytes.
__global__ void inject_one_kernel(Inject p) {
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

void inject(Stream& stream, const Inject& p) {
  const dim3 grid(blocks_for(p.T * p.S, 1), blocks_for(p.M, kThreads * 4));
  const bool aligned = p.M % 4 == 0 && (reinterpret_cast<uintptr_t>(p.H) | reinterpret_cast<uintptr_t>(p.y)) % 16 == 0;
  if (aligned) inject_kernel<<<grid, kThreads, 0, on(stream)>>>(p);
  else inject_one_kernel<<<blocks_for(p.T * p.S * p.M, kThreads), kThreads, 0, on(stream)>>>(p);
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
