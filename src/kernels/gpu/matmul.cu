// Products with dense weights. On tensor cores where the weight's codes are exact in bf16; else f32. Bound by
// arithmetic at many rows and by the bytes of W at few.
#include <type_traits>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/tensor_cores.h"
#include "kernels/gpu/tile.h"
#include "kernels/gpu/wide.h"

namespace wp::kernels::gpu {
namespace {

// y[t, n] = <x[row(t)], W[n]> in f32. Grid: tiles of n, tiles of t.
template <class S, WeightFormat F>
__global__ void matmul_kernel(Matmul p) {
  __shared__ TileMemory<S> memory;
  const int64_t n0 = int64_t{blockIdx.x} * S::BN, t0 = int64_t{blockIdx.y} * S::BT;
  const auto row = [&](int t) -> const float* {
    if (t0 + t >= p.T) return nullptr;
    return p.x + (p.rows ? p.rows[t0 + t] : t0 + t) * p.x_stride;
  };
  float sums[S::RT][S::RN];
  multiply_tile<S, F>(p.W, n0, row, memory, sums);
  each_output<S>(sums, [&](int t, int n, float sum) {
    if (t0 + t < p.T && n0 + n < p.W.N) p.y[(t0 + t) * p.y_stride + n0 + n] = sum;
  });
}

template <class S>
void launch_matmul(Stream& stream, const Matmul& p) {
  const dim3 grid(blocks_for(p.W.N, S::BN), blocks_for(p.T, S::BT));
  with_format(p.W.format, [&](auto format) { matmul_kernel<S, format()><<<grid, kThreads, 0, on(stream)>>>(p); });
  check_launch();
}

__device__ const float* row_of(const Matmul& p, int64_t t) {
  return t < p.T ? p.x + (p.rows ? p.rows[t] : t) * p.x_stride : nullptr;
}

// Many rows. Grid: tiles of t, tiles of n: neighbours share W.
template <int BT, WeightFormat F>
__global__ void __launch_bounds__(kThreads) matmul_wide_kernel(Matmul p) {
  __shared__ TensorTile<BT> tile;
  const int64_t t0 = int64_t{blockIdx.x} * BT, n0 = int64_t{blockIdx.y} * TensorTile<BT>::BN;
  const auto w = [&](int i, int64_t k) -> uint4 {
    return n0 + i < p.W.N ? eight_codes<F>(p.W, n0 + i, k) : uint4{0, 0, 0, 0};
  };
  const auto scale = [&](int i, int64_t block) {
    return n0 + i < p.W.N ? scale_value(p.W, (n0 + i) / 128 * ((p.W.K + 127) / 128) + block) : 0.0f;
  };
  TensorSums<BT> sums;
  multiply_on_tensor_cores<BT, F>(
      p.W.K, slice_of(p.W.K), w, [&](int i) { return row_of(p, t0 + i); }, scale, tile, sums);
  each_sum<BT>(sums, [&](int n, int t, float sum) {
    if (t0 + t < p.T && n0 + n < p.W.N) p.y[(t0 + t) * p.y_stride + n0 + n] = sum * row_scale<F>(p.W, n0 + n);
  });
}

constexpr int kSkinnyRows = 32;  // Up to here W is read once, each slice of K by a warp of its own.

// Few rows of x or of W. Grid: 16 rows of one of the weights, 8 kTokens rows of x.
template <int kTokens, WeightFormat F, int kSlices>
__global__ void __launch_bounds__(kThreads) matmul_skinny_kernel(MatmulGroup group_of) {
  __shared__ Slices<kTokens, kSlices> slices;
  const int group = threadIdx.x % 32 / 4;
  int index = 0;
  int64_t tile = blockIdx.x;
#pragma unroll
  for (int i = 0; i + 1 < kProductsMax; ++i) {
    const int64_t tiles = (group_of.products[i].W.N + 15) / 16;
    if (index == i && i + 1 < group_of.count && tile >= tiles) ++index, tile -= tiles;
  }
  const Matmul p = group_of.at(index);
  const int64_t n0 = tile * 16, last = p.W.N - 1, t0 = int64_t{blockIdx.y} * 8 * kTokens;
  const auto at_most_last = [&](int64_t n) { return n < last ? n : last; };
  const float* x[kTokens];
#pragma unroll
  for (int n = 0; n < kTokens; ++n) x[n] = row_of(p, t0 + n * 8 + group);
  multiply_few_rows<kTokens, F>({p.W, at_most_last(n0 + group)}, {p.W, at_most_last(n0 + group + 8)}, x, slices,
                                by_warps());
  for (int at = threadIdx.x; at < kTokens * 8 * 16; at += kThreads) {
    const int t = at / 16, n = at % 16;
    if (t0 + t < p.T && n0 + n < p.W.N)
      p.y[(t0 + t) * p.y_stride + n0 + n] = sliced_sum<kTokens>(slices, p.W.K, t, n) * row_scale<F>(p.W, n0 + n);
  }
}

template <int kTokens, int kSlices = kFewSlices>
void launch_skinny(Stream& stream, const MatmulGroup& p) {
  unsigned tiles = 0;
  for (int i = 0; i < p.count; ++i) tiles += blocks_for(p.products[i].W.N, 16);
  const dim3 grid(tiles, blocks_for(p.T, 8 * kTokens));
  with_tensor_format(p.products[0].W.format, [&](auto format) {
    matmul_skinny_kernel<kTokens, format(), kSlices><<<grid, kThreads, 0, on(stream)>>>(p);
  });
}

void launch_wide(Stream& stream, const Matmul& p) {
  with_tensor_format(p.W.format, [&](auto format) {
    // Sums of blocks, of slices and of all take more registers.
    constexpr int BT = decltype(format)::value == WeightFormat::fp8_block ? 64 : 128;
    const dim3 grid(blocks_for(p.T, BT), blocks_for(p.W.N, TensorTile<BT>::BN));
    matmul_wide_kernel<BT, decltype(format)::value><<<grid, kThreads, 0, on(stream)>>>(p);
  });
}

template <class Products>
bool rows_are_aligned(const Products& p) {
  return p.x_stride % 4 == 0 && reinterpret_cast<uintptr_t>(p.x) % 16 == 0;
}

MatmulGroup alone(const Matmul& p) {
  return {.T = p.T,
          .x = p.x,
          .x_stride = p.x_stride,
          .rows = p.rows,
          .count = 1,
          .products = {{.W = p.W, .y = p.y, .y_stride = p.y_stride}}};
}

// One format, on tensor cores.
bool is_uniform(const MatmulGroup& p) {
  for (int i = 0; i < p.count; ++i)
    if (!on_tensor_cores(p.products[i].W) || p.products[i].W.format != p.products[0].W.format) return false;
  return true;
}

void launch_few(Stream& stream, const MatmulGroup& p) {
  WP_ASSERT(rows_are_aligned(p));  // Activations of whole steps lie so.
  if (p.products[0].W.K >= kLongRow)
    p.T <= 8 ? launch_skinny<1, kSlicesMax>(stream, p) : launch_skinny<2, kSlicesMax>(stream, p);
  else if (p.T <= 8) launch_skinny<1>(stream, p);
  else if (p.T <= 16) launch_skinny<2>(stream, p);
  else launch_skinny<4>(stream, p);
  check_launch();
}

}  // namespace

void matmul(Stream& stream, const Matmul& p) {
  if (on_tensor_cores(p.W)) {
    if (p.W.N <= 16 || p.T <= kSkinnyRows) return launch_few(stream, alone(p));
    WP_ASSERT(rows_are_aligned(p));
    if (!matmul_wide(stream, alone(p))) launch_wide(stream, p);
    return check_launch();
  }
  if (p.T <= kSlimRows) return launch_matmul<SlimTile>(stream, p);
  launch_matmul<WideTile>(stream, p);
}

void matmul_group(Stream& stream, const MatmulGroup& p) {
  if (is_uniform(p)) {
    if (p.T <= kSkinnyRows) return launch_few(stream, p);
    if (matmul_wide(stream, p)) return;
  }
  for (int i = 0; i < p.count; ++i) matmul(stream, p.at(i));
}

}  // namespace wp::kernels::gpu
