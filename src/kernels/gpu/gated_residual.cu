// Hyper-connections: what a layer reads of the streams and how its output comes back (spec/qwen4_exp.md 3.1). Up to 64
// rows in three launches: the norm; the products that leave the streams, down and inject; the one back, up, with its
// gates applied. Many rows: gated_residual_sm90.cu. Formats without tensor cores: one step after the other. Bound by
// the bytes of the weights at few rows, of the streams at many.
#include <cooperative_groups.h>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/tensor_cores.h"
#include "kernels/gpu/wide.h"

namespace wp::kernels::gpu {
namespace {

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

constexpr int kSkinnyRows = 64;

__device__ const float* row_of(const float* x, int64_t t, int64_t T, int64_t stride) {
  return t < T ? x + t * stride : nullptr;
}

// low = silu(down normed / S), weights = 2 sigmoid(inject normed / S). Rows of both, one after the other. There are few
// of them and they are long: a cluster of blocks shares 16 rows, kDownWarps slices of K to a block, and reads all
// slices from each other's shared memory. Grid: kCluster blocks for 16 rows.
constexpr int kCluster = 8, kDownWarps = kSlicesMax / kCluster;

template <int kTokens, WeightFormat F>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kDownWarps * 32) few_down_kernel(GatedResidual p) {
  __shared__ Slices<kTokens, kDownWarps> slices;
  const auto cluster = cooperative_groups::this_cluster();
  const int group = threadIdx.x % 32 / 4, rank = static_cast<int>(blockIdx.x) % kCluster;
  const int64_t n0 = int64_t{blockIdx.x} / kCluster * 16, rows = p.R + (p.weights ? p.S : 0), W = p.S * p.M;
  const auto row = [&](int64_t n) {
    const int64_t i = n < rows ? n : rows - 1;
    return i < p.R ? WeightRow{p.down, i} : WeightRow{p.inject, i - p.R};
  };
  const float* x[kTokens];
#pragma unroll
  for (int n = 0; n < kTokens; ++n) x[n] = row_of(p.normed, n * 8 + group, p.T, W);
  const int first = rank * kDownWarps;
  multiply_few_rows<kTokens, F>(row(n0 + group), row(n0 + group + 8), x, slices,
                                {first + static_cast<int>(threadIdx.x / 32), kDownWarps, first});
  cluster.sync();
  const auto streams = static_cast<float>(p.S);
  constexpr int kOutputs = kTokens * 8 * 16 / kCluster;  // Of a block.
  for (int i = threadIdx.x; i < kOutputs; i += kDownWarps * 32) {
    const int at = rank * kOutputs + i;
    const int64_t t = at / 16, n = n0 + at % 16;
    if (t >= p.T || n >= rows) continue;
    float sum = 0;
    for (int s = 0; s * slice_of(W) < W; ++s)
      sum += cluster.map_shared_rank(&slices[s % kDownWarps][at / 16][at % 16], s / kDownWarps)[0];
    if (n < p.R) p.low[t * p.R + n] = silu(sum * row_scale<F>(p.down, n) / streams);
    else p.weights[t * p.S + n - p.R] = 2 * sigmoid(sum * row_scale<F>(p.inject, n - p.R) / streams);
  }
  cluster.sync();  // Nobody leaves while others read.
}

// x = sum over the streams of sigmoid(up low) * normed, over S. Of S streams the same 16 / S columns. Grid: those.
template <int kTokens, WeightFormat F>
__global__ void __launch_bounds__(kThreads) few_up_kernel(GatedResidual p) {
  __shared__ Slices<kTokens> slices;
  const int group = threadIdx.x % 32 / 4;
  const int64_t width = 16 / p.S, m0 = blockIdx.x * width;
  const auto row = [&](int i) { return WeightRow{p.up, i / width * p.M + m0 + i % width}; };
  const float* x[kTokens];
#pragma unroll
  for (int n = 0; n < kTokens; ++n) x[n] = row_of(p.low, n * 8 + group, p.T, p.R);
  multiply_few_rows<kTokens, F>(row(group), row(group + 8), x, slices, by_warps());
  for (int at = threadIdx.x; at < kTokens * 8 * width; at += kThreads) {
    const int64_t t = at / width, i = at % width;
    if (t >= p.T) continue;
    float sum = 0;
    for (int64_t s = 0; s < p.S; ++s) {
      const int64_t n = s * p.M + m0 + i;
      const float gate = sliced_sum<kTokens>(slices, p.R, static_cast<int>(t), static_cast<int>(s * width + i));
      sum = fmaf(sigmoid(gate * row_scale<F>(p.up, n)), p.normed[t * p.S * p.M + n], sum);
    }
    p.x[t * p.M + m0 + i] = sum / static_cast<float>(p.S);
  }
}

void norm(Stream& stream, const GatedResidual& p) {
  rms_norm(stream, {.T = p.T,
                    .groups = p.S,
                    .width = p.M,
                    .x = p.H,
                    .weight = p.norm,
                    .weight_per_group = true,
                    .weight_offset = 1,
                    .epsilon = p.epsilon,
                    .y = p.normed});
}

template <int kTokens>
void few_rows(Stream& stream, const GatedResidual& p) {
  norm(stream, p);
  const int64_t rows = p.R + (p.weights ? p.S : 0);
  with_tensor_format(p.down.format, [&](auto format) {
    few_down_kernel<kTokens, format()><<<blocks_for(rows, 16) * kCluster, kDownWarps * 32, 0, on(stream)>>>(p);
  });
  with_tensor_format(p.up.format, [&](auto format) {
    few_up_kernel<kTokens, format()><<<blocks_for(p.M * p.S, 16), kThreads, 0, on(stream)>>>(p);
  });
}

void one_by_one(Stream& stream, const GatedResidual& p) {
  const int64_t W = p.S * p.M;
  const auto streams = static_cast<float>(p.S);
  norm(stream, p);
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

// Sixteen rows of W hold whole columns of the streams, and their matrices are of one format.
bool fits_few_rows(const GatedResidual& p) {
  if (!on_tensor_cores(p.down) || !on_tensor_cores(p.up) || p.R >= kLongRow || 16 % p.S != 0 || p.M % (16 / p.S) != 0)
    return false;
  return !p.weights || (on_tensor_cores(p.inject) && p.inject.format == p.down.format);
}

}  // namespace

void gated_residual(Stream& stream, const GatedResidual& p) {
  if (!fits_few_rows(p)) return one_by_one(stream, p);
  if (p.T <= 8) few_rows<1>(stream, p);
  else if (p.T <= 16) few_rows<2>(stream, p);
  else if (p.T <= 32) few_rows<4>(stream, p);
  else if (p.T <= kSkinnyRows) few_rows<8>(stream, p);
  else if (!gated_residual_wide(stream, p)) return one_by_one(stream, p);
  check_launch();
}

}  // namespace wp::kernels::gpu
