// Attention over the blocks that a row sees, dense and QSA (kernels/attention.h), all query heads of a key head at
// once, so that they share the loads of K and V. A row's list of blocks is taken in tiles of kTileBlocks by place in
// the list, ascending; per tile and head:
//   scores   lanes are (d mod 4, key of block), one chain over d / 4, then the four d's joined by the fixed tree
//   softmax  running maximum; sums and values are scaled by exp(old - new), decided per head (exactly 1 if equal)
//   values   one chain over the keys, ascending, for each of D
// Places past the list have weight exactly 0 and change nothing. A row's bits depend on its own list alone.
// A task takes neighbouring rows through the same tile before the next: their lists cover about the same stretch of the
// sequence there, so blocks that one row brought into L2 serve the others.
// Work: 2 D multiply-adds for each head and key; K and V come from L2 or beyond.
#include <limits>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pages.h"
#include "kernels/cpu/regions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

constexpr int kTileBlocks = 24;  // 96 keys.
constexpr int kTileKeys = kTileBlocks * static_cast<int>(kBlockTokens);
constexpr int kHeadsMax = 6;  // Query heads of one task.
#if HWY_TARGET == HWY_AVX3
constexpr int kScoreBlocks = 4, kValueVectors = 4;  // Times kHeadsMax: 24 accumulators.
#else
constexpr int kScoreBlocks = 1, kValueVectors = 1;
#endif

struct Tile {
  const float* keys[kTileBlocks];    // [D, 4] of each block
  const float* values[kTileBlocks];  // [4, D] of each block
  int blocks = 0;
  int keys_count = 0;  // Tokens seen: 4 * blocks, less in the row's open block.
};

// One row's heads: weights of the tile at hand, and the sums so far.
struct Weights {
  HWY_ALIGN float of[kHeadsMax][kTileKeys];
};
struct Softmax {
  float maximum[kHeadsMax], total[kHeadsMax];
};

// Scores of kCount blocks from `first` on, kGroup heads; q [kGroup, D, 4], each value four times.
template <int kGroup, int kCount>
HWY_INLINE void score_blocks(const Tile& tile, int first, const float* HWY_RESTRICT q, int64_t D, Weights& weights) {
  V16 sums[kGroup][kCount];
  for (int h = 0; h < kGroup; ++h)
    for (int b = 0; b < kCount; ++b) sums[h][b] = zero();
  for (int64_t d = 0; d < D * kBlockTokens; d += kLanes) {
    V16 keys[kCount];
    for (int b = 0; b < kCount; ++b) keys[b] = load(tile.keys[first + b] + d);
    for (int h = 0; h < kGroup; ++h) {
      const V16 query = load(q + h * D * kBlockTokens + d);
      for (int b = 0; b < kCount; ++b) sums[h][b] = fma(query, keys[b], sums[h][b]);
    }
  }
  for (int h = 0; h < kGroup; ++h)
    for (int b = 0; b < kCount; ++b)
      hn::StoreU(tree::to_four(sums[h][b], tree::Sum()), tree::Four(), weights.of[h] + (first + b) * kBlockTokens);
}

// Scores to weights; returns the factor for what was summed before.
HWY_INLINE V16 soften(float* weights, int count, float scale, float& maximum, float& total) {
  const int vectors = (count + static_cast<int>(kLanes) - 1) / static_cast<int>(kLanes);
  for (int i = count; i < vectors * kLanes; ++i) weights[i] = -std::numeric_limits<float>::infinity();
  V16 best = set(maximum);
  for (int i = 0; i < vectors; ++i) {
    const V16 scores = mul(load(weights + i * kLanes), set(scale));
    store(scores, weights + i * kLanes);
    best = max(best, scores);
  }
  const V16 now = set(cpu::HWY_NAMESPACE::maximum(best));
  V16 sums = zero();
  for (int i = 0; i < vectors; ++i) {
    const V16 weight = exp(sub(load(weights + i * kLanes), now));
    store(weight, weights + i * kLanes);
    sums = add(sums, weight);
  }
  const V16 factor = exp(sub(set(maximum), now));
  total = hn::GetLane(fma(set(total), factor, set(sum(sums))).part[0]);
  maximum = hn::GetLane(now.part[0]);
  return factor;
}

// o [kGroup, D] <- o * factor + weights V for kVectors vectors of D at column; kWhole: all their lanes lie below D.
template <int kGroup, int kVectors, bool kWhole>
HWY_INLINE void add_values(const Tile& tile, const Weights& weights, const V16 (&factors)[kHeadsMax], int64_t column,
                           int64_t D, float* HWY_RESTRICT o) {
  const auto read = [&](const float* from) HWY_ATTR { return kWhole ? load(from) : load_some(from, D - column); };
  V16 sums[kGroup][kVectors];
  for (int h = 0; h < kGroup; ++h)
    for (int c = 0; c < kVectors; ++c) sums[h][c] = mul(read(o + h * D + column + c * kLanes), factors[h]);
  for (int key = 0; key < tile.keys_count; ++key) {
    const float* from = tile.values[key / kBlockTokens] + key % kBlockTokens * D + column;
    V16 values[kVectors];
    for (int c = 0; c < kVectors; ++c) values[c] = read(from + c * kLanes);
    for (int h = 0; h < kGroup; ++h) {
      const V16 weight = set(weights.of[h][key]);
      for (int c = 0; c < kVectors; ++c) sums[h][c] = fma(weight, values[c], sums[h][c]);
    }
  }
  for (int h = 0; h < kGroup; ++h)
    for (int c = 0; c < kVectors; ++c)
      store_some(sums[h][c], o + h * D + column + c * kLanes, kWhole ? kLanes : D - column);
}

template <int kGroup>
HWY_NOINLINE void attend_tile(const Tile& tile, const float* q, float scale, int64_t D, Softmax& sums, float* o) {
  Weights weights;
  int b = 0;
  for (; b + kScoreBlocks <= tile.blocks; b += kScoreBlocks) score_blocks<kGroup, kScoreBlocks>(tile, b, q, D, weights);
  if constexpr (kScoreBlocks > 1)
    for (; b < tile.blocks; ++b) score_blocks<kGroup, 1>(tile, b, q, D, weights);
  V16 factors[kHeadsMax];
  for (int h = 0; h < kGroup; ++h)
    factors[h] = soften(weights.of[h], tile.keys_count, scale, sums.maximum[h], sums.total[h]);
  int64_t column = 0;
  for (; column + kValueVectors * kLanes <= D; column += kValueVectors * kLanes)
    add_values<kGroup, kValueVectors, true>(tile, weights, factors, column, D, o);
  for (; column + kLanes <= D; column += kLanes) add_values<kGroup, 1, true>(tile, weights, factors, column, D, o);
  if (column < D) add_values<kGroup, 1, false>(tile, weights, factors, column, D, o);
}

// Blocks of one row in order: the selected ones and its open block, or all.
struct BlockList {
  const int32_t* selected = nullptr;
  int64_t complete = 0;    // Blocks listed, but for the open one.
  int64_t open_block = 0;  // Index of the open block.
  int64_t open_keys = 0;   // Its tokens, 0 to 3.

  int64_t count() const { return complete + (open_keys > 0 ? 1 : 0); }
  int64_t block(int64_t i) const { return i >= complete ? open_block : selected ? selected[i] : i; }
};

BlockList blocks_of(const Attention& p, int64_t t) {
  const int64_t seen = p.batch.row_position[t] + 1, blocks = seen / kBlockTokens;
  const bool sparse = p.budget != 0 && blocks > p.budget;
  return {.selected = sparse ? p.selected + t * p.budget : nullptr,
          .complete = sparse ? p.budget : blocks,
          .open_block = blocks,
          .open_keys = seen % kBlockTokens};
}

void fill_tile(const Attention& p, const SegmentView& segment, const BlockList& list, int64_t first, int64_t head,
               Tile& tile) {
  const PageLayout& layout = p.pages.layout;
  tile.blocks = static_cast<int>(std::min<int64_t>(kTileBlocks, list.count() - first));
  for (int b = 0; b < tile.blocks; ++b) {
    const int64_t position = list.block(first + b) * kBlockTokens, token = position % kPageTokens;
    const float* page = page_of(p.batch, p.pages, segment, position);
    tile.keys[b] = page + layout.k_at(head, token, 0);
    tile.values[b] = page + layout.v_at(head, token, 0);
  }
  tile.keys_count = tile.blocks * static_cast<int>(kBlockTokens);
  if (first + tile.blocks > list.complete) tile.keys_count -= static_cast<int>(kBlockTokens - list.open_keys);
}

// o <- o / total * sigmoid(gate) for the heads from row `at` of [T * HQ] on.
template <int kGroup>
HWY_INLINE void finish_row(const Attention& p, int64_t at, const Softmax& sums) {
  for (int h = 0; h < kGroup; ++h) {
    const V16 inverse = div(set(1.0f), set(sums.total[h]));
    const float* gate = p.q_gate + ((at + h) * 2 + 1) * p.D;
    float* o = p.o + (at + h) * p.D;
    for (int64_t d = 0; d < p.D; d += kLanes) {
      const int64_t rest = p.D - d;
      const V16 value = mul(load_some(o + d, rest), inverse);
      store_some(mul(value, sigmoid(load_some(gate + d, rest))), o + d, rest);
    }
  }
}

// q [count] with each value four times, as the keys of a block lie. Copies only.
HWY_INLINE void expand(const float* HWY_RESTRICT q, int64_t count, float* HWY_RESTRICT to) {
  for (int64_t i = 0; i < count; ++i) {
    const auto four = hn::Set(tree::Four(), q[i]);
    hn::StoreU(four, tree::Four(), to + i * kBlockTokens);
  }
}

constexpr int kRowsMax = 16;  // Of one task.

// kGroup query heads from `query_head` on, of neighbouring rows; they share a key head. `expanded`: the rows' queries.
template <int kGroup>
void attend(const Attention& p, int64_t begin, int64_t rows, int64_t query_head, float* expanded) {
  const int64_t head = query_head / (p.HQ / p.HK), width = kGroup * p.D;
  BlockList lists[kRowsMax];
  Softmax sums[kRowsMax];
  int64_t longest = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (begin + r) * p.HQ + query_head;
    expand(p.q + at * p.D, width, expanded + r * width * kBlockTokens);
    std::memset(p.o + at * p.D, 0, static_cast<size_t>(width) * sizeof(float));
    for (int h = 0; h < kGroup; ++h) {
      sums[r].maximum[h] = -std::numeric_limits<float>::infinity();
      sums[r].total[h] = 0;
    }
    lists[r] = blocks_of(p, begin + r);
    longest = std::max(longest, lists[r].count());
  }
  Tile tile;
  for (int64_t first = 0; first < longest; first += kTileBlocks)
    for (int64_t r = 0; r < rows; ++r) {
      if (first >= lists[r].count()) continue;
      const SegmentView& segment = p.batch.segments[p.batch.row_segment[begin + r]];
      fill_tile(p, segment, lists[r], first, head, tile);
      float* o = p.o + ((begin + r) * p.HQ + query_head) * p.D;
      attend_tile<kGroup>(tile, expanded + r * width * kBlockTokens, p.scale, p.D, sums[r], o);
    }
  for (int64_t r = 0; r < rows; ++r) finish_row<kGroup>(p, (begin + r) * p.HQ + query_head, sums[r]);
}

void attend_group(const Attention& p, int64_t begin, int64_t rows, int64_t query_head, int64_t group, float* expanded) {
  switch (group) {
    case 1: return attend<1>(p, begin, rows, query_head, expanded);
    case 2: return attend<2>(p, begin, rows, query_head, expanded);
    case 3: return attend<3>(p, begin, rows, query_head, expanded);
    case 4: return attend<4>(p, begin, rows, query_head, expanded);
    case 5: return attend<5>(p, begin, rows, query_head, expanded);
    default: return attend<6>(p, begin, rows, query_head, expanded);
  }
}

void attention(Stream& stream, const Attention& p) {
  const int64_t shared = p.HQ / p.HK, rows = p.batch.rows, threads = stream.threads().threads();
  // Few rows: smaller groups of heads, so that every thread has some.
  int64_t group = std::min<int64_t>(shared, kHeadsMax);
  while (group > 1 && rows * p.HK * ((shared + group - 1) / group) < threads) --group;
  const int64_t fits = p.workspace.bytes_per_thread / (group * p.D * kBlockTokens * 4);
  WP_ASSERT(p.D % kBlockTokens == 0 && fits > 0);
  const int64_t grain = rows < 4 * kRowsMax ? 1 : std::min<int64_t>(kRowsMax, fits);
  const int64_t groups = (shared + group - 1) / group, tasks_per_range = p.HK * groups;
  stream.threads().run((rows + grain - 1) / grain * tasks_per_range, [&](int64_t task, int thread) HWY_ATTR {
    const int64_t begin = task / tasks_per_range * grain, key_head = task % tasks_per_range / groups;
    const int64_t first = task % groups * group;
    attend_group(p, begin, std::min(grain, rows - begin), key_head * shared + first, std::min(group, shared - first),
                 p.workspace.of<float>(thread));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
HWY_EXPORT(attention);
void attention(Stream& stream, const Attention& p) { HWY_DYNAMIC_DISPATCH(attention)(stream, p); }
}  // namespace wp::kernels::cpu
#endif
