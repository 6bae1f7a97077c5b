// Choosing the experts of rows, and grouping the choices by expert. A warp chooses for a row; a block of threads
// collects what chose its expert. Bound by launches at few rows, by reading all choices once for each expert at many.
#include "kernels/gpu/device_math.h"
#include "kernels/gpu/gpu.h"

namespace wp::kernels::gpu {
namespace {

constexpr int kWarps = kThreads / 32, kChoicesMax = 64;
constexpr uint32_t kAll = 0xFFFFFFFF;

struct Best {
  float logit;
  int32_t expert;  // Negative: none.
};

// Ties stay with the lower expert; -0 equals 0.
__device__ inline Best better(Best a, Best b) {
  if (b.expert < 0) return a;
  if (a.expert < 0 || b.logit > a.logit || (b.logit == a.logit && b.expert < a.expert)) return b;
  return a;
}

template <class Value, class Join>
__device__ inline Value join_warp(Value value, Join join) {
#pragma unroll
  for (int far = 16; far > 0; far /= 2) value = join(value, far);
  return value;
}

// The sum over all experts of e(j) for expert lane + 32 j: pairs 256, 128, 64, ... apart first.
template <int kPerLane, class E>
__device__ inline float sum_of_experts(E e) {
  float sums[8] = {};
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) sums[j % 8] += e(j);
#pragma unroll
  for (int far = 4; far > 0; far /= 2)
#pragma unroll
    for (int j = 0; j < far; ++j) sums[j] += sums[j + far];
  return join_warp(sums[0], [](float a, int far) { return a + __shfl_down_sync(kAll, a, far); });
}

// A times the best of those not yet taken. E at most 32 kPerLane. Grid: rows, kWarps to a block.
template <int kPerLane>
__global__ void __launch_bounds__(kThreads) choose_kernel(Router p) {
  __shared__ float chosen[kWarps][kChoicesMax];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t t = int64_t{blockIdx.x} * kWarps + warp;
  if (t >= p.T) return;
  const auto E = static_cast<int>(p.E), A = static_cast<int>(p.A);
  float logits[kPerLane];
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) logits[j] = lane + 32 * j < E ? p.logits[t * p.E + lane + 32 * j] : 0.0f;
  uint32_t taken = 0;  // Bit j: expert lane + 32 j.
  float maximum = 0;
  for (int i = 0; i < A; ++i) {
    Best best{0, -1};
#pragma unroll
    for (int j = 0; j < kPerLane; ++j)
      if (lane + 32 * j < E && !(taken >> j & 1)) best = better(best, {logits[j], lane + 32 * j});
    best = join_warp(best, [](Best a, int far) {
      return better(a, {__shfl_xor_sync(kAll, a.logit, far), __shfl_xor_sync(kAll, a.expert, far)});
    });
    if (i == 0) maximum = best.logit;
    if (best.expert % 32 == lane) taken |= 1u << best.expert / 32;
  }
  const float all =
      sum_of_experts<kPerLane>([&](int j) { return lane + 32 * j < E ? expf(logits[j] - maximum) : 0.0f; });
  int before = 0;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const uint32_t mask = __ballot_sync(kAll, taken >> j & 1);
    const int at = before + __popc(mask & ((1u << lane) - 1));
    if (taken >> j & 1) {
      p.experts[t * A + at] = lane + 32 * j;
      chosen[warp][at] = expf(logits[j] - maximum);
    }
    before += __popc(mask);
  }
  __syncwarp();
  float some = 0;
  for (int i = 0; i < A; ++i) some += chosen[warp][i];
  const float total = p.normalise ? some : __shfl_sync(kAll, all, 0);
  for (int i = lane; i < A; i += 32) p.weights[t * A + i] = chosen[warp][i] / total;
}

// A number of each thread, summed over the block; all get it.
__device__ inline int32_t sum_of_block(int32_t value, int32_t (&shared)[kWarps]) {
  value = join_warp(value, [](int32_t a, int far) { return a + __shfl_xor_sync(kAll, a, far); });
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  int32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += shared[i];
  __syncthreads();
  return sum;
}

// order[offsets[e] ..] = what chose expert e, ascending. Grid: experts.
__global__ void __launch_bounds__(kThreads) group_kernel(Router p) {
  __shared__ int32_t shared[kWarps];
  const auto choices = static_cast<int32_t>(p.T * p.A), expert = static_cast<int32_t>(blockIdx.x);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t lower = 0, mine = 0;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < choices; i += kThreads) {
    const int32_t chosen = __ldg(p.experts + i);
    lower += chosen < expert;
    mine += chosen == expert;
  }
  lower = sum_of_block(lower, shared);
  mine = sum_of_block(mine, shared);
  if (threadIdx.x == 0) {
    p.offsets[expert] = lower;
    if (expert + 1 == static_cast<int32_t>(p.E)) p.offsets[expert + 1] = lower + mine;
  }
  int32_t at = lower;
  for (int32_t begin = 0; mine > 0 && begin < choices; begin += kThreads) {
    const int32_t i = begin + static_cast<int32_t>(threadIdx.x);
    const bool is = i < choices && __ldg(p.experts + i) == expert;
    const uint32_t mask = __ballot_sync(kAll, is);
    if (lane == 0) shared[warp] = __popc(mask);
    if (__syncthreads_or(mask != 0) == 0) continue;
    int32_t before = 0, all = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      before += w < warp ? shared[w] : 0;
      all += shared[w];
    }
    if (is) p.order[at + before + __popc(mask & ((1u << lane) - 1))] = i;
    at += all;
    __syncthreads();
  }
}

}  // namespace

void router(Stream& stream, const Router& p) {
  WP_ASSERT(p.E <= 1024 && p.A <= kChoicesMax);
  const unsigned blocks = blocks_for(p.T, kWarps);
  if (p.E <= 128) choose_kernel<4><<<blocks, kThreads, 0, on(stream)>>>(p);
  else if (p.E <= 256) choose_kernel<8><<<blocks, kThreads, 0, on(stream)>>>(p);
  else if (p.E <= 512) choose_kernel<16><<<blocks, kThreads, 0, on(stream)>>>(p);
  else choose_kernel<32><<<blocks, kThreads, 0, on(stream)>>>(p);
  group_kernel<<<static_cast<unsigned>(p.E), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
