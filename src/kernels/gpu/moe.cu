// Mixture of experts: choosing, grouping, the three products of each expert over its rows, the weighted sum.
#include <cmath>
#include <type_traits>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/tile.h"

namespace wp::kernels::gpu {
namespace {

struct Best {
  float logit;
  int32_t expert;
};

// Ties stay with the lower expert; -0 equals 0.
__device__ Best better(Best a, Best b) {
  if (b.expert < 0) return a;
  if (a.expert < 0 || b.logit > a.logit || (b.logit == a.logit && b.expert < a.expert)) return b;
  return a;
}

// A times the best of those not yet taken. Grid: rows. Shared: one flag for each expert.
__global__ void choose_kernel(Router p) {
  extern __shared__ bool taken[];
  __shared__ Best bests[kThreads];
  __shared__ float shared[kThreads];
  const int64_t t = blockIdx.x;
  const float* logits = p.logits + t * p.E;
  for (int64_t e = threadIdx.x; e < p.E; e += kThreads) taken[e] = false;
  __syncthreads();
  float maximum = 0;
  for (int64_t i = 0; i < p.A; ++i) {
    Best mine{0, -1};
    for (int64_t e = threadIdx.x; e < p.E; e += kThreads)
      if (!taken[e]) mine = better(mine, {logits[e], static_cast<int32_t>(e)});
    const Best best = join_block(mine, bests, better);
    if (i == 0) maximum = best.logit;
    if (threadIdx.x == 0) taken[best.expert] = true;
    __syncthreads();
  }
  const float all = sum_of(p.E, shared, [&](int64_t e) { return expf(logits[e] - maximum); });
  if (threadIdx.x != 0) return;
  int32_t *experts = p.experts + t * p.A, at = 0;
  float *weights = p.weights + t * p.A, some = 0;
  for (int32_t e = 0; e < p.E; ++e) {
    if (!taken[e]) continue;
    experts[at] = e;
    weights[at] = expf(logits[e] - maximum);
    some += weights[at++];
  }
  for (int64_t i = 0; i < p.A; ++i) weights[i] /= p.normalise ? some : all;
}

// Calls body(choice, index) for the choices of expert `blockIdx.x` in ascending order of the choice, each thread over
// its own run of all choices; `index` counts them. Returns how many there are.
template <class Body>
__device__ int32_t each_choice(const Router& p, int32_t* counts, Body body) {
  const int64_t choices = p.T * p.A, run = (choices + kThreads - 1) / kThreads, begin = threadIdx.x * run;
  const int64_t end = begin + run < choices ? begin + run : choices;
  int32_t mine = 0;
  for (int64_t i = begin; i < end; ++i) mine += p.experts[i] == static_cast<int32_t>(blockIdx.x);
  counts[threadIdx.x] = mine;
  __syncthreads();
  int32_t before = 0, all = 0;
  for (int i = 0; i < kThreads; ++i) {
    if (i == static_cast<int>(threadIdx.x)) before = all;
    all += counts[i];
  }
  for (int64_t i = begin; i < end; ++i)
    if (p.experts[i] == static_cast<int32_t>(blockIdx.x)) body(static_cast<int32_t>(i), before++);
  return all;
}

// Grid: experts, in all three.
__global__ void count_kernel(Router p) {
  __shared__ int32_t counts[kThreads];
  const int32_t all = each_choice(p, counts, [](int32_t, int32_t) {});
  if (threadIdx.x == 0) p.offsets[blockIdx.x + 1] = all;
}
__global__ void offsets_kernel(Router p) {
  p.offsets[0] = 0;
  for (int64_t e = 0; e < p.E; ++e) p.offsets[e + 1] += p.offsets[e];
}
__global__ void order_kernel(Router p) {
  __shared__ int32_t counts[kThreads];
  int32_t* order = p.order + p.offsets[blockIdx.x];
  each_choice(p, counts, [&](int32_t choice, int32_t index) { order[index] = choice; });
}

// hidden = silu(gate x) * (up x). Grid: tiles of F, experts; a block walks its expert's rows.
template <class S, WeightFormat F>
__global__ void gate_up_kernel(Experts p) {
  __shared__ TileMemory<S> memory;
  const int32_t begin = p.offsets[blockIdx.y], end = p.offsets[blockIdx.y + 1];
  if (begin == end) return;
  const ExpertWeights expert = p.matrices[blockIdx.y];
  const int64_t n0 = int64_t{blockIdx.x} * S::BN;
  for (int32_t at = begin; at < end; at += S::BT) {
    const auto row = [&](int t) { return at + t < end ? p.x + p.order[at + t] / p.A * p.M : nullptr; };
    float gate[S::RT][S::RN], up[S::RT][S::RN];
    multiply_tile<S, F>(expert.gate, n0, row, memory, gate);
    multiply_tile<S, F>(expert.up, n0, row, memory, up);
#pragma unroll
    for (int i = 0; i < S::RT; ++i)
#pragma unroll
      for (int j = 0; j < S::RN; ++j) gate[i][j] = silu(gate[i][j]) * up[i][j];
    each_output<S>(gate, [&](int t, int n, float value) {
      if (at + t < end && n0 + n < p.F) p.hidden[p.order[at + t] * 2 * p.F + n0 + n] = value;
    });
  }
}

// Grid: tiles of M, experts.
template <class S, WeightFormat F>
__global__ void down_kernel(Experts p) {
  __shared__ TileMemory<S> memory;
  const int32_t begin = p.offsets[blockIdx.y], end = p.offsets[blockIdx.y + 1];
  if (begin == end) return;
  const Matrix down = p.matrices[blockIdx.y].down;
  const int64_t n0 = int64_t{blockIdx.x} * S::BN;
  for (int32_t at = begin; at < end; at += S::BT) {
    const auto row = [&](int t) { return at + t < end ? p.hidden + p.order[at + t] * 2 * p.F : nullptr; };
    float sums[S::RT][S::RN];
    multiply_tile<S, F>(down, n0, row, memory, sums);
    each_output<S>(sums, [&](int t, int n, float value) {
      if (at + t < end && n0 + n < p.M) p.outputs[p.order[at + t] * p.M + n0 + n] = value;
    });
  }
}

// By ascending expert, then the shared one. Thread per (t, m).
__global__ void combine_kernel(Experts p) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, t = i / p.M, m = i % p.M;
  if (t >= p.T) return;
  float sum = 0;
  for (int64_t a = 0; a < p.A; ++a) sum = fmaf(p.weights[t * p.A + a], p.outputs[(t * p.A + a) * p.M + m], sum);
  p.y[i] = fmaf(sigmoid(p.shared_gate[t]), p.shared[i], sum);
}

template <class S>
void launch_experts(Stream& stream, const Experts& p, WeightFormat gate_up, WeightFormat down) {
  const auto E = static_cast<unsigned>(p.E);
  with_format(gate_up, [&](auto format) {
    gate_up_kernel<S, format()><<<dim3(blocks_for(p.F, S::BN), E), kThreads, 0, on(stream)>>>(p);
  });
  with_format(down, [&](auto format) {
    down_kernel<S, format()><<<dim3(blocks_for(p.M, S::BN), E), kThreads, 0, on(stream)>>>(p);
  });
}

}  // namespace

void router(Stream& stream, const Router& p) {
  const auto E = static_cast<unsigned>(p.E);
  choose_kernel<<<blocks_for(p.T, 1), kThreads, E, on(stream)>>>(p);
  count_kernel<<<E, kThreads, 0, on(stream)>>>(p);
  offsets_kernel<<<1, 1, 0, on(stream)>>>(p);
  order_kernel<<<E, kThreads, 0, on(stream)>>>(p);
  check_launch();
}

void experts(Stream& stream, const Experts& p) {
  // The array is memory that both sides read; loading refused experts of unlike formats.
  const WeightFormat gate_up = p.matrices[0].gate.format, down = p.matrices[0].down.format;
  if (p.T * p.A <= kSlimRows * p.E) launch_experts<SlimTile>(stream, p, gate_up, down);
  else launch_experts<WideTile>(stream, p, gate_up, down);
  combine_kernel<<<blocks_for(p.T * p.M, kThreads), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
