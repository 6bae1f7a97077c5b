// Where the kernels of a layer find the keys of a token: pointers into page records. Any thread.
#pragma once

#include "kernels/attention.h"

namespace wp::kernels::cpu {

// The layer's part of the page that holds `position` of a segment's sequence.
inline float* page_of(const BatchView& batch, const LayerPages& pages, const SegmentView& segment, int64_t position) {
  std::byte* record = batch.pages + segment.pages[position / kPageTokens] * batch.page_bytes;
  return reinterpret_cast<float*>(record + pages.page_offset);
}

constexpr int64_t kHeadMax = 1024;  // Widest head.

}  // namespace wp::kernels::cpu
