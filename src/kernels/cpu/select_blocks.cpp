// QSA block selection, spec/qwen4_exp.md 3.3. A page's index keys are a panel of 16 blocks, as weights are of outputs:
// scores of kTokens rows and their HI heads share each load, a lane is a block and a score one chain over DI. Scores
// are compared without the common factor 1 / sqrt(DI), which does not change their order. The `budget` best come from
// the bits of the scores: no score is negative, so their order is that of their bits, and the cut is found bit by bit
// from the top. Exact, with ties to lower blocks; the list is ascending by construction.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pages.h"
#include "kernels/cpu/regions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/select_blocks.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/v16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// Sums of one tile: heads of a token times panels.
#if HWY_TARGET == HWY_AVX3
constexpr int kTokens = 3, kHeads = 4;  // 12 chains of 2 panels each.
constexpr int kScorePanels = 2;
#else
constexpr int kTokens = 1, kHeads = 4;
constexpr int kScorePanels = 1;
#endif

// Adds the scores of kHeads heads; q [kRows, kHeads, DI] with `row_stride` floats between rows.
template <int kRows, int kPanels, int kGroup>
HWY_NOINLINE void score_tile(const float* q, int64_t row_stride, int64_t DI, const float* const (&keys)[kPanels],
                             V16 (&scores)[kRows][kPanels]) {
  V16 sums[kRows][kGroup][kPanels];
  for (int r = 0; r < kRows; ++r)
    for (int h = 0; h < kGroup; ++h)
      for (int n = 0; n < kPanels; ++n) sums[r][h][n] = zero();
  for (int64_t d = 0; d < DI; ++d) {
    V16 key[kPanels];
    for (int n = 0; n < kPanels; ++n) key[n] = load(keys[n] + d * kPageBlocks);
    for (int r = 0; r < kRows; ++r)
      for (int h = 0; h < kGroup; ++h) {
        const V16 value = set(q[r * row_stride + h * DI + d]);
        for (int n = 0; n < kPanels; ++n) sums[r][h][n] = fma(value, key[n], sums[r][h][n]);
      }
  }
  for (int r = 0; r < kRows; ++r)
    for (int h = 0; h < kGroup; ++h)
      for (int n = 0; n < kPanels; ++n) scores[r][n] = add(scores[r][n], max(sums[r][h][n], zero()));
}

// Scores of kRows consecutive rows for all blocks of kPanels pages from `page` on.
template <int kRows, int kPanels>
void score_pages(const SelectBlocks& p, const SegmentView& segment, int64_t t, int64_t page, float* scores,
                 int64_t scores_stride) {
  const float* keys[kPanels];
  for (int n = 0; n < kPanels; ++n)
    keys[n] = page_of(p.batch, p.pages, segment, (page + n) * kPageTokens) + p.pages.layout.index_offset();
  V16 totals[kRows][kPanels];
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < kPanels; ++n) totals[r][n] = zero();
  const float* q = p.queries + t * p.HI * p.DI;
  int64_t h = 0;
  for (; h + kHeads <= p.HI; h += kHeads)
    score_tile<kRows, kPanels, kHeads>(q + h * p.DI, p.HI * p.DI, p.DI, keys, totals);
  for (; h < p.HI; ++h) score_tile<kRows, kPanels, 1>(q + h * p.DI, p.HI * p.DI, p.DI, keys, totals);
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < kPanels; ++n) store(totals[r][n], scores + r * scores_stride + (page + n) * kPageBlocks);
}

template <int kRows>
void score_rows(const SelectBlocks& p, const SegmentView& segment, int64_t t, int64_t pages, float* scores,
                int64_t scores_stride) {
  int64_t page = 0;
  for (; page + kScorePanels <= pages; page += kScorePanels)
    score_pages<kRows, kScorePanels>(p, segment, t, page, scores, scores_stride);
  if constexpr (kScorePanels > 1)
    for (; page < pages; ++page) score_pages<kRows, 1>(p, segment, t, page, scores, scores_stride);
}

// How many of `count` scores, a multiple of 16, are at least `cut`.
HWY_INLINE int64_t count_from(const float* scores, int64_t count, float cut) {
  const auto limit = hn::Set(FloatTag(), cut);
  size_t found = 0;
  for (int64_t i = 0; i < count; i += kPartLanes)
    found += hn::CountTrue(FloatTag(), hn::Ge(hn::LoadU(FloatTag(), scores + i), limit));
  return static_cast<int64_t>(found);
}

HWY_INLINE float float_from(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// The `budget` best of `blocks` > budget scores, ascending. scores has room up to a multiple of 16.
HWY_NOINLINE void choose(float* scores, int64_t blocks, int64_t budget, int32_t* selected) {
  const int64_t count = (blocks + kLanes - 1) / kLanes * kLanes;
  for (int64_t b = blocks; b < count; ++b) scores[b] = -1.0f;
  uint32_t cut = 0;  // The largest number that at least `budget` scores reach.
  int64_t reach = blocks;
  for (uint32_t bit = 1u << 30; bit != 0 && reach != budget; bit >>= 1) {
    const int64_t found = count_from(scores, count, float_from(cut | bit));
    if (found < budget) continue;
    cut |= bit;
    reach = found;
  }
  // Where more reach the cut than the budget holds, the last bits were all tried: those above it are in, and of those
  // equal to it the first ones.
  const float limit = float_from(cut);
  int64_t equal = reach == budget ? budget : budget - count_from(scores, count, float_from(cut + 1));
  int64_t listed = 0;
  for (int64_t b = 0; b < blocks && listed < budget; ++b) {
    if (scores[b] < limit) continue;
    if (reach != budget && scores[b] == limit && equal-- <= 0) continue;
    selected[listed++] = static_cast<int32_t>(b);
  }
  WP_ASSERT(listed == budget);
}

void select_rows(const SelectBlocks& p, int64_t begin, int64_t end, float* scores) {
  for (int64_t t = begin; t < end;) {
    const SegmentView& segment = p.batch.segments[p.batch.row_segment[t]];
    const auto blocks_of = [&](int64_t row) { return (p.batch.row_position[row] + 1) / kBlockTokens; };
    if (blocks_of(t) <= p.budget) {
      ++t;
      continue;
    }
    int64_t rows = 1;
    while (rows < kTokens && t + rows < end && p.batch.row_segment[t + rows] == p.batch.row_segment[t]) ++rows;
    const int64_t pages = (blocks_of(t + rows - 1) + kPageBlocks - 1) / kPageBlocks, stride = pages * kPageBlocks;
    WP_ASSERT(rows * stride * 4 <= p.workspace.bytes_per_thread);
    if (rows == kTokens) {
      score_rows<kTokens>(p, segment, t, pages, scores, stride);
    } else {
      for (int64_t r = 0; r < rows; ++r) score_rows<1>(p, segment, t + r, pages, scores + r * stride, stride);
    }
    for (int64_t r = 0; r < rows; ++r)
      choose(scores + r * stride, blocks_of(t + r), p.budget, p.selected + (t + r) * p.budget);
    t += rows;
  }
}

void select_blocks(Stream& stream, const SelectBlocks& p) {
  int64_t work = 0;
  for (int64_t t = 0; t < p.batch.rows; ++t) {
    const int64_t blocks = (p.batch.row_position[t] + 1) / kBlockTokens;
    if (blocks > p.budget) work += blocks * (p.HI * p.DI + 32) / 16;
  }
  if (work == 0) return;
  for_ranges(stream, p.batch.rows, p.batch.rows < 12 ? 1 : 12, work,
             [&](int64_t begin, int64_t end, int thread)
                 HWY_ATTR { select_rows(p, begin, end, p.workspace.of<float>(thread)); });
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
HWY_EXPORT(select_blocks);
void select_blocks(Stream& stream, const SelectBlocks& p) { HWY_DYNAMIC_DISPATCH(select_blocks)(stream, p); }
}  // namespace wp::kernels::cpu
#endif
