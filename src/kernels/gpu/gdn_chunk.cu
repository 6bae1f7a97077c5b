// Gated delta rule of prefill, in chunks of 64 rows that are counted from the sequence's first row, DK = 128. With G_i
// the sum of the chunk's log decays up to row i, S the state before the chunk, k, q, v, o a row each:
//
//   A_ij = beta_i e^(G_i - G_j) (k_i . k_j), j < i;   P_ij = e^(G_i - G_j) (q_i . k_j), j <= i;   T = (I + A)^-1
//   diag(beta) w_i = sum_j T_ij (v_j - e^(G_j) S^T k_j);   o_i = e^(G_i) S^T q_i + sum_j P_ij w_j S <- e^(G_63) S +
//   sum_j k_j (e^(G_63 - G_j) w_j)^T
//
// Only differences of G that are not positive are exponentiated; G is kept in double. Rows of the chunk that the
// segment does not have are zeros (k, q, v, beta, log decay), which change no bit of any other row; row i reads rows
// j <= i alone. gdn_inside_kernel computes all chunks side by side up to T and P; gdn_walk_kernel walks them in order.
//
// Products on tensor cores, each f32 as a sum of two bf16, of which three products are added, ascending along the sum:
// what is lost is below 2^-16. T is solved for in f32. q and k are kept in place, a row's 128 high halves first, then
// its low ones; a becomes e^(G_i), b e^(G_63 - G_i).
#include "kernels/gpu/gdn_chunk.h"

#include "kernels/gpu/device_math.h"
#include "kernels/gpu/tensor_cores.h"

namespace wp::kernels::gpu {
namespace {

constexpr int kRows = 64, kKeys = 128;   // Of a chunk; DK.
constexpr int kKeyStride = kKeys + 8;    // Of a row in shared memory, in bf16: eight rows meet no bank twice.
constexpr int kSolveStride = kRows + 4;  // Of A, in f32.
constexpr int kHeads = 4;                // Value heads of a key head, at most.
constexpr int kWalkThreads = 128, kWalkColumns = 64;

struct Halves {
  uint32_t high, low;  // Each two bf16.
};
__device__ inline Halves halves(float a, float b) {
  const uint32_t high = bf16_pair(a, b);
  return {high, bf16_pair(a - __uint_as_float(high << 16), b - __uint_as_float(high & 0xFFFF0000))};
}

// Four 8x8 blocks of bf16; lane l gives the address of row l % 8 of block l / 8.
__device__ inline void load_blocks(uint32_t (&to)[4], const uint16_t* at) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(at));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_blocks_across(uint32_t (&to)[4], const uint16_t* at) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(at));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// 16 or 4 bytes to shared memory, not waited for; zeros where `bytes` is 0.
__device__ inline void fetch16(void* to, const void* from, int bytes) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void fetch4(void* to, const void* from, int bytes) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void wait_for_fetches() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// threadIdx.x, read again at each call: what derives from it is not kept in registers over a loop, of which the walk
// has none to spare.
__device__ inline int thread_again() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// All threads of the walk, from where they are.
__device__ inline void meet() { asm volatile("bar.sync 1, %0;" ::"n"(2 * kWalkThreads) : "memory"); }

// c[n] += a b[n] for kTiles groups of eight columns, three products each. b: [kTiles / 2][two tiles x two blocks].
template <int kTiles>
__device__ inline void multiply_add_halves(float (*c)[4], const uint32_t (&a_high)[4], const uint32_t (&a_low)[4],
                                           const uint32_t (&b_high)[kTiles / 2][4],
                                           const uint32_t (&b_low)[kTiles / 2][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) multiply_add(c[n], a_low, {b_high[n / 2][n % 2 * 2], b_high[n / 2][n % 2 * 2 + 1]});
#pragma unroll
  for (int n = 0; n < kTiles; ++n) multiply_add(c[n], a_high, {b_low[n / 2][n % 2 * 2], b_low[n / 2][n % 2 * 2 + 1]});
#pragma unroll
  for (int n = 0; n < kTiles; ++n) multiply_add(c[n], a_high, {b_high[n / 2][n % 2 * 2], b_high[n / 2][n % 2 * 2 + 1]});
}

// Rows of a chunk: row i is row `begin` + i of the pass if low <= i < high.
struct Chunk {
  int begin;
  int low, high;
  int end;  // Rows of the segment up to the chunk's last place, whether or not it has so many.
  __device__ bool has(int i) const { return static_cast<unsigned>(i - low) < static_cast<unsigned>(high - low); }
};
__device__ inline int chunks_of(const SegmentView& segment) {
  return (segment.position % kRows + segment.rows + kRows - 1) / kRows;
}
__device__ inline Chunk chunk_of(const SegmentView& segment, int index) {
  const int offset = index * kRows - segment.position % kRows, left = segment.rows - offset;
  return {segment.row_begin + offset, offset < 0 ? -offset : 0, left < kRows ? left : kRows, offset + kRows};
}

// T and P of a row and head: [high and low of T, high and low of P][64] bf16.
__device__ inline uint32_t* mix_of(const Gdn& p, int64_t t, int64_t head) {
  return reinterpret_cast<uint32_t*>(p.spare) + (t * p.HV + head) * 128;
}

using KeyMatrix = uint16_t[kRows][kKeyStride];

struct Inside {
  union {
    KeyMatrix keys[4];  // High and low of k, high and low of q.
    float A[kHeads][kRows][kSolveStride];
  };
  double G[kHeads][kRows];
  float beta[kHeads][kRows];
};

// A warp for a row of k or q: to its length, split, to shared memory and back to its place. Four rows are asked for
// before the first is used.
__device__ inline void split_keys(const Gdn& p, const Chunk& chunk, int64_t key_head, Inside& s) {
  constexpr int kWarps = kThreads / 32, kAhead = 4;
  const int lane = threadIdx.x % 32;
  const auto row_of = [&](int at) {
    return p.qkv + int64_t{chunk.begin + at / 2} * p.channels() + (at % 2 ? 0 : p.HK * kKeys) + key_head * kKeys;
  };
  for (int first = threadIdx.x / 32; first < 2 * kRows; first += kAhead * kWarps) {
    float4 rows[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int at = first + j * kWarps;
      rows[j] = chunk.has(at / 2) ? reinterpret_cast<const float4*>(row_of(at))[lane] : float4{0, 0, 0, 0};
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int at = first + j * kWarps, i = at / 2, is_q = at % 2;
      const float4 x = rows[j];
      float squares = fmaf(x.w, x.w, fmaf(x.z, x.z, fmaf(x.y, x.y, x.x * x.x)));
#pragma unroll
      for (int far = 16; far > 0; far /= 2) squares += __shfl_xor_sync(0xFFFFFFFF, squares, far);
      float scale = 1.0f / sqrtf(squares + 1e-6f);
      if (is_q) scale = scale / sqrtf(static_cast<float>(kKeys));
      const Halves front = halves(x.x * scale, x.y * scale), back = halves(x.z * scale, x.w * scale);
      const uint2 high{front.high, back.high}, low{front.low, back.low};
      *reinterpret_cast<uint2*>(&s.keys[is_q * 2][i][lane * 4]) = high;
      *reinterpret_cast<uint2*>(&s.keys[is_q * 2 + 1][i][lane * 4]) = low;
      if (chunk.has(i)) {
        auto* to = reinterpret_cast<uint2*>(row_of(at));
        to[lane] = high;
        to[32 + lane] = low;
      }
    }
  }
}

// Warp w: 16 rows from 16 (w % 4) of k (w < 4) or q times all rows of k that are not behind them.
__device__ inline void multiply_keys(const Inside& s, float (&c)[8][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tile = warp % 4, block = lane / 8, row = lane % 8;
  const KeyMatrix &a_high_rows = s.keys[warp / 4 * 2], &a_low_rows = s.keys[warp / 4 * 2 + 1];
  const int a_row = tile * 16 + block % 2 * 8 + row, a_key = block / 2 * 8;
  const int b_row = block / 2 * 8 + row, b_key = block % 2 * 8;
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) c[n][i] = 0;
#pragma unroll 2
  for (int key = 0; key < kKeys; key += 16) {
    uint32_t a_high[4], a_low[4];
    load_blocks(a_high, &a_high_rows[a_row][key + a_key]);
    load_blocks(a_low, &a_low_rows[a_row][key + a_key]);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      if (pair > tile) break;
      uint32_t b_high[1][4], b_low[1][4];
      load_blocks(b_high[0], &s.keys[0][pair * 16 + b_row][key + b_key]);
      load_blocks(b_low[0], &s.keys[1][pair * 16 + b_row][key + b_key]);
      multiply_add_halves<2>(c + pair * 2, a_high, a_low, b_high, b_low);
    }
  }
}

// A warp: gates of a value head. Two rows to a lane; sums in a tree that row i's part of does not reach behind i.
__device__ inline void sum_gates(const Gdn& p, const Chunk& chunk, int64_t head, double (&G)[kRows],
                                 float (&beta)[kRows]) {
  const int lane = threadIdx.x % 32;
  double g[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int i = lane * 2 + j;
    float write = 0;
    if (chunk.has(i)) {
      const int64_t at = int64_t{chunk.begin + i} * p.HV + head;
      g[j] = static_cast<double>(-expf(p.A_log[head]) * softplus(p.a[at] + p.dt_bias[head]));
      write = sigmoid(p.b[at]);
    }
    beta[i] = write;
  }
  double sum = g[0] + g[1];
#pragma unroll
  for (int far = 1; far < 32; far *= 2) {
    const double before = __shfl_up_sync(0xFFFFFFFF, sum, far);
    if (lane >= far) sum += before;
  }
  const double before = __shfl_up_sync(0xFFFFFFFF, sum, 1), all = __shfl_sync(0xFFFFFFFF, sum, 31);
  G[lane * 2] = (lane > 0 ? before : 0.0) + g[0];
  G[lane * 2 + 1] = sum;
  __syncwarp();
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int i = lane * 2 + j;
    if (!chunk.has(i)) continue;
    const int64_t at = int64_t{chunk.begin + i} * p.HV + head;
    p.a[at] = expf(static_cast<float>(G[i]));
    p.b[at] = expf(static_cast<float>(all - G[i]));
  }
}

// What multiply_keys left in this warp's sums, of one value head: A to shared memory, or P to its place.
__device__ inline void weigh_keys(const Gdn& p, const Chunk& chunk, int64_t head, const float (&c)[8][4],
                                  const double (&G)[kRows], const float (&beta)[kRows],
                                  float (&A)[kRows][kSolveStride]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tile = warp % 4, group = lane / 4, quad = lane % 4;
  const bool is_q = warp >= 4;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    if (n / 2 > tile) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = tile * 16 + half * 8 + group, j = n * 8 + quad * 2;
      float value[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const bool seen = is_q ? j + k <= i : j + k < i;
        value[k] = seen ? c[n][half * 2 + k] * expf(static_cast<float>(G[i] - G[j + k])) : 0.0f;
      }
      if (!is_q) {
        *reinterpret_cast<float2*>(&A[i][j]) = {value[0] * beta[i], value[1] * beta[i]};
      } else if (chunk.has(i)) {
        const Halves pair = halves(value[0], value[1]);
        uint32_t* to = mix_of(p, chunk.begin + i, head) + 64 + j / 2;
        to[0] = pair.high;
        to[32] = pair.low;
      }
    }
  }
}

// A thread for a column of T: (I + A) T = I by substitution, four sums for a row; then times beta, split, to its place.
__device__ inline void solve(const Gdn& p, const Chunk& chunk, int64_t head, const float (&A)[kRows][kSolveStride],
                             const float (&beta)[kRows]) {
  const int column = threadIdx.x % kRows;
  float T[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    float sums[4] = {0, 0, 0, 0};
#pragma unroll
    for (int m = 0; m < i; m += 4) {
      const float4 four = *reinterpret_cast<const float4*>(&A[i][m]);
      sums[0] = fmaf(four.x, T[m], sums[0]);
      if (m + 1 < i) sums[1] = fmaf(four.y, T[m + 1], sums[1]);
      if (m + 2 < i) sums[2] = fmaf(four.z, T[m + 2], sums[2]);
      if (m + 3 < i) sums[3] = fmaf(four.w, T[m + 3], sums[3]);
    }
    T[i] = (i == column ? 1.0f : 0.0f) - ((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
  const float write = beta[column];
  const bool odd = column % 2 == 1;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float mine = T[i] * write, other = __shfl_xor_sync(0xFFFFFFFF, mine, 1);
    const Halves pair = odd ? halves(other, mine) : halves(mine, other);
    if (column / 16 <= i / 16 && chunk.has(i))
      mix_of(p, chunk.begin + i, head)[odd * 32 + column / 2] = odd ? pair.low : pair.high;
  }
}

// Grid: at least all chunks, key heads.
__global__ void __launch_bounds__(kThreads, 2) gdn_inside_kernel(Gdn p) {
  extern __shared__ uint4 dynamic[];
  Inside& s = *reinterpret_cast<Inside*>(dynamic);
  int index = static_cast<int>(blockIdx.x), segment = 0;
  for (;; ++segment) {
    if (segment == p.batch.segments_count) return;
    const int chunks = chunks_of(p.batch.segments[segment]);
    if (index < chunks) break;
    index -= chunks;
  }
  const Chunk chunk = chunk_of(p.batch.segments[segment], index);
  const int ratio = static_cast<int>(p.HV / p.HK), warp = threadIdx.x / 32;
  const int64_t key_head = blockIdx.y, head = key_head * ratio;
  float c[8][4];
  split_keys(p, chunk, key_head, s);
  __syncthreads();
  multiply_keys(s, c);
  __syncthreads();
  if (warp < ratio) sum_gates(p, chunk, head + warp, s.G[warp], s.beta[warp]);
  __syncthreads();
  for (int h = 0; h < ratio; ++h) weigh_keys(p, chunk, head + h, c, s.G[h], s.beta[h], s.A[h]);
  __syncthreads();
  const int mine = threadIdx.x / kRows;
  if (mine < ratio) solve(p, chunk, head + mine, s.A[mine], s.beta[mine]);
}

// T and P in shared memory: what is not above the diagonal, in blocks of 16 rows that have 16, 32, 48 and 64 values
// each, and 8 more between rows, so that eight rows meet no bank twice.
constexpr int kMixSize = 16 * (24 + 40 + 56 + 72), kValueStride = kWalkColumns + 4;
__device__ constexpr int mix_stride(int block) { return block * 16 + 24; }
__device__ constexpr int mix_at(int block) { return 16 * (block * 24 + block * (block - 1) / 2 * 16); }

struct Stage {
  KeyMatrix keys[4];                  // High and low of q, high and low of k.
  uint16_t mix[4][kMixSize];          // High and low of T, high and low of P.
  float values[kRows][kValueStride];  // v of the block's columns.
  float decay[kRows], tail[kRows];    // e^(G_i), e^(G_63 - G_i).
  float total[4];                     // e^(G_63).
};
static_assert(2 * sizeof(Stage) <= 227 << 10);

// What a chunk needs, under way to shared memory. A thread keeps its piece of a row; rows that are absent become zeros.
__device__ inline void fetch_chunk(const Gdn& p, const Chunk& chunk, int head, int first_column, Stage& stage) {
  const int thread = thread_again() - kWalkThreads, half = thread / 64, is_k = thread / 32 % 2, piece = thread % 32;
  const int row_bytes = static_cast<int>(p.channels()) * 4, mix_bytes = static_cast<int>(p.HV) * 512;
  // Offsets count from the chunk's first row that there is.
  const auto fetch = [&](void* to, const std::byte* from, int i, int bytes) {
    const bool has = chunk.has(i);
    fetch16(to, from + (has ? (i - chunk.low) * bytes : 0), has ? 16 : 0);
  };
  const auto* row = reinterpret_cast<const std::byte*>(p.qkv + int64_t{chunk.begin + chunk.low} * p.channels());
  const auto* keys = row + (is_k * p.HK + head / (p.HV / p.HK)) * (kKeys * 4) + piece * 16;
  uint16_t* keys_to = &stage.keys[is_k * 2 + piece / 16][half][piece % 16 * 8];
#pragma unroll 4
  for (int i = 0; i < kRows; i += 2) fetch(keys_to + i * kKeyStride, keys, i + half, row_bytes);
  const auto* mixes = reinterpret_cast<const std::byte*>(mix_of(p, chunk.begin + chunk.low, head)) + piece * 16;
  uint16_t* mixes_to = &stage.mix[piece / 8][piece % 8 * 8];
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    if (piece % 8 / 2 > block) continue;
#pragma unroll
    for (int i = 0; i < 16; i += 4)
      fetch(mixes_to + mix_at(block) + (i + thread / 32) * mix_stride(block), mixes, block * 16 + i + thread / 32,
            mix_bytes);
  }
  const auto* values = row + (2 * p.HK * kKeys + head * p.DV + first_column) * 4 + thread % 16 * 16;
#pragma unroll 4
  for (int i = thread / 16; i < kRows; i += kWalkThreads / 16)
    fetch(&stage.values[i][thread % 16 * 4], values, i, row_bytes);
  const int i = thread % kRows;
  const bool has = chunk.has(i);
  const int64_t at = int64_t{chunk.begin + (has ? i : chunk.low)} * p.HV + head;
  if (thread < kRows) {
    fetch4(&stage.decay[i], p.a + at, has ? 4 : 0);
  } else {
    fetch4(&stage.tail[i], p.b + at, has ? 4 : 0);
    if (i == 0) fetch4(&stage.total[0], p.a + int64_t{chunk.begin + chunk.high - 1} * p.HV + head, 4);
  }
}

// Two neighbouring tiles of sums as one operand of 16 values.
__device__ inline void split_tiles(const float (&first)[4], const float (&second)[4], uint32_t (&high)[4],
                                   uint32_t (&low)[4]) {
  const Halves parts[4] = {halves(first[0], first[1]), halves(first[2], first[3]), halves(second[0], second[1]),
                           halves(second[2], second[3])};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    high[i] = parts[i].high;
    low[i] = parts[i].low;
  }
}

using RowSums = float[8][4];  // Of a warp's 16 columns and 64 rows: tile of 8 rows, then as m16n8 lies.
using State = float[16][4];   // Of its 16 columns and 128 keys.

// to = S times each row of k or q.
__device__ inline void recall(const State& S, const KeyMatrix& keys_high, const KeyMatrix& keys_low, RowSums& to) {
  const int block = threadIdx.x % 32 / 8, row = block / 2 * 8 + threadIdx.x % 8, key = block % 2 * 8;
  const uint16_t *high_at = &keys_high[row][key], *low_at = &keys_low[row][key];
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) to[n][i] = 0;
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    uint32_t high[4], low[4], b_high[4][4], b_low[4][4];
    split_tiles(S[step * 2], S[step * 2 + 1], high, low);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      load_blocks(b_high[pair], high_at + (pair * 16 * kKeyStride + step * 16));
      load_blocks(b_low[pair], low_at + (pair * 16 * kKeyStride + step * 16));
    }
    multiply_add_halves<8>(to, high, low, b_high, b_low);
  }
}

// to_i += sum over j <= i of M_ij from_j, M one of T and P.
__device__ inline void mix(const RowSums& from, const uint16_t (&M_high)[kMixSize], const uint16_t (&M_low)[kMixSize],
                           RowSums& to) {
  const int block = threadIdx.x % 32 / 8, row = block / 2 * 8 + threadIdx.x % 8, j = block % 2 * 8;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    uint32_t high[4], low[4];
    split_tiles(from[step * 2], from[step * 2 + 1], high, low);
    uint32_t b_high[4][4], b_low[4][4];
#pragma unroll
    for (int pair = step; pair < 4; ++pair) {
      load_blocks(b_high[pair], M_high + mix_at(pair) + row * mix_stride(pair) + j + step * 16);
      load_blocks(b_low[pair], M_low + mix_at(pair) + row * mix_stride(pair) + j + step * 16);
    }
#pragma unroll
    for (int product = 0; product < 3; ++product)
#pragma unroll
      for (int n = step * 2; n < 8; ++n) {
        const auto& b = product == 1 ? b_low[n / 2] : b_high[n / 2];
        multiply_add(to[n], product == 0 ? low : high, {b[n % 2 * 2], b[n % 2 * 2 + 1]});
      }
  }
}

// S += the writes of all rows, each k_j times from_j.
__device__ inline void write_state(const RowSums& from, const Stage& stage, State& S) {
  const int block = threadIdx.x % 32 / 8, row = block % 2 * 8 + threadIdx.x % 8, key = block / 2 * 8;
  const uint16_t *high_at = &stage.keys[2][row][key], *low_at = &stage.keys[3][row][key];
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    uint32_t high[4], low[4];
    split_tiles(from[step * 2], from[step * 2 + 1], high, low);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t b_high[4][4], b_low[4][4];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        load_blocks_across(b_high[pair], high_at + (step * 16 * kKeyStride + half * 64 + pair * 16));
        load_blocks_across(b_low[pair], low_at + (step * 16 * kKeyStride + half * 64 + pair * 16));
      }
      multiply_add_halves<8>(S + half * 8, high, low, b_high, b_low);
    }
  }
}

// Calls body(tile, element, row, column) of a warp's sums; columns count from the block's first.
template <int kTiles, class Body>
__device__ inline void each_element(Body body) {
  const int thread = thread_again(), column = thread / 32 * 16 + thread % 32 / 4, row = thread % 4 * 2;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) body(n, i, n * 8 + row + i % 2, column + i / 2 * 8);
}

// One chunk: o of its rows, and S behind it.
__device__ inline void walk_chunk(const Gdn& p, const Chunk& chunk, int head, int first_column, const Stage& stage,
                                  State& S) {
  RowSums x, w;
  recall(S, stage.keys[2], stage.keys[3], x);
  each_element<8>([&](int n, int i, int row, int column) {
    x[n][i] = fmaf(-stage.decay[row], x[n][i], stage.values[row][column]);
  });
  each_element<8>([&](int n, int i, int, int) { w[n][i] = 0; });
  mix(x, stage.mix[0], stage.mix[1], w);
  RowSums o;
  recall(S, stage.keys[0], stage.keys[1], o);
  each_element<8>([&](int n, int i, int row, int) { o[n][i] *= stage.decay[row]; });
  mix(w, stage.mix[2], stage.mix[3], o);
  const int stride = static_cast<int>(p.HV * p.DV);
  float* to = p.o + (int64_t{chunk.begin} * p.HV + head) * p.DV + first_column;
  each_element<8>([&](int n, int i, int row, int column) { w[n][i] *= stage.tail[row]; });
  if (chunk.low == 0 && chunk.high == kRows) {
    each_element<8>([&](int n, int i, int row, int column) { to[row * stride + column] = o[n][i]; });
  } else {
    each_element<8>([&](int n, int i, int row, int column) {
      if (chunk.has(row)) to[row * stride + column] = o[n][i];
    });
  }
  const float total = stage.total[0];
#pragma unroll
  for (int n = 0; n < 16; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) S[n][i] *= total;
  write_state(w, stage, S);
}

// A warp has 16 columns of a head's state in registers, transposed, so that sums of one product are an operand of the
// next; warps share what they read alone. Half of the threads walk, the others fetch the next chunk meanwhile. Bound by
// the tensor cores: 696 steps of m16n8k16 for a warp and chunk. Grid: segments, value heads, groups of 64 columns.
__global__ void __launch_bounds__(2 * kWalkThreads, 1) gdn_walk_kernel(Gdn p) {
  extern __shared__ uint4 dynamic[];
  auto* stages = reinterpret_cast<Stage*>(dynamic);
  const SegmentView& segment = p.batch.segments[blockIdx.x];  // Read again where it is used: registers are short.
  const int head = static_cast<int>(blockIdx.y), first_column = static_cast<int>(blockIdx.z) * kWalkColumns;
  const int chunks = chunks_of(segment);
  if (threadIdx.x >= kWalkThreads) {
    fetch_chunk(p, chunk_of(segment, 0), head, first_column, stages[0]);
    for (int index = 0; index < chunks; ++index) {
      wait_for_fetches();
      meet();  // This chunk is there, and the one before it has been used.
      if (index + 1 < chunks) fetch_chunk(p, chunk_of(segment, index + 1), head, first_column, stages[(index + 1) % 2]);
    }
    return;
  }
  const auto state_at = [&] { return p.state_offset / 4 + int64_t{head} * kKeys * p.DV + first_column; };
  const auto* before = reinterpret_cast<const float*>(segment.state_in);
  State S;
  each_element<16>(
      [&](int n, int i, int key, int column) { S[n][i] = before ? before[state_at() + key * p.DV + column] : 0.0f; });
  const auto save = [&](std::byte* record) {
    float* to = reinterpret_cast<float*>(record) + state_at();
    each_element<16>([&](int n, int i, int key, int column) { to[key * p.DV + column] = S[n][i]; });
  };
  int capture = 0;
  for (int index = 0; index < chunks; ++index) {
    meet();
    const Chunk chunk = chunk_of(segment, index);
    walk_chunk(p, chunk, head, first_column, stages[index % 2], S);
    if (capture < segment.captures_count && segment.captures[capture].rows <= chunk.end) {
      if (segment.captures[capture].rows != chunk.end) __trap();  // Captures lie on the grid.
      save(segment.captures[capture++].anchor);
    }
  }
  save(segment.state_out);
}

}  // namespace

bool fits_chunks(const Gdn& p) {
  return p.DK == kKeys && p.DV % kWalkColumns == 0 && p.HV <= kHeads * p.HK && p.HV * 128 <= p.channels();
}

void gdn_chunks(Stream& stream, const Gdn& p) {
  WP_ASSERT(p.spare != nullptr);
  constexpr int inside = sizeof(Inside), walk = 2 * sizeof(Stage);
  WP_ASSERT(cudaFuncSetAttribute(gdn_inside_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, inside) ==
            cudaSuccess);
  WP_ASSERT(cudaFuncSetAttribute(gdn_walk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, walk) == cudaSuccess);
  const auto segments = static_cast<unsigned>(p.batch.segments_count);
  // A segment of R rows has at most R / 64 + 2 chunks.
  const unsigned chunks = static_cast<unsigned>(p.batch.rows) / kRows + 2 * segments;
  gdn_inside_kernel<<<dim3(chunks, blocks_for(p.HK, 1)), kThreads, inside, on(stream)>>>(p);
  gdn_walk_kernel<<<dim3(segments, blocks_for(p.HV, 1), blocks_for(p.DV, kWalkColumns)), 2 * kWalkThreads, walk,
                    on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
