// Which tokens a row attends to, and where their keys and values lie.
#pragma once

#include "kernels/attention.h"
#include "kernels/gpu/device_math.h"

namespace wp::kernels::gpu {

// The layer's part of the page that holds `position` of a segment's sequence.
__device__ inline float* page_of(const BatchView& batch, const LayerPages& pages, const SegmentView& segment,
                                 int64_t position) {
  std::byte* record = batch.pages + segment.pages[position / kPageTokens] * batch.page_bytes;
  return reinterpret_cast<float*>(record + pages.page_offset);
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

__device__ inline TokenList tokens_of(const Attention& p, int64_t t) {
  const int64_t seen = p.batch.row_position[t] + 1, blocks = seen / kBlockTokens;
  if (p.budget == 0 || blocks <= p.budget) return {nullptr, 0, 0, seen};
  const int64_t chosen = p.budget * kBlockTokens, tail = blocks * kBlockTokens;
  return {p.selected + t * p.budget, chosen, tail, chosen + seen - tail};
}

// 64 tokens at a time on tensor cores (attention_tiles.cu); false where the shape of the heads is not for them: then
// nothing was launched.
bool attention_in_tiles(Stream& stream, const Attention& p);

}  // namespace wp::kernels::gpu
