// Products on tensor cores, bf16 operands and f32 sums: what matmul and experts share.
//
// One order for each shape of weights, whatever the number of rows and the tile they lie in: K is cut into slices
// (slice_of; experts in chains have one, wide.h); within a slice one chain of steps of 16 over ascending k; slices are
// added in ascending order. Within
// 32 values of k, thread `quad` of four takes 8 neighbours, 4 to a step: a fixed permutation that lets it load 16 bytes
// at a time. W lies on the M side, rows of x on the N side, in every kernel. The sum of a step does not depend on the
// place of its 16 products, nor on the instruction (mma.sync, wgmma): equal bits on the H200, tested at every tile.
#pragma once

#include "kernels/gpu/device_math.h"

namespace wp::kernels::gpu {

constexpr int kStep = 32;  // Values of k that are loaded together: two steps of the tensor core.

// Formats whose codes are exact in bf16, in whole steps. By the shape of the weight alone.
inline bool on_tensor_cores(const Matrix& W) {
  if (W.K % kStep != 0) return false;
  switch (W.format) {
    case WeightFormat::f32:
    case WeightFormat::f16: return false;
    case WeightFormat::fp8_block: return W.K % 128 == 0;
    default: return true;
  }
}

// Values of k in a slice. Eight slices or fewer, of long rows 32 or fewer; of fp8_block a slice is whole blocks.
constexpr int kFewSlices = 8, kSlicesMax = 32;
constexpr int64_t kLongRow = 8192;
__host__ __device__ constexpr int64_t slice_of(int64_t K) {
  const int64_t most = K >= kLongRow ? kSlicesMax : kFewSlices;
  return ((K + most - 1) / most + 127) / 128 * 128;
}

// c += a b over 16 values of k; a: 16 rows of W, b: 8 rows of x.
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Two f32, rounded to nearest even, the first in the low half.
__device__ inline uint32_t bf16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
// In which order four neighbours of k lie in two registers: nvfp4 codes come out of their word in pairs two apart.
template <WeightFormat F>
__device__ inline uint2 bf16_four(float4 x) {
  if constexpr (F == WeightFormat::nvfp4) return {bf16_pair(x.x, x.z), bf16_pair(x.y, x.w)};
  return {bf16_pair(x.x, x.y), bf16_pair(x.z, x.w)};
}
template <WeightFormat F>
__device__ inline uint4 bf16_eight(float4 a, float4 b) {
  const uint2 low = bf16_four<F>(a), high = bf16_four<F>(b);
  return {low.x, low.y, high.x, high.y};
}

__device__ inline uint32_t multiply_pair(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// A block's scale times 2^118, twice. A code's three bits, set where a bf16 has the end of its exponent and the start
// of its mantissa, are the code times 2^-126, subnormal or not; so the product of both is exact and 2^-8 of the weight,
// which the row's scale makes good.
constexpr float kNvfp4Unit = 0x1p8f;
__device__ inline uint32_t nvfp4_scale(uint8_t code) {
  const float scale = e4m3_value(code) * 0x1p118f;
  return bf16_pair(scale, scale);
}

// Codes 0 to 7 as (0, 2), (1, 3), (4, 6), (5, 7).
__device__ inline uint4 nvfp4_eight(uint32_t codes, uint32_t scale) {
  const auto pair = [&](uint32_t at_the_top) {
    return multiply_pair((at_the_top & 0x80008000) | (at_the_top >> 6 & 0x01C001C0), scale);
  };
  const uint32_t low = __byte_perm(codes, 0, 0x1404), high = __byte_perm(codes, 0, 0x3424);
  return {pair(low << 4), pair(low), pair(high << 4), pair(high)};
}

__device__ inline uint4 fp8_eight(uint2 codes) {
  const auto pair = [](uint32_t two) {
    return bf16_pair(e4m3_value(static_cast<uint8_t>(two)), e4m3_value(static_cast<uint8_t>(two >> 8)));
  };
  return {pair(codes.x), pair(codes.x >> 16), pair(codes.y), pair(codes.y >> 16)};
}

// Eight codes of W in row n from k, k % 8 == 0, as bf16; exact. What scales the sum is in row_scale and block_scale.
template <WeightFormat F>
__device__ inline uint4 eight_codes(const Matrix& W, int64_t n, int64_t k) {
  const int64_t at = n * W.K + k;
  if constexpr (F == WeightFormat::bf16) {
    return __ldg(reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(W.data) + at));
  } else if constexpr (F == WeightFormat::nvfp4) {
    const uint32_t codes = __ldg(reinterpret_cast<const uint32_t*>(static_cast<const uint8_t*>(W.data) + at / 2));
    return nvfp4_eight(codes, nvfp4_scale(__ldg(static_cast<const uint8_t*>(W.scale) + at / 16)));
  } else {
    return fp8_eight(__ldg(reinterpret_cast<const uint2*>(static_cast<const uint8_t*>(W.data) + at)));
  }
}

// What the finished sum of row n is multiplied by.
template <WeightFormat F>
__device__ inline float row_scale(const Matrix& W, int64_t n) {
  if constexpr (F == WeightFormat::nvfp4) return W.scale_2 * kNvfp4Unit;
  if constexpr (F == WeightFormat::fp8_tensor) return scale_value(W, 0);
  if constexpr (F == WeightFormat::fp8_row) return scale_value(W, n);
  return 1;
}

// Calls f with the format as a constant; of the formats that tensor cores take.
template <class F>
void with_tensor_format(WeightFormat format, F f) {
  switch (format) {
    case WeightFormat::bf16: return f(std::integral_constant<WeightFormat, WeightFormat::bf16>());
    case WeightFormat::fp8_tensor: return f(std::integral_constant<WeightFormat, WeightFormat::fp8_tensor>());
    case WeightFormat::fp8_row: return f(std::integral_constant<WeightFormat, WeightFormat::fp8_row>());
    case WeightFormat::fp8_block: return f(std::integral_constant<WeightFormat, WeightFormat::fp8_block>());
    case WeightFormat::nvfp4: return f(std::integral_constant<WeightFormat, WeightFormat::nvfp4>());
    default: WP_ASSERT(false);
  }
}

// A tile of 128 rows of W times BT rows of x, by 256 threads: warps 2 along W, 4 along x. Shared memory holds two steps
// of both, as bf16 in rows of 64 bytes, which 8 threads read without a conflict.
template <int BT>
struct TensorTile {
  static constexpr int BN = 128;
  uint4 w[2][BN][kStep / 8];
  uint4 x[2][BT][kStep / 8];
};

// The sums of this thread: [16 rows of W: 4][8 rows of x: kTokens][of m16n8: 4].
template <int BT>
using TensorSums = float[4][BT / 32][4];

// w(i, k): eight codes of tile row i of W. x(i): pointer to row i of x or null. scale(i, block) of 128 values of k
// of fp8_block. K a multiple of kStep. `slice` values of k are summed apart.
template <int BT, WeightFormat F, class W8, class X, class Scale>
__device__ inline void multiply_on_tensor_cores(int64_t K, int64_t slice, W8 w, X x, Scale scale, TensorTile<BT>& tile,
                                                TensorSums<BT>& totals) {
  constexpr bool kBlockScaled = F == WeightFormat::fp8_block;
  constexpr int kWLoads = TensorTile<BT>::BN * 4 / kThreads, kXLoads = BT * 8 / kThreads, kTokens = BT / 32;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
  const int n_at = warp % 2 * 64 + group, t_at = warp / 2 * (BT / 4) + group;
  uint4 next_w[kWLoads];
  float4 next_x[kXLoads];
  const float* rows[kXLoads];
#pragma unroll
  for (int i = 0; i < kXLoads; ++i) rows[i] = x((threadIdx.x + i * kThreads) / 8);
  const auto load = [&](int64_t k0) {
#pragma unroll
    for (int i = 0; i < kWLoads; ++i) {
      const int at = threadIdx.x + i * kThreads;
      next_w[i] = w(at / 4, k0 + at % 4 * 8);
    }
#pragma unroll
    for (int i = 0; i < kXLoads; ++i) {
      const int at = threadIdx.x + i * kThreads;
      next_x[i] = rows[i] ? __ldg(reinterpret_cast<const float4*>(rows[i] + k0) + at % 8) : float4{0, 0, 0, 0};
    }
  };
  const auto store = [&](int stage) {
#pragma unroll
    for (int i = 0; i < kWLoads; ++i) {
      const int at = threadIdx.x + i * kThreads;
      tile.w[stage][at / 4][at % 4] = next_w[i];
    }
#pragma unroll
    for (int i = 0; i < kXLoads; ++i) {
      const int at = threadIdx.x + i * kThreads;
      reinterpret_cast<uint2*>(tile.x[stage][at / 8])[at % 8] = bf16_four<F>(next_x[i]);
    }
  };
  float sums[4][kTokens][4], scaled[kBlockScaled ? 4 : 1][kBlockScaled ? kTokens : 1][4];
  const auto each = [](auto body) {
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
      for (int n = 0; n < kTokens; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) body(m, n, i);
  };
  const auto clear = [&](auto& c) { each([&](int m, int n, int i) { c[m][n][i] = 0; }); };
  clear(sums);
  if constexpr (kBlockScaled) clear(scaled);
  clear(totals);
  load(0);
  store(0);
  __syncthreads();
  int stage = 0;
  for (int64_t k0 = 0; k0 < K; k0 += kStep) {
    const bool more = k0 + kStep < K;
    if (more) load(k0 + kStep);
    uint4 b[kTokens];
#pragma unroll
    for (int n = 0; n < kTokens; ++n) b[n] = tile.x[stage][t_at + n * 8][quad];
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const uint4 low = tile.w[stage][n_at + m * 16][quad], high = tile.w[stage][n_at + m * 16 + 8][quad];
      const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int n = 0; n < kTokens; ++n) {
        multiply_add(sums[m][n], first, {b[n].x, b[n].y});
        multiply_add(sums[m][n], second, {b[n].z, b[n].w});
      }
    }
    if constexpr (kBlockScaled) {
      if ((k0 + kStep) % 128 == 0) {
        each([&](int m, int n, int i) {
          const float factor = scale(warp % 2 * 64 + m * 16 + group + i / 2 * 8, k0 / 128);
          scaled[m][n][i] = fmaf(sums[m][n][i], factor, scaled[m][n][i]);
        });
        clear(sums);
      }
    }
    if (!more || (k0 + kStep) % slice == 0) {
      if constexpr (kBlockScaled) {
        each([&](int m, int n, int i) { totals[m][n][i] += scaled[m][n][i]; });
        clear(scaled);
      } else {
        each([&](int m, int n, int i) { totals[m][n][i] += sums[m][n][i]; });
        clear(sums);
      }
    }
    if (more) store(stage ^ 1);
    __syncthreads();
    stage ^= 1;
  }
}

// Where sums[m][n][i] of this thread lies in the tile: row of W, row of x.
__device__ inline int sum_row(int m, int i) {
  return threadIdx.x / 32 % 2 * 64 + m * 16 + threadIdx.x % 32 / 4 + i / 2 * 8;
}
template <int BT>
__device__ inline int sum_column(int n, int i) {
  return threadIdx.x / 64 * (BT / 4) + n * 8 + threadIdx.x % 4 * 2 + i % 2;
}

// Calls body(row of W in the tile, row of x in the tile, sum).
template <int BT, class Body>
__device__ inline void each_sum(const TensorSums<BT>& sums, Body body) {
#pragma unroll
  for (int m = 0; m < 4; ++m)
#pragma unroll
    for (int n = 0; n < BT / 32; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) body(sum_row(m, i), sum_column<BT>(n, i), sums[m][n][i]);
}

// Few rows: 16 rows of W times kTokens groups of 8 rows of x; a warp sums slices `first`, `first` + `step` and so on,
// slice i into slices[i - offset]. `low` and `high`: the rows of W of this thread's group of four, in their matrices;
// x[n]: its row of group n, or null. Then every thread of the block may read any sum of the 16 by 8 kTokens.
struct WeightRow {
  const Matrix& W;
  int64_t n;
};
template <int kTokens, int kSlices = kFewSlices>
using Slices = float[kSlices][kTokens * 8][16];
struct SlicesOfWarp {
  int first, step, offset;
};
__device__ inline SlicesOfWarp by_warps() { return {static_cast<int>(threadIdx.x / 32), kThreads / 32, 0}; }

template <int kTokens, WeightFormat F, int kSlices>
__device__ inline void multiply_few_rows(WeightRow low, WeightRow high, const float* const (&x)[kTokens],
                                         float (&slices)[kSlices][kTokens * 8][16], SlicesOfWarp mine) {
  constexpr bool kBlockScaled = F == WeightFormat::fp8_block;
  const int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  const int64_t K = low.W.K, slice = slice_of(K);
  for (int i = mine.first; i - mine.offset < kSlices && i * slice < K; i += mine.step) {
    const int64_t begin = i * slice, end = begin + slice < K ? begin + slice : K;
    float sums[kTokens][4] = {}, totals[kTokens][4] = {};
#pragma unroll(kTokens == 1 ? 6 : 4)
    for (int64_t k0 = begin; k0 < end; k0 += kStep) {
      const int64_t k = k0 + quad * 8;
      const uint4 a = eight_codes<F>(low.W, low.n, k), b = eight_codes<F>(high.W, high.n, k);
      const uint32_t first[4] = {a.x, b.x, a.y, b.y}, second[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
      for (int n = 0; n < kTokens; ++n) {
        uint4 t{0, 0, 0, 0};
        if (x[n]) {
          const auto* from = reinterpret_cast<const float4*>(x[n] + k);
          t = bf16_eight<F>(__ldg(from), __ldg(from + 1));
        }
        multiply_add(sums[n], first, {t.x, t.y});
        multiply_add(sums[n], second, {t.z, t.w});
      }
      if (kBlockScaled && (k0 + kStep) % 128 == 0) {
        const int64_t blocks = K / 128;
        const float scales[2] = {scale_value(low.W, low.n / 128 * blocks + k0 / 128),
                                 scale_value(high.W, high.n / 128 * blocks + k0 / 128)};
#pragma unroll
        for (int n = 0; n < kTokens; ++n)
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            totals[n][j] = fmaf(sums[n][j], scales[j / 2], totals[n][j]);
            sums[n][j] = 0;
          }
      }
    }
#pragma unroll
    for (int n = 0; n < kTokens; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        slices[i - mine.offset][n * 8 + quad * 2 + j % 2][group + j / 2 * 8] = kBlockScaled ? totals[n][j] : sums[n][j];
  }
  __syncthreads();
}

template <int kTokens, int kSlices>
__device__ inline float sliced_sum(const float (&slices)[kSlices][kTokens * 8][16], int64_t K, int t, int n) {
  float total = 0;
  for (int i = 0; i < kSlices && i * slice_of(K) < K; ++i) total += slices[i][t][n];
  return total;
}

}  // namespace wp::kernels::gpu
