// The n-gram embedding: hashes of the last token ids, and the gate behind the projections.
#include <cmath>

#include "kernels/gpu/device_math.h"
#include "kernels/gpu/gpu.h"

namespace wp::kernels::gpu {
namespace {

constexpr int64_t kOrderMax = 8, kHeadsMax = 448;

// The hash's constants lie in host memory: they travel with the launch.
struct Hash {
  int64_t multipliers[kOrderMax], moduli[kHeadsMax], offsets[kHeadsMax];
};

// The token id of a row of the segment; negative: before it.
__device__ int32_t id_of(const NgramRows& p, const SegmentView& segment, int64_t row) {
  if (row >= 0) return p.tokens[segment.row_begin + row];
  if (!segment.state_in) return p.end_of_text;
  return reinterpret_cast<const int32_t*>(segment.state_in + p.state_offset)[p.order - 1 + row];
}

// One thread for each row.
__global__ void ngram_rows_kernel(NgramRows p, const __grid_constant__ Hash hash) {
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (t >= p.batch.rows) return;
  const SegmentView segment = p.batch.segments[p.batch.row_segment[t]];
  const int64_t row = t - segment.row_begin;
  int64_t* rows = p.rows + t * (p.order - 1) * p.heads;
  uint64_t mix = static_cast<uint64_t>(id_of(p, segment, row)) * static_cast<uint64_t>(hash.multipliers[0]);
  bool ended = false;
  for (int64_t back = 1; back < p.order; ++back) {
    // An end of text behind the current token hides all that is older.
    const int32_t id = id_of(p, segment, row - back);
    ended = ended || id == p.end_of_text;
    const int64_t token = ended ? p.end_of_text : id;
    mix ^= static_cast<uint64_t>(token) * static_cast<uint64_t>(hash.multipliers[back]);
    for (int64_t h = (back - 1) * p.heads; h < back * p.heads; ++h)
      rows[h] = static_cast<int64_t>(mix % static_cast<uint64_t>(hash.moduli[h])) + hash.offsets[h];
  }
}

// After all rows. Ascending, as state_out may be state_in. One thread for each segment.
__global__ void ngram_state_kernel(NgramRows p) {
  const SegmentView segment = p.batch.segments[blockIdx.x];
  const int64_t history = p.order - 1;
  const auto save = [&](std::byte* record, int64_t rows) {
    auto* state = reinterpret_cast<int32_t*>(record + p.state_offset);
    for (int64_t i = 0; i < history; ++i) state[i] = id_of(p, segment, rows - history + i);
  };
  for (int32_t i = 0; i < segment.captures_count; ++i) save(segment.captures[i].anchor, segment.captures[i].rows);
  save(segment.state_out, segment.rows);
}

// Grid: rows times streams.
__global__ void ngram_gate_kernel(NgramGate p) {
  __shared__ float shared[kThreads];
  const int64_t t = blockIdx.x / p.S, s = blockIdx.x % p.S, at = blockIdx.x * p.M;
  const float key_scale = inverse_rms(p.M, p.epsilon, shared, [&](int64_t m) { return p.key[at + m]; });
  const float query_scale = inverse_rms(p.M, p.epsilon, shared, [&](int64_t m) { return p.H[at + m]; });
  const float dot = sum_of(p.M, shared, [&](int64_t m) {
    const float key = p.key[at + m] * key_scale * (1.0f + p.norm_key[s * p.M + m]);
    return key * (p.H[at + m] * query_scale * (1.0f + p.norm_query[s * p.M + m]));
  });
  const float u = dot / sqrtf(static_cast<float>(p.M)), root = sqrtf(fmaxf(fabsf(u), 1e-6f));
  const float gate = sigmoid(u > 0 ? root : u < 0 ? -root : 0.0f);
  const auto gated = [&](int64_t m) { return gate * p.value[t * p.M + m]; };
  const float scale = inverse_rms(p.M, p.epsilon, shared, gated);
  for (int64_t m = threadIdx.x; m < p.M; m += kThreads) {
    p.gated[at + m] = gated(m);
    p.normed[at + m] = gated(m) * scale * (1.0f + p.norm_conv[s * p.M + m]);
  }
}

}  // namespace

void ngram_rows(Stream& stream, const NgramRows& p) {
  const int64_t heads = (p.order - 1) * p.heads;
  WP_ASSERT(p.order <= kOrderMax && heads <= kHeadsMax);
  Hash hash;
  for (int64_t i = 0; i < p.order; ++i) hash.multipliers[i] = p.multipliers[i];
  for (int64_t h = 0; h < heads; ++h) {
    hash.moduli[h] = p.moduli[h];
    hash.offsets[h] = p.offsets[h];
  }
  ngram_rows_kernel<<<blocks_for(p.batch.rows, kThreads), kThreads, 0, on(stream)>>>(p, hash);
  ngram_state_kernel<<<static_cast<unsigned>(p.batch.segments_count), 1, 0, on(stream)>>>(p);
  check_launch();
}

void ngram_gate(Stream& stream, const NgramGate& p) {
  ngram_gate_kernel<<<blocks_for(p.T * p.S, 1), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
