// Attention over pages, dense and QSA. A row of a head walks its own list of tokens: scores, their maximum, their sum,
// then the values in ascending order; nothing is shared between rows. Bound by f32 arithmetic and the bytes of pages.
#include <cmath>

#include "kernels/gpu/device_math.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/tensor_cores.h"

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

// The same on tensor cores, a block of threads for a row and a key head, so that the query heads which share the key
// head read its pages once. 64 tokens of the row's list at a time: scores, the running maximum and sum, the values; the
// sums so far are always scaled, never only sometimes. Every f32 is split in two bf16 whose three products are added:
// what is lost is below 2^-16. Nothing is shared between rows.
constexpr int kHeads = 16, kTile = 64, kWarps = kThreads / 32;

struct Split {
  uint32_t high, low;  // Each two bf16.
};
__device__ inline Split split(float a, float b) {
  const uint32_t high = bf16_pair(a, b);
  return {high, bf16_pair(a - __uint_as_float(high << 16), b - __uint_as_float(high & 0xFFFF0000))};
}
// Four neighbours of k, as the thread of a group of four that loads them has them.
struct SplitFour {
  Split first, second;
};
__device__ inline SplitFour split(const float (&v)[4]) { return {split(v[0], v[1]), split(v[2], v[3])}; }

// c += a b, a of rows `group` and `group` + 8.
__device__ inline void multiply_add_split(float (&c)[4], const SplitFour& low_row, const SplitFour& high_row,
                                          const SplitFour& b) {
  const uint32_t a_high[4] = {low_row.first.high, high_row.first.high, low_row.second.high, high_row.second.high};
  const uint32_t a_low[4] = {low_row.first.low, high_row.first.low, low_row.second.low, high_row.second.low};
  multiply_add(c, a_low, {b.first.high, b.second.high});
  multiply_add(c, a_high, {b.first.low, b.second.low});
  multiply_add(c, a_high, {b.first.high, b.second.high});
}

// Within 16 values of k, thread `quad` of four has quad, quad + 4, quad + 8 and quad + 12: so do these.
template <int kSteps>
struct SplitRows {
  SplitFour at[kHeads][kSteps][4];
};

struct RunningSoftmax {
  float scores[kHeads][kTile];
  SplitRows<kTile / 16> weights;
  float maximum[kHeads], sum[kHeads], correction[kHeads];
};

// Two heads of a warp: the tile's weights, the new maximum and sum, and what the values so far are multiplied by.
__device__ inline void weigh_tile(RunningSoftmax& s, int heads) {
  const int lane = threadIdx.x % 32;
  for (int head = threadIdx.x / 32; head < heads; head += kWarps) {
    const float a = s.scores[head][lane], b = s.scores[head][lane + 32];
    float highest = fmaxf(a, b);
    for (int far = 16; far > 0; far /= 2) highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFF, highest, far));
    const float before = s.maximum[head], maximum = fmaxf(before, highest);
    const float p = expf(a - maximum), q = expf(b - maximum);
    float sum = p + q;
    for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, far);
    __syncwarp();
    s.scores[head][lane] = p;
    s.scores[head][lane + 32] = q;
    __syncwarp();
    if (lane < 16) {
      const float* from = &s.scores[head][lane / 4 * 16 + lane % 4];
      s.weights.at[head][lane / 4][lane % 4] = split({from[0], from[4], from[8], from[12]});
    }
    if (lane == 0) {
      s.correction[head] = expf(before - maximum);
      s.sum[head] = s.sum[head] * s.correction[head] + sum;
      s.maximum[head] = maximum;
    }
  }
}

// The queries split, nothing seen yet. `first`: the row's first query head that uses this key head.
template <int kSteps>
__device__ inline void begin_row(const Attention& p, int64_t first, int heads, int steps, SplitRows<kSteps>& q,
                                 RunningSoftmax& softmax) {
  for (int at = threadIdx.x; at < kHeads * steps * 4; at += kThreads) {
    const int head = at / (steps * 4), step = at / 4 % steps;
    const float* from = p.q + (first + head) * p.D + step * 16 + at % 4;
    q.at[head][step][at % 4] = head < heads ? split({from[0], from[4], from[8], from[12]}) : SplitFour{};
  }
  for (int at = threadIdx.x; at < kHeads * kTile / 4; at += kThreads) (&softmax.weights.at[0][0][0])[at] = SplitFour{};
  if (threadIdx.x < kHeads) {
    softmax.maximum[threadIdx.x] = -INFINITY;
    softmax.sum[threadIdx.x] = 0;
    softmax.correction[threadIdx.x] = 0;
  }
}

// D a multiple of 16, at most 16 kSteps. Grid: rows times key heads. Shared: SplitRows<kSteps> of the queries.
template <int kSteps>
__global__ void __launch_bounds__(kThreads) attention_tensor_kernel(Attention p) {
  extern __shared__ uint4 dynamic[];
  auto& q = *reinterpret_cast<SplitRows<kSteps>*>(dynamic);
  __shared__ RunningSoftmax softmax;
  __shared__ const float* values[2][kTile];
  constexpr int kColumns = kSteps * 2 / kWarps > 0 ? kSteps * 2 / kWarps : 1;  // Groups of 8 of D for a warp.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
  const int64_t t = blockIdx.x / p.HK, key_head = blockIdx.x % p.HK, D = p.D;
  const int heads = static_cast<int>(p.HQ / p.HK), steps = static_cast<int>(D / 16);
  const int64_t first = t * p.HQ + key_head * heads;
  const PageLayout layout = p.pages.layout;
  const SegmentView segment = p.batch.segments[p.batch.row_segment[t]];
  const TokenList tokens = tokens_of(p, t);
  begin_row(p, first, heads, steps, q, softmax);
  float sums[kColumns][4] = {};
  __syncthreads();
  int parity = 0;
  for (int64_t begin = 0; begin < tokens.count; begin += kTile, parity ^= 1) {
    // A token beyond the list is the last one again, with a score that gives it no weight.
    const int64_t i = begin + warp * 8 + group, position = tokens[i < tokens.count ? i : tokens.count - 1];
    const float* page = page_of(p.batch, p.pages, segment, position);
    const float* k = page + layout.k_at(key_head, position % kPageTokens, 0) + quad * kBlockTokens;
    if (quad == 0) values[parity][warp * 8 + group] = page + layout.v_at(key_head, position % kPageTokens, 0);
    float scores[4] = {};
#pragma unroll 4
    for (int step = 0; step < steps; ++step) {
      const float* at = k + step * 16 * kBlockTokens;
      const SplitFour b =
          split({__ldg(at), __ldg(at + 4 * kBlockTokens), __ldg(at + 8 * kBlockTokens), __ldg(at + 12 * kBlockTokens)});
      multiply_add_split(scores, q.at[group][step][quad], q.at[group + 8][step][quad], b);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int token = warp * 8 + quad * 2 + j % 2;
      softmax.scores[group + j / 2 * 8][token] = begin + token < tokens.count ? scores[j] * p.scale : -INFINITY;
    }
    __syncthreads();
    weigh_tile(softmax, heads);
    __syncthreads();
    const float low_correction = softmax.correction[group], high_correction = softmax.correction[group + 8];
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      for (int j = 0; j < 4; ++j) sums[c][j] *= j < 2 ? low_correction : high_correction;
#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {
      const SplitFour& low = softmax.weights.at[group][step][quad];
      const SplitFour& high = softmax.weights.at[group + 8][step][quad];
      const float* v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] = values[parity][step * 16 + j * 4 + quad] + group;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int d = (warp + c * kWarps) * 8;
        if (d >= D) break;
        multiply_add_split(sums[c], low, high,
                           split({__ldg(v[0] + d), __ldg(v[1] + d), __ldg(v[2] + d), __ldg(v[3] + d)}));
      }
    }
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int head = group + j / 2 * 8, d = (warp + c * kWarps) * 8 + quad * 2 + j % 2;
      if (head >= heads || d >= D) continue;
      const float gate = p.q_gate[(first + head) * 2 * D + D + d];
      p.o[(first + head) * D + d] = sums[c][j] / softmax.sum[head] * sigmoid(gate);
    }
}

template <int kSteps>
void launch_on_tensor_cores(Stream& stream, const Attention& p) {
  constexpr int bytes = sizeof(SplitRows<kSteps>);
  // More than the 48 KB that need no asking, static memory included.
  WP_ASSERT(cudaFuncSetAttribute(attention_tensor_kernel<kSteps>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) ==
            cudaSuccess);
  attention_tensor_kernel<kSteps><<<blocks_for(p.batch.rows * p.HK, 1), kThreads, bytes, on(stream)>>>(p);
}

bool fits_tensor_cores(const Attention& p) { return p.D % 16 == 0 && p.D <= 256 && p.HQ / p.HK <= kHeads; }

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
  if (fits_tensor_cores(p)) {
    if (p.D <= 64) launch_on_tensor_cores<4>(stream, p);
    else if (p.D <= 128) launch_on_tensor_cores<8>(stream, p);
    else launch_on_tensor_cores<16>(stream, p);
    return check_launch();
  }
  attention_kernel<<<at_most(p.batch.rows * p.HQ, p.workspace), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
