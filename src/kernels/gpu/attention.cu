// Attention over pages, dense and QSA. A row of a head walks its own list of tokens: scores, their maximum, their sum,
// then the values in ascending order; nothing is shared between rows. Bound by f32 arithmetic and the bytes of pages.
#include <cmath>

#include "kernels/gpu/device_math.h"
#include "kernels/gpu/gpu.h"

namespace wp::kernels::gpu {
namespace {

// The layer's part of the page that holds `position` of a segment's sequence.
__device__ float* page_of(const BatchView& batch, const LayerPages& pages, const SegmentView& segment,
                          int64_t position) {
  std::byte* record = batch.pages + segment.pages[position / kPageTokens] * batch.page_bytes;
  return reinterpret_cast<float*>(record + pages.page_offset);
}

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

// What all threads of a block count together while they select.
struct Selection {
  uint32_t counts[256];
  uint32_t prefix, left;  // Bits of the cut found so far; how many of the budget lie at or below it.
  int32_t above[kThreads], equal[kThreads];
};

// The bits of a score order as the score does: none is negative, and -0 was made 0.
__device__ void score_blocks(const SelectBlocks& p, int64_t t, int64_t blocks, uint32_t* scores) {
  const SegmentView segment = p.batch.segments[p.batch.row_segment[t]];
  const float* queries = p.queries + t * p.HI * p.DI;
  const float root = sqrtf(static_cast<float>(p.DI));
  for (int64_t b = threadIdx.x; b < blocks; b += kThreads) {
    const float* key =
        page_of(p.batch, p.pages, segment, b * kBlockTokens) + p.pages.layout.index_at(b % kPageBlocks, 0);
    float score = 0;
    for (int64_t h = 0; h < p.HI; ++h) {
      float dot = 0;
      for (int64_t d = 0; d < p.DI; ++d) dot = fmaf(queries[h * p.DI + d], key[d * kPageBlocks], dot);
      score += dot > 0 ? dot : 0.0f;
    }
    scores[b] = __float_as_uint(score / root);
  }
}

// The score of the budget's last block, eight bits at a time; `left` becomes how many blocks of just that score fit.
__device__ uint32_t find_cut(const uint32_t* scores, int64_t blocks, int64_t budget, Selection& s) {
  if (threadIdx.x == 0) {
    s.prefix = 0;
    s.left = static_cast<uint32_t>(budget);
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    s.counts[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t fixed = shift == 24 ? 0 : ~0u << (shift + 8);
    for (int64_t b = threadIdx.x; b < blocks; b += kThreads)
      if ((scores[b] & fixed) == s.prefix) atomicAdd(&s.counts[scores[b] >> shift & 255], 1u);
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255;
      while (s.counts[digit] < s.left) s.left -= s.counts[digit--];
      s.prefix |= static_cast<uint32_t>(digit) << shift;
    }
    __syncthreads();
  }
  return s.prefix;
}

// Thread i looks at the i-th run of blocks, so that what it writes follows what the threads before it write.
__device__ void list_blocks(const uint32_t* scores, int64_t blocks, uint32_t cut, Selection& s, int32_t* selected) {
  const int64_t run = (blocks + kThreads - 1) / kThreads, begin = threadIdx.x * run;
  const int64_t end = begin + run < blocks ? begin + run : blocks;
  int32_t above = 0, equal = 0;
  for (int64_t b = begin; b < end; ++b) {
    above += scores[b] > cut;
    equal += scores[b] == cut;
  }
  s.above[threadIdx.x] = above;
  s.equal[threadIdx.x] = equal;
  __syncthreads();
  int32_t above_before = 0, equal_before = 0;
  for (int i = 0; i < static_cast<int>(threadIdx.x); ++i) {
    above_before += s.above[i];
    equal_before += s.equal[i];
  }
  const auto left = static_cast<int32_t>(s.left);
  int32_t at = above_before + (equal_before < left ? equal_before : left);
  for (int64_t b = begin; b < end; ++b) {
    const bool tie = scores[b] == cut;
    if (scores[b] > cut || (tie && equal_before < left)) selected[at++] = static_cast<int32_t>(b);
    equal_before += tie;
  }
}

// Each block of threads takes rows in turn and keeps their scores in its part of the workspace.
__global__ void select_blocks_kernel(SelectBlocks p) {
  __shared__ Selection selection;
  auto* scores = own_part<uint32_t>(p.workspace);
  for (int64_t t = blockIdx.x; t < p.batch.rows; t += gridDim.x) {
    const int64_t blocks = (p.batch.row_position[t] + 1) / kBlockTokens;
    if (blocks <= p.budget) continue;
    score_blocks(p, t, blocks, scores);
    __syncthreads();
    const uint32_t cut = find_cut(scores, blocks, p.budget, selection);
    list_blocks(scores, blocks, cut, selection, p.selected + t * p.budget);
    __syncthreads();
  }
}

// The tokens of a row: all it sees, or those of its blocks and of the open one.
struct TokenList {
  const int32_t* selected;  // Null: all.
  int64_t chosen, tail;     // Tokens in blocks; where the open block begins.
  int64_t count;
  __device__ int64_t operator[](int64_t i) const {
    if (!selected) return i;
    return i < chosen ? int64_t{selected[i / kBlockTokens]} * kBlockTokens + i % kBlockTokens : tail + i - chosen;
  }
};

__device__ TokenList tokens_of(const Attention& p, int64_t t) {
  const int64_t seen = p.batch.row_position[t] + 1, blocks = seen / kBlockTokens;
  if (p.budget == 0 || blocks <= p.budget) return {nullptr, 0, 0, seen};
  const int64_t chosen = p.budget * kBlockTokens, tail = blocks * kBlockTokens;
  return {p.selected + t * p.budget, chosen, tail, chosen + seen - tail};
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

void select_blocks(Stream& stream, const SelectBlocks& p) {
  select_blocks_kernel<<<at_most(p.batch.rows, p.workspace), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

void attention(Stream& stream, const Attention& p) {
  attention_kernel<<<at_most(p.batch.rows * p.HQ, p.workspace), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
