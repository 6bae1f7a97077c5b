// What attention reads: norm and rotation of queries and keys, keys and values into pages, pooled index keys.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pages.h"
#include "kernels/cpu/regions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_inputs.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE void rotated(const float* x, int64_t width, const float* weight, float epsilon, const Rope& rope,
                        int64_t position, float* y) {
  const int64_t half = rope.rotary / 2;
  norm_and_rotate(x, width, weight, epsilon, rope.cosine + position * half, rope.sine + position * half, half, y);
}

void attention_row(const AttentionInputs& p, int64_t t) {
  const PageLayout& layout = p.pages.layout;
  const SegmentView& segment = p.batch.segments[p.batch.row_segment[t]];
  const int64_t position = p.batch.row_position[t], token = position % kPageTokens;
  for (int64_t h = 0; h < p.HQ; ++h)
    rotated(p.q_gate + (t * p.HQ + h) * 2 * p.D, p.D, p.q_norm, p.epsilon, p.rope, position,
            p.q + (t * p.HQ + h) * p.D);
  float* page = page_of(p.batch, p.pages, segment, position);
  HWY_ALIGN float key[kHeadMax];
  for (int64_t h = 0; h < p.HK; ++h) {
    const int64_t at = (t * p.HK + h) * p.D;
    rotated(p.k + at, p.D, p.k_norm, p.epsilon, p.rope, position, key);
    float* to = page + layout.k_at(h, token, 0);
    for (int64_t d = 0; d < p.D; ++d) to[d * kBlockTokens] = key[d];
    std::memcpy(page + layout.v_at(h, token, 0), p.v + at, static_cast<size_t>(p.D) * sizeof(float));
  }
}

void attention_inputs(Stream& stream, const AttentionInputs& p) {
  WP_ASSERT(p.D <= kHeadMax);
  for_ranges(stream, p.batch.rows, 16, p.batch.rows * (p.HQ + p.HK) * p.D / 2,
             [&](int64_t begin, int64_t end, int) HWY_ATTR {
               for (int64_t t = begin; t < end; ++t) attention_row(p, t);
             });
}

// The pooled key of the block at `begin` from its four raw keys, into its page.
void pool_block(const IndexKeys& p, const SegmentView& segment, int64_t begin, const float* const (&raw)[4]) {
  HWY_ALIGN float mean[kHeadMax], pooled[kHeadMax];
  for (int64_t d = 0; d < p.DI; d += kLanes) {
    const int64_t rest = p.DI - d;
    V16 sums = load_some(raw[0] + d, rest);
    for (int i = 1; i < kBlockTokens; ++i) sums = add(sums, load_some(raw[i] + d, rest));
    store_some(mul(sums, set(0.25f)), mean + d, rest);
  }
  rotated(mean, p.DI, p.k_norm, p.epsilon, p.rope, begin, pooled);
  float* to =
      page_of(p.batch, p.pages, segment, begin) + p.pages.layout.index_at(begin % kPageTokens / kBlockTokens, 0);
  for (int64_t d = 0; d < p.DI; ++d) to[d * kPageBlocks] = pooled[d];
}

// Blocks that end in the segment, and the raw keys of the one that it leaves open.
void pool_segment(const IndexKeys& p, const SegmentView& segment) {
  const int64_t end = segment.position + segment.rows, first = segment.position / kBlockTokens * kBlockTokens;
  const auto raw = [&](int64_t position) HWY_ATTR -> const float* {
    if (position >= segment.position)
      return p.z + ((segment.row_begin + position - segment.position) * (p.HI + 1) + p.HI) * p.DI;
    WP_ASSERT(segment.state_in);
    return reinterpret_cast<const float*>(segment.state_in + p.state_offset) + (position - first) * p.DI;
  };
  int64_t begin = first;
  for (; begin + kBlockTokens <= end; begin += kBlockTokens)
    pool_block(p, segment, begin, {raw(begin), raw(begin + 1), raw(begin + 2), raw(begin + 3)});
  // Where the open block began before the segment, its early keys lie in state_out already or come over.
  auto* pending = reinterpret_cast<float*>(segment.state_out + p.state_offset);
  for (int64_t position = begin; position < end; ++position)
    std::memmove(pending + (position - begin) * p.DI, raw(position), static_cast<size_t>(p.DI) * sizeof(float));
}

void index_keys(Stream& stream, const IndexKeys& p) {
  WP_ASSERT(p.DI <= kHeadMax);
  for_ranges(stream, p.batch.rows, 32, p.batch.rows * p.HI * p.DI / 2, [&](int64_t begin, int64_t end, int) HWY_ATTR {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < p.HI; ++h)
        rotated(p.z + (t * (p.HI + 1) + h) * p.DI, p.DI, p.q_norm, p.epsilon, p.rope, p.batch.row_position[t],
                p.queries + (t * p.HI + h) * p.DI);
  });
  for_ranges(stream, p.batch.segments_count, 1, p.batch.rows * p.DI / 4,
             [&](int64_t begin, int64_t, int) HWY_ATTR { pool_segment(p, p.batch.segments[begin]); });
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
HWY_EXPORT(attention_inputs);
HWY_EXPORT(index_keys);
void attention_inputs(Stream& stream, const AttentionInputs& p) { HWY_DYNAMIC_DISPATCH(attention_inputs)(stream, p); }
void index_keys(Stream& stream, const IndexKeys& p) { HWY_DYNAMIC_DISPATCH(index_keys)(stream, p); }
}  // namespace wp::kernels::cpu
#endif
