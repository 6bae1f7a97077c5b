// Gated DeltaNet: short convolution, delta rule, gated norm. The delta rule walks its rows one by one; what runs side
// by side are heads and value columns, which do not know of each other.
#include <cmath>

#include "kernels/gpu/device_math.h"
#include "kernels/gpu/gdn_chunk.h"
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

// Neighbouring rows of one segment, a thread each channel: u is read once where the taps are neighbours. Else row by
// row, in the same order of sums. Grid: runs of kConvRows rows, channels.
constexpr int kConvRows = 16, kConvTaps = 4;
__global__ void conv_run_kernel(ConvSilu p) {
  const int64_t t0 = int64_t{blockIdx.x} * kConvRows, c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c >= p.C) return;
  float weight[kConvTaps], u[kConvTaps] = {};
#pragma unroll
  for (int i = 0; i < kConvTaps; ++i) weight[i] = p.weight[i * p.C + c];
  int32_t current = -1;
#pragma unroll 4
  for (int r = 0; r < kConvRows; ++r) {
    const int64_t t = t0 + r;
    if (t >= p.batch.rows) return;
    const int32_t index = p.batch.row_segment[t];
    if (index != current) {
      current = index;
      const SegmentView segment = p.batch.segments[index];
#pragma unroll
      for (int i = 1; i < kConvTaps; ++i) u[i] = conv_input(p, segment, t - segment.row_begin - kConvTaps + i, c);
    }
#pragma unroll
    for (int i = 0; i + 1 < kConvTaps; ++i) u[i] = u[i + 1];
    u[kConvTaps - 1] = p.u[t * p.C + c];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kConvTaps; ++i) sum = fmaf(weight[i], u[i], sum);
    p.y[t * p.C + c] = silu(sum);
  }
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

// Over the warp, in a fixed tree; all lanes get it.
__device__ inline float sum_warp(float value) {
#pragma unroll
  for (int far = 16; far > 0; far /= 2) value += __shfl_xor_sync(0xFFFFFFFF, value, far);
  return value;
}

// q and k to their lengths, in place. A warp for a row and key head.
__global__ void gdn_lengths_kernel(Gdn p) {
  const int lane = threadIdx.x % 32;
  const int64_t unit = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (unit >= p.batch.rows * p.HK) return;
  float* q = p.qkv + unit / p.HK * p.channels() + unit % p.HK * p.DK;
  float* k = q + p.HK * p.DK;
  float q_squares = 0, k_squares = 0;
  for (int64_t i = lane; i < p.DK; i += 32) {
    q_squares = fmaf(q[i], q[i], q_squares);
    k_squares = fmaf(k[i], k[i], k_squares);
  }
  const float q_scale = 1.0f / sqrtf(sum_warp(q_squares) + 1e-6f) / sqrtf(static_cast<float>(p.DK));
  const float k_scale = 1.0f / sqrtf(sum_warp(k_squares) + 1e-6f);
  for (int64_t i = lane; i < p.DK; i += 32) {
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

// The delta rule where DK is 128: eight lanes share two columns, each with 16 rows of them in registers, so that a row
// costs short chains and two sums over eight lanes for each; warps do not wait for each other, and blocks are small, so
// that all multiprocessors have as many. Rows of lane `part`: 4 part + 32 i and the three that follow. Grid: segments,
// value heads, groups of columns.
constexpr int kWalkThreads = 64, kWalkColumns = kWalkThreads / 4;

struct WalkRow {
  float4 k[4], q[4];
  float2 v;
  float beta, decay;
};

// Where a thread reads its rows, one after the other.
struct WalkRows {
  const float4 *q, *k;
  const float2* v;
  const float *beta, *decay;
  int64_t channels, heads;

  __device__ void load(WalkRow& row) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      row.k[i] = __ldg(k + 8 * i);
      row.q[i] = __ldg(q + 8 * i);
    }
    row.v = __ldg(v);
    row.beta = __ldg(beta);
    row.decay = __ldg(decay);
  }
  __device__ void next() {
    q += channels / 4;
    k += channels / 4;
    v += channels / 2;
    beta += heads;
    decay += heads;
  }
};

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

// One row's step; returns o, of which every lane has all.
__device__ inline float2 walk_step(float2 (&S)[16], const WalkRow& row) {
  float2 even{0, 0}, odd{0, 0}, o{0, 0};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float k = element(row.k, i);
    S[i].x *= row.decay;
    S[i].y *= row.decay;
    float2& recalled = i % 2 == 0 ? even : odd;
    recalled.x = fmaf(S[i].x, k, recalled.x);
    recalled.y = fmaf(S[i].y, k, recalled.y);
  }
  const float2 write{row.beta * (row.v.x - sum_lanes(even.x + odd.x)),
                     row.beta * (row.v.y - sum_lanes(even.y + odd.y))};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float k = element(row.k, i), q = element(row.q, i);
    S[i].x = fmaf(k, write.x, S[i].x);
    S[i].y = fmaf(k, write.y, S[i].y);
    o.x = fmaf(S[i].x, q, o.x);
    o.y = fmaf(S[i].y, q, o.y);
  }
  return {sum_lanes(o.x), sum_lanes(o.y)};
}

// `apart` is 0: where all threads are known to read one address, the compiler moves what they read to a register that
// they share, and waits for it at once instead of two rows later.
__global__ void __launch_bounds__(kWalkThreads) gdn_walk_kernel(Gdn p, int apart) {
  const SegmentView segment = p.batch.segments[blockIdx.x];
  const int part = threadIdx.x % 8;
  const int64_t head = blockIdx.y, j = int64_t{blockIdx.z} * kWalkColumns + threadIdx.x / 8 * 2;
  const int64_t state_at = head * 128 * p.DV + j, first = segment.row_begin;
  const auto place = [&](int i) { return state_at + (4 * part + i / 4 * 32 + i % 4) * p.DV; };
  const float* before = floats(segment.state_in, p.state_offset);
  float2 S[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) S[i] = before ? *reinterpret_cast<const float2*>(before + place(i)) : float2{0, 0};
  const auto save = [&](std::byte* record) {
    float* state = floats(record, p.state_offset);
#pragma unroll
    for (int i = 0; i < 16; ++i) *reinterpret_cast<float2*>(state + place(i)) = S[i];
  };
  const float* row = p.qkv + first * p.channels();
  const float* key = row + p.HK * 128 + head / (p.HV / p.HK) * 128;
  WalkRows rows{.q = reinterpret_cast<const float4*>(key - p.HK * 128) + part,
                .k = reinterpret_cast<const float4*>(key) + part,
                .v = reinterpret_cast<const float2*>(row + 2 * p.HK * 128 + head * p.DV + j),
                .beta = p.b + first * p.HV + head + part * apart,
                .decay = p.a + first * p.HV + head + part * apart,
                .channels = p.channels(),
                .heads = p.HV};
  float2* o = reinterpret_cast<float2*>(p.o + (first * p.HV + head) * p.DV + j);
  int32_t capture = 0, next_capture = segment.captures_count > 0 ? segment.captures[0].rows : 0;
  // Two rows are under way while one is computed.
  WalkRow one, two;
  const auto load = [&](WalkRow& to, int32_t at) {
    if (at >= segment.rows) return;
    rows.load(to);
    rows.next();
  };
  const auto step = [&](WalkRow& row, int32_t at) {
    const float2 value = walk_step(S, row);
    load(row, at + 2);
    if (part == 0) *o = value;
    o += p.HV * p.DV / 2;
    if (at + 1 == next_capture) {
      save(segment.captures[capture++].anchor);
      next_capture = capture < segment.captures_count ? segment.captures[capture].rows : 0;
    }
  };
  load(one, 0);
  load(two, 1);
  for (int32_t at = 0; at < segment.rows; at += 2) {
    step(one, at);
    if (at + 1 < segment.rows) step(two, at + 1);
  }
  save(segment.state_out);
}

constexpr int kColumns = 32;  // Value columns of a block, below.

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

// A warp for a row and head.
__global__ void gated_norm_kernel(GatedNorm p) {
  const int lane = threadIdx.x % 32;
  const int64_t unit = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32, at = unit * p.DV;
  if (unit >= p.T * p.HV) return;
  float squares = 0;
  for (int64_t i = lane; i < p.DV; i += 32) squares = fmaf(p.o[at + i], p.o[at + i], squares);
  const float scale = 1.0f / sqrtf(sum_warp(squares) / static_cast<float>(p.DV) + p.epsilon);
  for (int64_t i = lane; i < p.DV; i += 32) {
    const float z = p.z[at + i], gate = p.gate == Gate::sigmoid ? sigmoid(z) : silu(z);
    p.y[at + i] = p.o[at + i] * scale * p.weight[i] * gate;
  }
}

}  // namespace

void conv_silu(Stream& stream, const ConvSilu& p) {
  const unsigned across = blocks_for(p.C, kThreads);
  const auto rows = static_cast<unsigned>(p.batch.rows);
  if (p.taps == kConvTaps && p.dilation == 1 && rows > 64)
    conv_run_kernel<<<dim3(blocks_for(rows, kConvRows), across), kThreads, 0, on(stream)>>>(p);
  else conv_kernel<<<dim3(rows, across), kThreads, 0, on(stream)>>>(p);
  conv_state_kernel<<<dim3(static_cast<unsigned>(p.batch.segments_count), across), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

// The chunked form of prefill agrees with the definition where its source is emulated, and has not run on a device:
// until it has passed the tests there, rows are walked.
constexpr bool kChunks = false;

void gdn(Stream& stream, const Gdn& p) {
  if (kChunks && !p.batch.decode && fits_chunks(p)) return gdn_chunks(stream, p);
  gdn_lengths_kernel<<<blocks_for(p.batch.rows * p.HK * 32, kThreads), kThreads, 0, on(stream)>>>(p);
  gdn_gates_kernel<<<blocks_for(p.batch.rows * p.HV, kThreads), kThreads, 0, on(stream)>>>(p);
  const auto segments = static_cast<unsigned>(p.batch.segments_count);
  if (p.DK == 128 && p.DV % kWalkColumns == 0) {
    const dim3 grid(segments, blocks_for(p.HV, 1), blocks_for(p.DV, kWalkColumns));
    gdn_walk_kernel<<<grid, kWalkThreads, 0, on(stream)>>>(p, 0);
  } else {
    const dim3 grid(segments, blocks_for(p.HV, 1), blocks_for(p.DV, kColumns));
    const auto bytes = static_cast<size_t>(p.DK * (2 + kColumns) * 4);
    WP_ASSERT(bytes <= 48 << 10);  // DK up to 361.
    gdn_kernel<<<grid, kColumns, bytes, on(stream)>>>(p);
  }
  check_launch();
}

void gated_norm(Stream& stream, const GatedNorm& p) {
  gated_norm_kernel<<<blocks_for(p.T * p.HV * 32, kThreads), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
