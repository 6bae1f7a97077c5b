// Arguments of the attention kernels, dense and QSA. Contracts and tolerances: ops/attention.h.
#pragma once

#include <cstdint>

#include "kernels/page_layout.h"
#include "kernels/segments.h"

namespace wp::kernels {

// Rotary tables: cosine and sine [positions, rotary / 2] f32. Pair (i, i + rotary / 2) of a head turns by entry i;
// dims from `rotary` on stay as they are.
struct Rope {
  const float* cosine = nullptr;
  const float* sine = nullptr;
  int64_t rotary = 0;
};

// Where a layer's keys lie: page record of token position p = batch.pages + ids[p / 64] * page_bytes + page_offset.
struct LayerPages {
  PageLayout layout;
  int64_t page_offset = 0;  // Bytes, from the start of a page record to this layer's part.
};

// Per head (1 + weight) RMS norm of q and k, rotation by position; q to its own tensor, k and v into pages.
struct AttentionInputs {
  BatchView batch;
  LayerPages pages;
  Rope rope;
  int64_t HQ = 0, HK = 0, D = 0;
  const float* q_gate = nullptr;  // [T, HQ, 2, D]: a head's query, then its gate
  const float* k = nullptr;       // [T, HK, D]
  const float* v = nullptr;       // [T, HK, D]
  const float* q_norm = nullptr;  // [D]
  const float* k_norm = nullptr;  // [D]
  float epsilon = 0;
  float* q = nullptr;  // [T, HQ, D] out
};

// Index queries: (1 + weight) RMS norm per head, rotation. Raw index keys: for each block of 4 positions that ends in
// the segment the mean of its 4 raw keys (added in order of position, then * 0.25), (1 + weight) RMS norm, rotation at
// the block's first position, into the page. Raw keys of a block that the segment's end leaves open go to state_out:
// pending [3, DI] f32 at state_offset, row i for position 4 * block + i; those a segment begins inside of come from
// state_in. Anchors hold none (the grid is a multiple of 4).
struct IndexKeys {
  BatchView batch;
  LayerPages pages;
  Rope rope;
  int64_t HI = 0, DI = 0;
  const float* z = nullptr;       // [T, HI * DI + DI]: queries, then the raw key
  const float* q_norm = nullptr;  // [DI]
  const float* k_norm = nullptr;  // [DI]
  float epsilon = 0;
  int64_t state_offset = 0;
  float* queries = nullptr;  // [T, HI, DI] out
};

// For rows at position p with m = (p + 1) / 4 > budget: scores of blocks 0 .. m - 1,
//   score(b) = sum over heads in order of max(0, <query_h, key_b>) / sqrt(DI),
// and the `budget` best (higher first, then lower block; -0 is 0), listed ascending in selected[t, :]. Rows with
// m <= budget attend to all blocks; their lists are not written.
struct SelectBlocks {
  BatchView batch;
  LayerPages pages;
  int64_t HI = 0, DI = 0, budget = 0;  // Blocks.
  const float* queries = nullptr;      // [T, HI, DI]
  int32_t* selected = nullptr;         // [T, budget]
  Workspace workspace;
};

// o = softmax(q k^T * scale) v * sigmoid(gate) per query head over the tokens that the row attends to: where budget
// is 0 or m <= budget all tokens 0 .. p, else those of the selected blocks and the tail 4 m .. p; in ascending order.
// Query head h uses key head h / (HQ / HK).
struct Attention {
  BatchView batch;
  LayerPages pages;
  int64_t HQ = 0, HK = 0, D = 0, budget = 0;
  float scale = 0;
  const float* q = nullptr;           // [T, HQ, D], normed and rotated
  const float* q_gate = nullptr;      // [T, HQ, 2, D]: the gate is the second half of a head
  const int32_t* selected = nullptr;  // [T, budget]; null where budget is 0
  float* o = nullptr;                 // [T, HQ, D] out
  Workspace workspace;
};

}  // namespace wp::kernels
