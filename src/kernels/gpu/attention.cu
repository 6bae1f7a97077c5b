// Attention over pages, dense and QSA. A row of a head walks its own list of tokens: scores, their maximum, their sum,
// then the values in ascending order; nothing is shared between rows. Bound by f32 arithmetic and the bytes of pages.
#include <cmath>

#include "kernels/gpu/device_math.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/token_list.h"

namespace wp::kernels::gpu {
namespace {

// out(d, value) for d < D: (1 + weight) * RMS norm of x(d), its rotary pairs turned by the position's angles.
template <class X, class Out>
__device__ void norm_and_rotate(int64_t D, X x, const float* weight, float epsilon, const Rope& rope, int64_t position,
                                float* shared, Out out) {
  const float scale = inverse_rms(D, epsilon, shared, x);
  const auto normed = [&](int64_t d) { return x(d) * scale * (1.0f + weight[d]); };
  const int64_t half = rope.rotary / 2;
  for (int64_t d = threadIdx.x; d < D; d += kThreads) {
    if (d >= 2 * half) {
      out(d, normed(d));
      continue;
    }
    const int64_t i = d < half ? d : d - half;
    const float cosine = rope.cosine[position * half + i], sine = rope.sine[position * half + i];
    const float low = normed(i), high = normed(i + half);
    out(d, d < half ? fmaf(low, cosine, -(high * sine)) : fmaf(high, cosine, low * sine));
  }
}

// Grid: rows, query heads then key heads.
__global__ void attention_inputs_kernel(AttentionInputs p) {
  __shared__ float shared[kThreads];
  const int64_t t = blockIdx.x, position = p.batch.row_position[t], D = p.D;
  if (blockIdx.y < p.HQ) {
    const int64_t head = t * p.HQ + blockIdx.y;
    const float* from = p.q_gate + head * 2 * D;
    norm_and_rotate(
        D, [&](int64_t d) { return from[d]; }, p.q_norm, p.epsilon, p.rope, position, shared,
        [&](int64_t d, float value) { p.q[head * D + d] = value; });
    return;
  }
  const int64_t h = blockIdx.y - p.HQ, at = (t * p.HK + h) * D, token = position % kPageTokens;
  const SegmentView segment = p.batch.segments[p.batch.row_segment[t]];
  float* page = page_of(p.batch, p.pages, segment, position);
  norm_and_rotate(
      D, [&](int64_t d) { return p.k[at + d]; }, p.k_norm, p.epsilon, p.rope, position, shared,
      [&](int64_t d, float value) { page[p.pages.layout.k_at(h, token, d)] = value; });
  for (int64_t d = threadIdx.x; d < D; d += kThreads) page[p.pages.layout.v_at(h, token, d)] = p.v[at + d];
}

// Grid: rows, index heads.
__global__ void index_queries_kernel(IndexKeys p) {
  __shared__ float shared[kThreads];
  const int64_t t = blockIdx.x, h = blockIdx.y;
  const float* from = p.z + (t * (p.HI + 1) + h) * p.DI;
  norm_and_rotate(
      p.DI, [&](int64_t d) { return from[d]; }, p.q_norm, p.epsilon, p.rope, p.batch.row_position[t], shared,
      [&](int64_t d, float value) { p.queries[(t * p.HI + h) * p.DI + d] = value; });
}

// The raw index key of a position at or behind `first`, where the segment's first block begins.
__device__ const float* raw_key(const IndexKeys& p, const SegmentView& segment, int64_t first, int64_t position) {
  if (position >= segment.position)
    return p.z + ((segment.row_begin + position - segment.position) * (p.HI + 1) + p.HI) * p.DI;
  return reinterpret_cast<const float*>(segment.state_in + p.state_offset) + (position - first) * p.DI;
}

// Grid: blocks that a segment of all rows could end, segments.
__global__ void pool_blocks_kernel(IndexKeys p) {
  __shared__ float shared[kThreads];
  const SegmentView segment = p.batch.segments[blockIdx.y];
  const int64_t first = segment.position / kBlockTokens * kBlockTokens, begin = first + blockIdx.x * kBlockTokens;
  if (begin + kBlockTokens > segment.position + segment.rows) return;
  const float* raw[kBlockTokens];
  for (int i = 0; i < kBlockTokens; ++i) raw[i] = raw_key(p, segment, first, begin + i);
  const auto mean = [&](int64_t d) { return (((raw[0][d] + raw[1][d]) + raw[2][d]) + raw[3][d]) * 0.25f; };
  float* page = page_of(p.batch, p.pages, segment, begin);
  const int64_t block = begin % kPageTokens / kBlockTokens;
  norm_and_rotate(p.DI, mean, p.k_norm, p.epsilon, p.rope, begin, shared,
                  [&](int64_t d, float value) { page[p.pages.layout.index_at(block, d)] = value; });
}

// After all blocks are pooled: raw keys of the block that the segment leaves open. Those of a block that began before
// it lie at the same place in both records. Grid: segments.
__global__ void pending_keys_kernel(IndexKeys p) {
  const SegmentView segment = p.batch.segments[blockIdx.x];
  const int64_t first = segment.position / kBlockTokens * kBlockTokens, end = segment.position + segment.rows;
  const int64_t open = end / kBlockTokens * kBlockTokens;
  auto* pending = reinterpret_cast<float*>(segment.state_out + p.state_offset);
  for (int64_t position = open; position < end; ++position) {
    const float* from = raw_key(p, segment, first, position);
    for (int64_t d = threadIdx.x; d < p.DI; d += kThreads) pending[(position - open) * p.DI + d] = from[d];
  }
}

// The part of the workspace that belongs to this block of threads.
template <class T>
__device__ T* own_part(const Workspace& workspace) {
  return reinterpret_cast<T*>(workspace.data + blockIdx.x * workspace.bytes_per_thread);
}

__device__ void attend(const Attention& p, int64_t t, int64_t query_head, float* weights, float* shared) {
  const SegmentView segment = p.batch.segments[p.batch.row_segment[t]];
  const PageLayout& layout = p.pages.layout;
  const int64_t head = query_head / (p.HQ / p.HK), D = p.D, at = t * p.HQ + query_head;
  const TokenList tokens = tokens_of(p, t);
  const float* q = p.q + at * D;
  float highest = -INFINITY;
  for (int64_t i = threadIdx.x; i < tokens.count; i += kThreads) {
    const int64_t position = tokens[i];
    const float* k = page_of(p.batch, p.pages, segment, position) + layout.k_at(head, position % kPageTokens, 0);
    float score = 0;
    for (int64_t d = 0; d < D; ++d) score = fmaf(q[d], k[d * kBlockTokens], score);
    weights[i] = score * p.scale;
    highest = fmaxf(highest, weights[i]);
  }
  highest = join_block(highest, shared, [](float a, float b) { return fmaxf(a, b); });
  const float total = sum_of(tokens.count, shared, [&](int64_t i) { return weights[i] = expf(weights[i] - highest); });
  const float* gate = p.q_gate + at * 2 * D + D;
  for (int64_t d = threadIdx.x; d < D; d += kThreads) {
    float sum = 0;
#pragma unroll 4
    for (int64_t i = 0; i < tokens.count; ++i) {
      const int64_t position = tokens[i];
      const float* v = page_of(p.batch, p.pages, segment, position) + layout.v_at(head, position % kPageTokens, d);
      sum = fmaf(weights[i], *v, sum);
    }
    p.o[at * D + d] = sum / total * sigmoid(gate[d]);
  }
  __syncthreads();
}

// Each block of threads takes (row, head) in turn and keeps its weights in its part of the workspace.
__global__ void attention_kernel(Attention p) {
  __shared__ float shared[kThreads];
  auto* weights = own_part<float>(p.workspace);
  const int64_t units = p.batch.rows * p.HQ;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) attend(p, unit / p.HQ, unit % p.HQ, weights, shared);
}

unsigned at_most(int64_t units, const Workspace& workspace) {
  WP_ASSERT(workspace.threads > 0);
  return static_cast<unsigned>(units < workspace.threads ? units : workspace.threads);
}

}  // namespace

void attention_inputs(Stream& stream, const AttentionInputs& p) {
  attention_inputs_kernel<<<dim3(static_cast<unsigned>(p.batch.rows), blocks_for(p.HQ + p.HK, 1)), kThreads, 0,
                            on(stream)>>>(p);
  check_launch();
}

void index_keys(Stream& stream, const IndexKeys& p) {
  const auto rows = static_cast<unsigned>(p.batch.rows), segments = static_cast<unsigned>(p.batch.segments_count);
  index_queries_kernel<<<dim3(rows, blocks_for(p.HI, 1)), kThreads, 0, on(stream)>>>(p);
  pool_blocks_kernel<<<dim3(rows / kBlockTokens + 1, segments), kThreads, 0, on(stream)>>>(p);
  pending_keys_kernel<<<segments, kThreads, 0, on(stream)>>>(p);
  check_launch();
}

void attention(Stream& stream, const Attention& p) {
  if (attention_in_tiles(stream, p)) return;
  attention_kernel<<<at_most(p.batch.rows * p.HQ, p.workspace), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
