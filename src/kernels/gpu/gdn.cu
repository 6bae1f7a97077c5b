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

constexpr int kColumns = 32;  // Value columns of a block.

// The delta rule where DK is 128: eight lanes share a column, each with 16 rows of it in registers, so that a row costs
// two chains of 16 and two sums over eight lanes; warps do not wait for each other. Rows of lane `part`: 4 part + 32 i
// and the three that follow. Grid: segments, value heads, groups of columns.
struct KeyAndQuery {
  float4 k[4], q[4];
  float v, beta, decay;
};

__device__ inline KeyAndQuery load_row(const Gdn& p, int64_t t, int64_t head, int64_t key_at, int64_t j, int part) {
  const float* at = p.qkv + t * p.channels();
  const auto* q = reinterpret_cast<const float4*>(at + key_at);
  const auto* k = reinterpret_cast<const float4*>(at + p.HK * 128 + key_at);
  KeyAndQuery row;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    row.k[i] = __ldg(k + part + 8 * i);
    row.q[i] = __ldg(q + part + 8 * i);
  }
  row.v = j < p.DV ? __ldg(at + 2 * p.HK * 128 + head * p.DV + j) : 0.0f;
  row.beta = __ldg(p.b + t * p.HV + head);
  row.decay = __ldg(p.a + t * p.HV + head);
  return row;
}

// Over the eight lanes of a column; all get it.
__device__ inline float sum_lanes(float value) {
#pragma unroll
  for (int far = 4; far > 0; far /= 2) value += __shfl_xor_sync(0xFFFFFFFF, value, far);
  return value;
}

__device__ inline float element(const float4 (&values)[4], int i) {
  const float4 four = values[i / 4];
  return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
}

// One row's step; returns this lane's part of o.
__device__ inline float step(float (&S)[16], const KeyAndQuery& row) {
  float recalled = 0, o = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    S[i] *= row.decay;
    recalled = fmaf(S[i], element(row.k, i), recalled);
  }
  const float write = row.beta * (row.v - sum_lanes(recalled));
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    S[i] = fmaf(element(row.k, i), write, S[i]);
    o = fmaf(S[i], element(row.q, i), o);
  }
  return sum_lanes(o);
}

__global__ void __launch_bounds__(kThreads) gdn_walk_kernel(Gdn p) {
  const SegmentView segment = p.batch.segments[blockIdx.x];
  const int part = threadIdx.x % 8;
  const int64_t head = blockIdx.y, j = int64_t{blockIdx.z} * kColumns + threadIdx.x / 8;
  const int64_t key_at = head / (p.HV / p.HK) * 128, state_at = head * 128 * p.DV + j;
  const bool mine = j < p.DV;
  const auto place = [&](int i) { return state_at + (4 * part + i / 4 * 32 + i % 4) * p.DV; };
  const float* before = floats(segment.state_in, p.state_offset);
  float S[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) S[i] = mine && before ? before[place(i)] : 0.0f;
  const auto save = [&](std::byte* record) {
    float* state = floats(record, p.state_offset);
#pragma unroll
    for (int i = 0; i < 16; ++i)
      if (mine) state[place(i)] = S[i];
  };
  int32_t capture = 0;
  KeyAndQuery row = load_row(p, segment.row_begin, head, key_at, j, part);
  for (int32_t at = 0; at < segment.rows; ++at) {
    const int64_t t = segment.row_begin + at;
    // The next row is under way while this one is computed.
    const KeyAndQuery next = load_row(p, at + 1 < segment.rows ? t + 1 : t, head, key_at, j, part);
    const float o = step(S, row);
    if (mine && part == 0) p.o[(t * p.HV + head) * p.DV + j] = o;
    if (capture < segment.captures_count && segment.captures[capture].rows == at + 1)
      save(segment.captures[capture++].anchor);
    row = next;
  }
  save(segment.state_out);
}

// Any DK: a column of the state is a thread's, in shared memory. Grid: segments, value heads, groups of columns.
// Shared: q and k [DK], then S [DK, kColumns].
__global__ void gdn_kernel(Gdn p) {
  extern __shared__ float memory[];
  const int64_t DK = p.DK;
  float *q = memory, *k = q + DK;
  const auto S = [&](int64_t i) -> float& { return memory[2 * DK + i * kColumns + threadIdx.x]; };
  const SegmentView segment = p.batch.segments[blockIdx.x];
  const int64_t head = blockIdx.y, j = int64_t{blockIdx.z} * kColumns + threadIdx.x;
  const int64_t key_at = head / (p.HV / p.HK) * DK, state_at = head * DK * p.DV + j;
  const bool mine = j < p.DV;
  const float* before = floats(segment.state_in, p.state_offset);
  for (int64_t i = 0; i < DK; ++i) S(i) = mine && before ? before[state_at + i * p.DV] : 0.0f;
  const auto save = [&](std::byte* record) {
    float* state = floats(record, p.state_offset);
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
    for (int64_t i = 0; i < DK; ++i) recalled = fmaf(S(i) * decay, k[i], recalled);
    const float write = beta * (v - recalled);
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
  const dim3 grid(static_cast<unsigned>(p.batch.segments_count), blocks_for(p.HV, 1), blocks_for(p.DV, kColumns));
  if (p.DK == 128) {
    gdn_walk_kernel<<<grid, kThreads, 0, on(stream)>>>(p);
  } else {
    const auto bytes = static_cast<size_t>(p.DK * (2 + kColumns) * 4);
    WP_ASSERT(bytes <= 48 << 10);  // DK up to 361.
    gdn_kernel<<<grid, kColumns, bytes, on(stream)>>>(p);
  }
  check_launch();
}

void gated_norm(Stream& stream, const GatedNorm& p) {
  gated_norm_kernel<<<blocks_for(p.T * p.HV, 1), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
