// Gated DeltaNet: short convolution, delta rule, gated norm. The delta rule walks its rows one by one; what runs side
// by side are heads and value columns, which do not know of each other.
#include <cmath>

#include "kernels/gpu/device_math.h"
#include "kernels/gpu/gpu.h"

namespace wp::kernels::gpu {
namespace {

__device__ const float* floats(const std::byte* record, int64_t offset) {
  return record ? reinterpret_cast<const float*>(record + offset) : nullptr;
}
__device__ float* floats(std::byte* record, int64_t offset) { return reinterpret_cast<float*>(record + offset); }

// u of channel c at a row of the segment; negative: before it.
__device__ float conv_input(const ConvSilu& p, const SegmentView& segment, int64_t row, int64_t c) {
  if (row >= 0) return p.u[(segment.row_begin + row) * p.C + c];
  const float* before = floats(segment.state_in, p.state_offset);
  return before ? before[(p.history() + row) * p.C + c] : 0.0f;
}

// Grid: rows, channels.
__global__ void conv_kernel(ConvSilu p) {
  const int64_t t = blockIdx.x, c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c >= p.C) return;
  const SegmentView segment = p.batch.segments[p.batch.row_segment[t]];
  const int64_t row = t - segment.row_begin;
  float sum = 0;
  for (int64_t i = 0; i < p.taps; ++i)
    sum = fmaf(p.weight[i * p.C + c], conv_input(p, segment, row - (p.taps - 1 - i) * p.dilation, c), sum);
  p.y[t * p.C + c] = silu(sum);
}

// After all of y: captures, then state_out, which may be state_in. Ascending: row i of the new state is row i + rows
// of the old one, never written yet. Grid: segments, channels.
__global__ void conv_state_kernel(ConvSilu p) {
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x, history = p.history();
  if (c >= p.C) return;
  const SegmentView segment = p.batch.segments[blockIdx.x];
  const auto save = [&](std::byte* record, int64_t rows) {
    float* state = floats(record, p.state_offset) + c;
    for (int64_t i = 0; i < history; ++i) state[i * p.C] = conv_input(p, segment, rows - history + i, c);
  };
  for (int32_t i = 0; i < segment.captures_count; ++i) save(segment.captures[i].anchor, segment.captures[i].rows);
  save(segment.state_out, segment.rows);
}

// q and k to their lengths, in place. Grid: rows, key heads.
__global__ void gdn_lengths_kernel(Gdn p) {
  __shared__ float shared[kThreads];
  float* q = p.qkv + blockIdx.x * p.channels() + blockIdx.y * p.DK;
  float* k = q + p.HK * p.DK;
  const float q_squares = sum_of(p.DK, shared, [&](int64_t i) { return q[i] * q[i]; });
  const float k_squares = sum_of(p.DK, shared, [&](int64_t i) { return k[i] * k[i]; });
  const float q_scale = 1.0f / sqrtf(q_squares + 1e-6f) / sqrtf(static_cast<float>(p.DK));
  const float k_scale = 1.0f / sqrtf(k_squares + 1e-6f);
  for (int64_t i = threadIdx.x; i < p.DK; i += kThreads) {
    q[i] *= q_scale;
    k[i] *= k_scale;
  }
}

// b becomes beta, a the decay, in place.
__global__ void gdn_gates_kernel(Gdn p) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, head = i % p.HV;
  if (i >= p.batch.rows * p.HV) return;
  p.b[i] = sigmoid(p.b[i]);
  p.a[i] = expf(-expf(p.A_log[head]) * softplus(p.a[i] + p.dt_bias[head]));
}

constexpr int kColumns = 32;  // Value columns of a block: one each thread.

// A column of the state lies in registers where the head's width is known (kDK), else in shared memory; the order of
// arithmetic is one. Grid: segments, value heads, groups of columns. Shared: q and k [DK], then S [DK, kColumns].
template <int kDK>
__global__ void gdn_kernel(Gdn p) {
  extern __shared__ float memory[];
  constexpr int kUnroll = kDK ? kDK : 8;
  const int64_t DK = kDK ? kDK : p.DK;
  float *q = memory, *k = q + DK;
  float registers[kDK ? kDK : 1];
  const auto S = [&](int64_t i) -> float& {
    if constexpr (kDK > 0) return registers[i];
    else return memory[2 * DK + i * kColumns + threadIdx.x];
  };
  const SegmentView segment = p.batch.segments[blockIdx.x];
  const int64_t head = blockIdx.y, j = int64_t{blockIdx.z} * kColumns + threadIdx.x;
  const int64_t key_at = head / (p.HV / p.HK) * DK, state_at = head * DK * p.DV + j;
  const bool mine = j < p.DV;
  const float* before = floats(segment.state_in, p.state_offset);
#pragma unroll kUnroll
  for (int64_t i = 0; i < DK; ++i) S(i) = mine && before ? before[state_at + i * p.DV] : 0.0f;
  const auto save = [&](std::byte* record) {
    float* state = floats(record, p.state_offset);
#pragma unroll kUnroll
    for (int64_t i = 0; i < DK; ++i)
      if (mine) state[state_at + i * p.DV] = S(i);
  };
  int32_t capture = 0;
  for (int32_t row = 0; row < segment.rows; ++row) {
    const int64_t t = segment.row_begin + row;
    const float* at = p.qkv + t * p.channels();
    __syncthreads();
    for (int64_t i = threadIdx.x; i < DK; i += kColumns) {
      q[i] = at[key_at + i];
      k[i] = at[p.HK * DK + key_at + i];
    }
    const float v = mine ? at[2 * p.HK * DK + head * p.DV + j] : 0.0f;
    const float beta = p.b[t * p.HV + head], decay = p.a[t * p.HV + head];
    __syncthreads();
    float recalled = 0, o = 0;
#pragma unroll kUnroll
    for (int64_t i = 0; i < DK; ++i) recalled = fmaf(S(i) * decay, k[i], recalled);
    const float write = beta * (v - recalled);
#pragma unroll kUnroll
    for (int64_t i = 0; i < DK; ++i) {
      S(i) = fmaf(k[i], write, S(i) * decay);
      o = fmaf(S(i), q[i], o);
    }
    if (mine) p.o[(t * p.HV + head) * p.DV + j] = o;
    if (capture < segment.captures_count && segment.captures[capture].rows == row + 1)
      save(segment.captures[capture++].anchor);
  }
  save(segment.state_out);
}

// Grid: rows times heads.
__global__ void gated_norm_kernel(GatedNorm p) {
  __shared__ float shared[kThreads];
  const int64_t at = blockIdx.x * p.DV;
  const float scale = inverse_rms(p.DV, p.epsilon, shared, [&](int64_t i) { return p.o[at + i]; });
  for (int64_t i = threadIdx.x; i < p.DV; i += kThreads) {
    const float z = p.z[at + i], gate = p.gate == Gate::sigmoid ? sigmoid(z) : silu(z);
    p.y[at + i] = p.o[at + i] * scale * p.weight[i] * gate;
  }
}

}  // namespace

void conv_silu(Stream& stream, const ConvSilu& p) {
  const unsigned across = blocks_for(p.C, kThreads);
  conv_kernel<<<dim3(static_cast<unsigned>(p.batch.rows), across), kThreads, 0, on(stream)>>>(p);
  conv_state_kernel<<<dim3(static_cast<unsigned>(p.batch.segments_count), across), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

void gdn(Stream& stream, const Gdn& p) {
  const auto rows = static_cast<unsigned>(p.batch.rows);
  gdn_lengths_kernel<<<dim3(rows, blocks_for(p.HK, 1)), kThreads, 0, on(stream)>>>(p);
  gdn_gates_kernel<<<blocks_for(p.batch.rows * p.HV, kThreads), kThreads, 0, on(stream)>>>(p);
  const bool known = p.DK == 128;
  const auto bytes = static_cast<size_t>(p.DK * (known ? 2 : 2 + kColumns) * 4);
  WP_ASSERT(bytes <= 48 << 10);  // DK up to 361.
  const dim3 grid(static_cast<unsigned>(p.batch.segments_count), blocks_for(p.HV, 1), blocks_for(p.DV, kColumns));
  if (known) gdn_kernel<128><<<grid, kColumns, bytes, on(stream)>>>(p);
  else gdn_kernel<0><<<grid, kColumns, bytes, on(stream)>>>(p);
  check_launch();
}

void gated_norm(Stream& stream, const GatedNorm& p) {
  gated_norm_kernel<<<blocks_for(p.T * p.HV, 1), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
