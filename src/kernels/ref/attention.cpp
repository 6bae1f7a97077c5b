#include <algorithm>

#include "core/assert.h"
#include "kernels/ref/decode.h"
#include "kernels/ref/ref.h"

namespace wp::kernels::ref {
namespace {

constexpr int64_t kHeadMax = 1024;  // Widest head.

// The layer's part of the page that holds `position` of a segment's sequence.
float* page_of(const BatchView& batch, const LayerPages& pages, const SegmentView& segment, int64_t position) {
  std::byte* record = batch.pages + segment.pages[position / kPageTokens] * batch.page_bytes;
  return reinterpret_cast<float*>(record + pages.page_offset);
}

// out = rotate((1 + weight) * RMS norm of x). x may be double or float.
template <class T>
void norm_and_rotate(const T* x, int64_t D, const float* weight, double epsilon, const Rope& rope, int64_t position,
                     double* out) {
  double squares = 0;
  for (int64_t d = 0; d < D; ++d) squares += static_cast<double>(x[d]) * x[d];
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(D) + epsilon);
  for (int64_t d = 0; d < D; ++d) out[d] = x[d] * scale * (1.0 + weight[d]);
  const int64_t half = rope.rotary / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double cosine = rope.cosine[position * half + i], sine = rope.sine[position * half + i];
    const double low = out[i], high = out[i + half];
    out[i] = low * cosine - high * sine;
    out[i + half] = high * cosine + low * sine;
  }
}

void pool_blocks(const IndexKeys& p, const SegmentView& segment) {
  const int64_t DI = p.DI, row_floats = (p.HI + 1) * DI, end = segment.position + segment.rows;
  const int64_t first = segment.position / kBlockTokens * kBlockTokens;
  const auto* pending_in =
      segment.state_in ? reinterpret_cast<const float*>(segment.state_in + p.state_offset) : nullptr;
  auto* pending_out = reinterpret_cast<float*>(segment.state_out + p.state_offset);
  const auto raw = [&](int64_t position) -> const float* {
    if (position >= segment.position)
      return p.z + (segment.row_begin + position - segment.position) * row_floats + p.HI * DI;
    WP_ASSERT(pending_in);
    return pending_in + (position - first) * DI;
  };
  int64_t block_begin = first;
  for (; block_begin + kBlockTokens <= end; block_begin += kBlockTokens) {
    double mean[kHeadMax], pooled[kHeadMax];
    for (int64_t d = 0; d < DI; ++d) {
      double sum = 0;
      for (int64_t i = 0; i < kBlockTokens; ++i) sum += raw(block_begin + i)[d];
      mean[d] = sum / kBlockTokens;
    }
    norm_and_rotate(mean, DI, p.k_norm, p.epsilon, p.rope, block_begin, pooled);
    float* page = page_of(p.batch, p.pages, segment, block_begin);
    const int64_t block = block_begin % kPageTokens / kBlockTokens;
    for (int64_t d = 0; d < DI; ++d) page[p.pages.layout.index_at(block, d)] = static_cast<float>(pooled[d]);
  }
  // Those of the open block. Where it began before the segment, the early ones already lie in state_out or come over.
  for (int64_t position = block_begin; position < end; ++position) {
    float* to = pending_out + (position - block_begin) * DI;
    if (const float* from = raw(position); from != to) std::copy_n(from, DI, to);
  }
}

double block_score(const SelectBlocks& p, const float* queries, const float* page, int64_t block) {
  const float* key = page + p.pages.layout.index_at(block, 0);
  double score = 0;
  for (int64_t h = 0; h < p.HI; ++h) {
    double dot = 0;
    for (int64_t d = 0; d < p.DI; ++d) dot += static_cast<double>(queries[h * p.DI + d]) * key[d * kPageBlocks];
    score += std::max(0.0, dot);
  }
  return score / std::sqrt(static_cast<double>(p.DI));
}

// Sums of one query head, token by token in ascending order.
struct Sums {
  double maximum = -INFINITY, weight = 0;
  double values[kHeadMax] = {};
};

void attend_tokens(const Attention& p, const SegmentView& segment, int64_t head, const float* q, int64_t begin,
                   int64_t end, Sums& sums) {
  const PageLayout& layout = p.pages.layout;
  for (int64_t position = begin; position < end; ++position) {
    const float* page = page_of(p.batch, p.pages, segment, position);
    const int64_t token = position % kPageTokens;
    const float *k = page + layout.k_at(head, token, 0), *v = page + layout.v_at(head, token, 0);
    double score = 0;
    for (int64_t d = 0; d < p.D; ++d) score += static_cast<double>(q[d]) * k[d * kBlockTokens];
    score *= p.scale;
    if (score > sums.maximum) {
      const double shrink = std::exp(sums.maximum - score);
      sums.weight *= shrink;
      for (int64_t d = 0; d < p.D; ++d) sums.values[d] *= shrink;
      sums.maximum = score;
    }
    const double weight = std::exp(score - sums.maximum);
    sums.weight += weight;
    for (int64_t d = 0; d < p.D; ++d) sums.values[d] += weight * v[d];
  }
}

void attend(const Attention& p, int64_t t, int64_t query_head) {
  const SegmentView& segment = p.batch.segments[p.batch.row_segment[t]];
  const int64_t seen = p.batch.row_position[t] + 1, blocks = seen / kBlockTokens;
  const int64_t head = query_head / (p.HQ / p.HK);
  const float* q = p.q + (t * p.HQ + query_head) * p.D;
  Sums sums;
  if (p.budget == 0 || blocks <= p.budget) {
    attend_tokens(p, segment, head, q, 0, seen, sums);
  } else {
    for (int64_t i = 0; i < p.budget; ++i) {
      const int64_t begin = p.selected[t * p.budget + i] * kBlockTokens;
      attend_tokens(p, segment, head, q, begin, begin + kBlockTokens, sums);
    }
    attend_tokens(p, segment, head, q, blocks * kBlockTokens, seen, sums);
  }
  const float* gate = p.q_gate + (t * p.HQ + query_head) * 2 * p.D + p.D;
  float* o = p.o + (t * p.HQ + query_head) * p.D;
  for (int64_t d = 0; d < p.D; ++d) o[d] = static_cast<float>(sums.values[d] / sums.weight * sigmoid(gate[d]));
}

}  // namespace

void attention_inputs(Stream& stream, const AttentionInputs& p) {
  WP_ASSERT(p.D <= kHeadMax);
  const PageLayout& layout = p.pages.layout;
  stream.threads().run(p.batch.rows, [&](int64_t t, int) {
    const SegmentView& segment = p.batch.segments[p.batch.row_segment[t]];
    const int64_t position = p.batch.row_position[t], token = position % kPageTokens;
    double out[kHeadMax];
    for (int64_t h = 0; h < p.HQ; ++h) {
      norm_and_rotate(p.q_gate + (t * p.HQ + h) * 2 * p.D, p.D, p.q_norm, p.epsilon, p.rope, position, out);
      for (int64_t d = 0; d < p.D; ++d) p.q[(t * p.HQ + h) * p.D + d] = static_cast<float>(out[d]);
    }
    float* page = page_of(p.batch, p.pages, segment, position);
    for (int64_t h = 0; h < p.HK; ++h) {
      const int64_t at = (t * p.HK + h) * p.D;
      norm_and_rotate(p.k + at, p.D, p.k_norm, p.epsilon, p.rope, position, out);
      for (int64_t d = 0; d < p.D; ++d) {
        page[layout.k_at(h, token, d)] = static_cast<float>(out[d]);
        page[layout.v_at(h, token, d)] = p.v[at + d];
      }
    }
  });
}

void index_keys(Stream& stream, const IndexKeys& p) {
  WP_ASSERT(p.DI <= kHeadMax);
  stream.threads().run(p.batch.rows, [&](int64_t t, int) {
    double out[kHeadMax];
    for (int64_t h = 0; h < p.HI; ++h) {
      const float* query = p.z + (t * (p.HI + 1) + h) * p.DI;
      norm_and_rotate(query, p.DI, p.q_norm, p.epsilon, p.rope, p.batch.row_position[t], out);
      for (int64_t d = 0; d < p.DI; ++d) p.queries[(t * p.HI + h) * p.DI + d] = static_cast<float>(out[d]);
    }
  });
  stream.threads().run(p.batch.segments_count, [&](int64_t s, int) { pool_blocks(p, p.batch.segments[s]); });
}

void select_blocks(Stream& stream, const SelectBlocks& p) {
  struct Scored {
    float score;
    int32_t block;
  };
  stream.threads().run(p.batch.rows, [&](int64_t t, int thread) {
    const SegmentView& segment = p.batch.segments[p.batch.row_segment[t]];
    const int64_t blocks = (p.batch.row_position[t] + 1) / kBlockTokens;
    if (blocks <= p.budget) return;
    WP_ASSERT(blocks * static_cast<int64_t>(sizeof(Scored)) <= p.workspace.bytes_per_thread);
    auto* scored = p.workspace.of<Scored>(thread);
    for (int64_t b = 0; b < blocks; ++b) {
      const float* page = page_of(p.batch, p.pages, segment, b * kBlockTokens);
      scored[b] = {static_cast<float>(block_score(p, p.queries + t * p.HI * p.DI, page, b % kPageBlocks)),
                   static_cast<int32_t>(b)};
    }
    std::nth_element(scored, scored + p.budget, scored + blocks, [](const Scored& a, const Scored& b) {
      return a.score != b.score ? a.score > b.score : a.block < b.block;
    });
    int32_t* selected = p.selected + t * p.budget;
    for (int64_t i = 0; i < p.budget; ++i) selected[i] = scored[i].block;
    std::sort(selected, selected + p.budget);
  });
}

void attention(Stream& stream, const Attention& p) {
  WP_ASSERT(p.D <= kHeadMax);
  stream.threads().run(p.batch.rows * p.HQ, [&](int64_t i, int) { attend(p, i / p.HQ, i % p.HQ); });
}

}  // namespace wp::kernels::ref
