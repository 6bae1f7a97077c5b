// Attention on tensor cores: for a row and a key head, so that the query heads which share the key head read its pages
// once, the row's list of tokens in tiles of 64. A tile's scores, their maximum, the sum of their weights and the
// weighted values depend on the tile alone; tiles are then joined in ascending order, each time by the same operations.
// Where rows are few, tiles are computed side by side and joined by a second kernel; else one block of threads walks
// them: equal bits. Every f32 is split in two bf16 whose three products are added: what is lost is below 2^-16. Nothing
// is shared between rows. Bound by the bytes of keys and values, 512 f32 for each token, row and key head.
#include <cmath>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/tensor_cores.h"
#include "kernels/gpu/token_list.h"

namespace wp::kernels::gpu {
namespace {

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

// Tiles so far, and what they and the next tile are multiplied by when they are joined.
struct Joined {
  float maximum = -INFINITY, sum = 0, before = 0, next = 0;
};
__device__ inline void join(Joined& so_far, float maximum, float sum) {
  const float highest = fmaxf(so_far.maximum, maximum);
  so_far.before = expf(so_far.maximum - highest);
  so_far.next = expf(maximum - highest);
  so_far.sum = fmaf(sum, so_far.next, so_far.sum * so_far.before);
  so_far.maximum = highest;
}
__device__ inline float join_value(float before, float next, const Joined& so_far) {
  return fmaf(next, so_far.next, before * so_far.before);
}

// Of a tile, and of all tiles so far: maximum and sum of weights of each head.
struct Softmax {
  float scores[kHeads][kTile];
  SplitRows<kTile / 16> weights;
  float tile_maximum[kHeads], tile_sum[kHeads];
  Joined joined[kHeads];
};

// Two heads of a warp: the tile's maximum, its weights and their sum.
__device__ inline void weigh_tile(Softmax& s, int heads) {
  const int lane = threadIdx.x % 32;
  for (int head = threadIdx.x / 32; head < heads; head += kWarps) {
    const float a = s.scores[head][lane], b = s.scores[head][lane + 32];
    float highest = fmaxf(a, b);
    for (int far = 16; far > 0; far /= 2) highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFF, highest, far));
    const float p = expf(a - highest), q = expf(b - highest);
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
      s.tile_maximum[head] = highest;
      s.tile_sum[head] = sum;
      join(s.joined[head], highest, sum);  // Of use where one block walks all tiles.
    }
  }
}

// Results of tiles that are computed side by side: [row, key head, tile].
struct TileResult {
  float maximum[kHeads], sum[kHeads];
  float values[1];  // [heads, D]
};
struct TileResults {
  std::byte* data;
  int64_t each, tiles;  // Bytes of one; tiles of the longest list.
  __device__ TileResult& at(int64_t row_and_head, int64_t tile) const {
    return *reinterpret_cast<TileResult*>(data + (row_and_head * tiles + tile) * each);
  }
};

// One row and key head, all that a tile needs. D a multiple of 16, at most 16 kSteps.
template <int kSteps>
struct RowTiles {
  static constexpr int kColumns = kSteps * 2 / kWarps > 0 ? kSteps * 2 / kWarps : 1;  // Groups of 8 of D for a warp.
  struct Memory {
    SplitRows<kSteps> q;
    Softmax softmax;
    const float* values[2][kTile];
  };

  const Attention& p;
  Memory& memory;
  int64_t t, key_head;
  int heads, steps;
  SegmentView segment;
  TokenList tokens;

  __device__ RowTiles(const Attention& args, Memory& shared, int64_t row_and_head)
      : p(args),
        memory(shared),
        t(row_and_head / args.HK),
        key_head(row_and_head % args.HK),
        heads(static_cast<int>(args.HQ / args.HK)),
        steps(static_cast<int>(args.D / 16)),
        segment(args.batch.segments[args.batch.row_segment[t]]),
        tokens(tokens_of(args, t)) {}

  __device__ int64_t first_head() const { return t * p.HQ + key_head * heads; }

  // The queries, split. Then all threads wait for each other.
  __device__ void load_queries() const {
    for (int at = threadIdx.x; at < kHeads * steps * 4; at += kThreads) {
      const int head = at / (steps * 4), step = at / 4 % steps;
      const float* from = p.q + (first_head() + head) * p.D + step * 16 + at % 4;
      memory.q.at[head][step][at % 4] = head < heads ? split({from[0], from[4], from[8], from[12]}) : SplitFour{};
    }
    for (int at = threadIdx.x; at < kHeads * kTile / 4; at += kThreads)
      (&memory.softmax.weights.at[0][0][0])[at] = SplitFour{};
    if (threadIdx.x < kHeads) memory.softmax.joined[threadIdx.x] = {};
  }

  // Of this thread's columns of the tile: the weighted values; the rest in memory.softmax.
  __device__ void compute(int64_t tile, float (&sums)[kColumns][4]) const {
    const PageLayout layout = p.pages.layout;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
    const int64_t begin = tile * kTile, D = p.D;
    const auto parity = tile % 2;
    // A token beyond the list is the last one again, with a score that gives it no weight.
    const int64_t i = begin + warp * 8 + group, position = tokens[i < tokens.count ? i : tokens.count - 1];
    const float* page = page_of(p.batch, p.pages, segment, position);
    const float* k = page + layout.k_at(key_head, position % kPageTokens, 0) + quad * kBlockTokens;
    if (quad == 0) memory.values[parity][warp * 8 + group] = page + layout.v_at(key_head, position % kPageTokens, 0);
    float scores[4] = {};
#pragma unroll 4
    for (int step = 0; step < steps; ++step) {
      const float* at = k + step * 16 * kBlockTokens;
      const SplitFour b =
          split({__ldg(at), __ldg(at + 4 * kBlockTokens), __ldg(at + 8 * kBlockTokens), __ldg(at + 12 * kBlockTokens)});
      multiply_add_split(scores, memory.q.at[group][step][quad], memory.q.at[group + 8][step][quad], b);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int token = warp * 8 + quad * 2 + j % 2;
      memory.softmax.scores[group + j / 2 * 8][token] = begin + token < tokens.count ? scores[j] * p.scale : -INFINITY;
    }
    __syncthreads();
    weigh_tile(memory.softmax, heads);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[c][j] = 0;
#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {
      const SplitFour& low = memory.softmax.weights.at[group][step][quad];
      const SplitFour& high = memory.softmax.weights.at[group + 8][step][quad];
      const float* v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] = memory.values[parity][step * 16 + j * 4 + quad] + group;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int d = (warp + c * kWarps) * 8;
        if (d >= D) break;
        multiply_add_split(sums[c], low, high,
                           split({__ldg(v[0] + d), __ldg(v[1] + d), __ldg(v[2] + d), __ldg(v[3] + d)}));
      }
    }
  }

  // body(column c, j, head, d) of what this thread's sums are.
  template <class Body>
  __device__ void each_value(Body body) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int head = lane / 4 + j / 2 * 8, d = (warp + c * kWarps) * 8 + lane % 4 * 2 + j % 2;
        if (head < heads && d < p.D) body(c, j, head, d);
      }
  }
};

// All tiles of a row and a key head. Grid: rows times key heads.
template <int kSteps>
__global__ void __launch_bounds__(kThreads) walk_tiles_kernel(Attention p) {
  using Tiles = RowTiles<kSteps>;
  extern __shared__ uint4 dynamic[];
  const Tiles row(p, *reinterpret_cast<typename Tiles::Memory*>(dynamic), blockIdx.x);
  row.load_queries();
  float sums[Tiles::kColumns][4] = {}, next[Tiles::kColumns][4];
  const int group = threadIdx.x % 32 / 4;
  const Joined &low = row.memory.softmax.joined[group], &high = row.memory.softmax.joined[group + 8];
  __syncthreads();
  for (int64_t tile = 0; tile * kTile < row.tokens.count; ++tile) {
    row.compute(tile, next);
#pragma unroll
    for (int c = 0; c < Tiles::kColumns; ++c)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[c][j] = join_value(sums[c][j], next[c][j], j < 2 ? low : high);
  }
  row.each_value([&](int c, int j, int head, int d) {
    const float gate = p.q_gate[(row.first_head() + head) * 2 * p.D + p.D + d];
    p.o[(row.first_head() + head) * p.D + d] = sums[c][j] / (j < 2 ? low : high).sum * sigmoid(gate);
  });
}

// Grid: rows times key heads, tiles.
template <int kSteps>
__global__ void __launch_bounds__(kThreads) tile_kernel(Attention p, TileResults results) {
  using Tiles = RowTiles<kSteps>;
  extern __shared__ uint4 dynamic[];
  const Tiles row(p, *reinterpret_cast<typename Tiles::Memory*>(dynamic), blockIdx.x);
  const int64_t tile = blockIdx.y;
  if (tile * kTile >= row.tokens.count) return;
  row.load_queries();
  __syncthreads();
  float sums[Tiles::kColumns][4];
  row.compute(tile, sums);
  TileResult& result = results.at(blockIdx.x, tile);
  if (threadIdx.x < row.heads) {
    result.maximum[threadIdx.x] = row.memory.softmax.tile_maximum[threadIdx.x];
    result.sum[threadIdx.x] = row.memory.softmax.tile_sum[threadIdx.x];
  }
  row.each_value([&](int c, int j, int head, int d) { result.values[head * p.D + d] = sums[c][j]; });
}

// Grid: rows times key heads, query heads of one. Thread: an element of D.
__global__ void join_tiles_kernel(Attention p, TileResults results) {
  const int64_t heads = p.HQ / p.HK, t = blockIdx.x / p.HK, head = blockIdx.y, d = threadIdx.x;
  const int64_t count = tokens_of(p, t).count, at = t * p.HQ + blockIdx.x % p.HK * heads + head;
  Joined so_far;
  float value = 0;
#pragma unroll 4
  for (int64_t tile = 0; tile * kTile < count; ++tile) {
    const TileResult& result = results.at(blockIdx.x, tile);
    join(so_far, result.maximum[head], result.sum[head]);
    value = join_value(value, result.values[head * p.D + d], so_far);
  }
  p.o[at * p.D + d] = value / so_far.sum * sigmoid(p.q_gate[at * 2 * p.D + p.D + d]);
}

constexpr int64_t kFewUnits = 132;  // Rows times key heads up to which tiles run side by side.

template <int kSteps>
void launch(Stream& stream, const Attention& p) {
  constexpr int bytes = sizeof(typename RowTiles<kSteps>::Memory);
  static const bool asked =
      cudaFuncSetAttribute(walk_tiles_kernel<kSteps>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) ==
          cudaSuccess &&
      cudaFuncSetAttribute(tile_kernel<kSteps>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) == cudaSuccess;
  WP_ASSERT(asked);
  const int64_t units = p.batch.rows * p.HK, longest = p.workspace.context_max;
  const int64_t listed = p.budget > 0 ? (p.budget + 1) * kBlockTokens : longest;
  const int64_t tiles = ((listed < longest ? listed : longest) + kTile - 1) / kTile;
  const int64_t each = (static_cast<int64_t>(sizeof(TileResult)) + p.HQ / p.HK * p.D * 4 + 63) / 64 * 64;
  const bool fits = units * tiles * each <= p.workspace.bytes_per_thread * p.workspace.threads;
  if (units > kFewUnits || !fits || tiles > 65535) {
    walk_tiles_kernel<kSteps><<<blocks_for(units, 1), kThreads, bytes, on(stream)>>>(p);
    return;
  }
  const TileResults results{p.workspace.data, each, tiles};
  const auto across = static_cast<unsigned>(units);
  tile_kernel<kSteps><<<dim3(across, static_cast<unsigned>(tiles)), kThreads, bytes, on(stream)>>>(p, results);
  join_tiles_kernel<<<dim3(across, static_cast<unsigned>(p.HQ / p.HK)), static_cast<unsigned>(p.D), 0, on(stream)>>>(
      p, results);
}

}  // namespace

bool attention_in_tiles(Stream& stream, const Attention& p) {
  if (p.D % 16 != 0 || p.D > 256 || p.HQ / p.HK > kHeads) return false;
  if (p.D <= 64) launch<4>(stream, p);
  else if (p.D <= 128) launch<8>(stream, p);
  else launch<16>(stream, p);
  check_launch();
  return true;
}

}  // namespace wp::kernels::gpu
