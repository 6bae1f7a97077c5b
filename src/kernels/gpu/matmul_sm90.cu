// Products with dense weights, many rows, on compute capability 9.0. x becomes bf16 once, in memory lent to the stream;
// then tiles of 128 rows of W times 64 or 128 rows of x. Bound by arithmetic; where one product has fewer tiles than
// the device multiprocessors, its slices of K are tiles too, added afterwards in their order.
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/wide.h"
#include "kernels/gpu/wide_product.h"

namespace wp::kernels::gpu {
namespace {

struct WideMatmul {
  Matmul p;
  const uint16_t* x;  // [T, K] packed
  float* partial;     // [slices, T, N], or null: all slices in one tile.
  int slices;
};

constexpr int kTileRun = 16;  // Tiles of x that are worked on together, so that they stay in the second-level cache.

// Tile b of the grid: runs of kTileRun tiles of x; within one, all tiles of x for each tile of W.
struct TilePlace {
  int64_t t, n;
};
__device__ inline TilePlace place_of(int64_t b, int64_t tiles_t, int64_t tiles_n) {
  const int64_t run = b / (kTileRun * tiles_n), first = run * kTileRun;
  const int64_t width = tiles_t - first < kTileRun ? tiles_t - first : kTileRun, in_run = b - first * tiles_n;
  return {first + in_run % width, in_run / width};
}

// Grid: tiles, slices where they are apart.
template <int BT, WeightFormat F>
__global__ void __launch_bounds__(kThreads, 1) wide_matmul_kernel(WideMatmul w) {
  extern __shared__ std::byte dynamic[];
  WideMemory<BT>& memory = begin_wide<BT>(dynamic);
  const Matmul& p = w.p;
  const TilePlace place = place_of(blockIdx.x, (p.T + BT - 1) / BT, (p.W.N + kWideRows - 1) / kWideRows);
  const int64_t t0 = place.t * BT, n0 = place.n * kWideRows, last = p.W.N - 1;
  const auto code_row_at = [&](int64_t n) { return code_row<F>(p.W, n < last ? n : last); };
  const int first = w.partial ? static_cast<int>(blockIdx.y) : 0;
  float totals[BT / 2];
  multiply_wide<BT, F>(
      {.low = code_row_at(n0 + wide_row(0)),
       .high = code_row_at(n0 + wide_row(2)),
       .x = w.x,
       .K = p.W.K,
       .first = first,
       .last = w.partial ? first + 1 : w.slices},
      [&](int i) { return t0 + i < p.T ? w.x + (t0 + i) * p.W.K : nullptr; }, memory, totals, [] {});
#pragma unroll
  for (int j = 0; j < BT / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t n = n0 + wide_row(i), t = t0 + wide_column(j, i);
      if (n > last || t >= p.T) continue;
      if (w.partial) w.partial[(first * p.T + t) * p.W.N + n] = totals[4 * j + i];
      else p.y[t * p.y_stride + n] = totals[4 * j + i] * row_scale<F>(p.W, n);
    }
}

// Thread per (t, n).
template <WeightFormat F>
__global__ void add_slices_kernel(WideMatmul w) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x, count = w.p.T * w.p.W.N, n = at % w.p.W.N;
  if (at >= count) return;
  float total = 0;
  for (int i = 0; i < w.slices; ++i) total += w.partial[i * count + at];
  w.p.y[at / w.p.W.N * w.p.y_stride + n] = total * row_scale<F>(w.p.W, n);
}

template <int BT, WeightFormat F>
void launch(Stream& stream, const WideMatmul& w) {
  const auto tiles = blocks_for(w.p.T, BT) * blocks_for(w.p.W.N, kWideRows);
  static const bool asked = [] {
    return cudaFuncSetAttribute(wide_matmul_kernel<BT, F>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(kWideBytes<BT>)) == cudaSuccess;
  }();
  WP_ASSERT(asked);
  const dim3 grid(tiles, w.partial ? static_cast<unsigned>(w.slices) : 1);
  wide_matmul_kernel<BT, F><<<grid, kThreads, kWideBytes<BT>, on(stream)>>>(w);
  if (w.partial) add_slices_kernel<F><<<blocks_for(w.p.T * w.p.W.N, kThreads), kThreads, 0, on(stream)>>>(w);
}

template <WeightFormat F>
void multiply(Stream& stream, const MatmulGroup& p, const Lent& lent) {
  const int64_t K = p.products[0].W.K, packed = (p.T * K * 2 + 255) / 256 * 256;
  auto* x = reinterpret_cast<uint16_t*>(lent.data);
  pack_rows_kernel<F>
      <<<blocks_for(p.T * K / 16, kThreads), kThreads, 0, on(stream)>>>(p.T, K, p.x, p.x_stride, p.rows, x);
  const bool half = p.T <= 64 || (p.T > 128 && p.T <= 192);
  for (int i = 0; i < p.count; ++i) {
    const int64_t N = p.products[i].W.N, slices = (K + slice_of(K) - 1) / slice_of(K);
    WideMatmul w{.p = p.at(i), .x = x, .partial = nullptr, .slices = static_cast<int>(slices)};
    const int64_t tiles = int64_t{blocks_for(p.T, half ? 64 : 128)} * blocks_for(N, kWideRows);
    if (tiles <= 100 && slices > 1 && packed + slices * p.T * N * 4 <= lent.size_bytes)
      w.partial = reinterpret_cast<float*>(lent.data + packed);
    if (half) launch<64, F>(stream, w);
    else launch<128, F>(stream, w);
  }
}

}  // namespace

bool matmul_wide(Stream& stream, const MatmulGroup& p) {
  for (int i = 0; i < p.count; ++i)
    if (!fits_stages(p.products[i].W)) return false;
  const Lent lent = lent_to(stream);
  const int64_t rows_max = lent.size_bytes / (p.products[0].W.K * 2);
  if (rows_max < 64) return false;
  for (int64_t begin = 0; begin < p.T; begin += rows_max) {
    MatmulGroup part = p;
    part.T = p.T - begin < rows_max ? p.T - begin : rows_max;
    if (p.rows) part.rows += begin;
    else part.x += begin * p.x_stride;
    for (int i = 0; i < p.count; ++i) part.products[i].y += begin * part.products[i].y_stride;
    switch (p.products[0].W.format) {
      case WeightFormat::bf16: multiply<WeightFormat::bf16>(stream, part, lent); break;
      case WeightFormat::nvfp4: multiply<WeightFormat::nvfp4>(stream, part, lent); break;
      case WeightFormat::fp8_tensor: multiply<WeightFormat::fp8_tensor>(stream, part, lent); break;
      case WeightFormat::fp8_row: multiply<WeightFormat::fp8_row>(stream, part, lent); break;
      default: WP_ASSERT(false);
    }
  }
  check_launch();
  return true;
}

}  // namespace wp::kernels::gpu
