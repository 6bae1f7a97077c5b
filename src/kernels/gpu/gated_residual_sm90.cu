// Hyper-connections of many rows on compute capability 9.0, in three launches: the norm, written as the products read
// it; down and inject, one after the other; up, whose gates are applied to the streams as they leave the tensor cores.
// What lies between is bf16 of 2 bytes an element; the streams are read twice, which bounds it.
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/wide.h"
#include "kernels/gpu/wide_product.h"

namespace wp::kernels::gpu {
namespace {

struct WideResidual {
  GatedResidual p;
  uint16_t* normed;  // [T, S * M] packed
  uint16_t* low;     // [T, R] packed
  float* scales;     // [T, S]: 1 / RMS of a stream
};

constexpr int kStreams = 4;  // Two rows of W of a thread in each of two groups of four warps.

// Grid: rows times streams. The sum is that of rms_norm.
template <WeightFormat F>
__global__ void pack_norm_kernel(WideResidual w) {
  __shared__ float shared[kThreads];
  const GatedResidual& p = w.p;
  const int64_t at = blockIdx.x * p.M, stream = blockIdx.x % p.S * p.M;
  const float scale = inverse_rms(p.M, p.epsilon, shared, [&](int64_t i) { return p.H[at + i]; });
  if (threadIdx.x == 0) w.scales[blockIdx.x] = scale;
  for (int64_t i = int64_t{threadIdx.x} * 4; i < p.M; i += kThreads * 4) {
    const float4 x = *reinterpret_cast<const float4*>(p.H + at + i);
    const float4 weight = __ldg(reinterpret_cast<const float4*>(p.norm + stream + i));
    const uint2 four = bf16_four<F>({x.x * scale * (1.0f + weight.x), x.y * scale * (1.0f + weight.y),
                                     x.z * scale * (1.0f + weight.z), x.w * scale * (1.0f + weight.w)});
    uint16_t* to = w.normed + at - stream + packed_place<F>(stream + i);
    *reinterpret_cast<uint32_t*>(to) = four.x;
    *reinterpret_cast<uint32_t*>(to + 8) = four.y;
  }
}

// Rows of down, then of inject. Grid: tiles of those, tiles of x.
template <int BT, WeightFormat F, WeightFormat kNext>
__global__ void __launch_bounds__(kThreads, 1) wide_down_kernel(WideResidual w) {
  extern __shared__ std::byte dynamic[];
  WideMemory<BT>& memory = begin_wide<BT>(dynamic);
  const GatedResidual& p = w.p;
  const int64_t t0 = int64_t{blockIdx.y} * BT, n0 = int64_t{blockIdx.x} * kWideRows, W = p.S * p.M;
  const int64_t rows = p.R + (p.weights ? p.S : 0);
  const auto row = [&](int64_t n) {
    const int64_t i = n < rows ? n : rows - 1;
    return i < p.R ? code_row<F>(p.down, i) : code_row<F>(p.inject, i - p.R);
  };
  float totals[BT / 2];
  multiply_wide<BT, F>(
      {.low = row(n0 + wide_row(0)),
       .high = row(n0 + wide_row(2)),
       .x = w.normed,
       .K = W,
       .first = 0,
       .last = static_cast<int>((W + slice_of(W) - 1) / slice_of(W))},
      [&](int i) -> const uint16_t* { return t0 + i < p.T ? w.normed + (t0 + i) * W : nullptr; }, memory, totals,
      [] {});
  const auto streams = static_cast<float>(p.S);
#pragma unroll
  for (int j = 0; j < BT / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t n = n0 + wide_row(i), t = t0 + wide_column(j, i);
      if (n >= rows || t >= p.T) continue;
      const float sum = totals[4 * j + i];
      if (n < p.R)
        w.low[t * p.R + packed_place<kNext>(n)] =
            static_cast<uint16_t>(bf16_pair(silu(sum * row_scale<F>(p.down, n) / streams), 0));
      else p.weights[t * p.S + n - p.R] = 2 * sigmoid(sum * row_scale<F>(p.inject, n - p.R) / streams);
    }
}

// What the gates are applied to, brought while the tile is multiplied. Rows are a little longer than they need to be,
// so that the threads of a warp meet no bank twice.
template <int BT>
struct StreamTile {
  float H[kStreams][BT][36];
  float scales[BT][kStreams];
};
template <int BT>
constexpr size_t kUpBytes = kWideBytes<BT> + sizeof(StreamTile<BT>);

// 32 columns from m0 of the streams of rows from t0.
template <int BT>
__device__ inline void copy_streams(const WideResidual& w, int64_t t0, int64_t m0, StreamTile<BT>& tile) {
  const GatedResidual& p = w.p;
  for (int at = threadIdx.x; at < kStreams * BT * 8; at += kThreads) {
    const int piece = at % 8, row = at / 8 % BT, stream = at / 8 / BT;
    const int64_t t = t0 + row < p.T ? t0 + row : p.T - 1;
    copy_ahead<16>(shared_address(&tile.H[stream][row][piece * 4]), p.H + (t * p.S + stream) * p.M + m0 + piece * 4);
  }
  for (int row = threadIdx.x; row < BT; row += kThreads)
    copy_ahead<16>(shared_address(tile.scales[row]), w.scales + (t0 + row < p.T ? t0 + row : p.T - 1) * kStreams);
}

// A tile holds the same 32 columns of the four streams: the first four warps have the first two, whose sum the others
// go on from. Grid: tiles of x, 32 columns.
template <int BT, WeightFormat F>
__global__ void __launch_bounds__(kThreads, 1) wide_up_kernel(WideResidual w) {
  extern __shared__ std::byte dynamic[];
  auto& tile = *reinterpret_cast<StreamTile<BT>*>(dynamic);
  WideMemory<BT>& memory = begin_wide<BT>(dynamic + sizeof(StreamTile<BT>));
  const GatedResidual& p = w.p;
  const int column = threadIdx.x / 32 % 4 * 8 + threadIdx.x % 32 / 4, first = threadIdx.x / 128 * 2;
  const int64_t t0 = int64_t{blockIdx.x} * BT, m0 = int64_t{blockIdx.y} * 32, m = m0 + column;
  const int64_t low = first * p.M + m, high = low + p.M;
  float totals[BT / 2];
  multiply_wide<BT, F>(
      {.low = code_row<F>(p.up, low),
       .high = code_row<F>(p.up, high),
       .x = w.low,
       .K = p.R,
       .first = 0,
       .last = static_cast<int>((p.R + slice_of(p.R) - 1) / slice_of(p.R))},
      [&](int i) -> const uint16_t* { return t0 + i < p.T ? w.low + (t0 + i) * p.R : nullptr; }, memory, totals,
      [&] { copy_streams<BT>(w, t0, m0, tile); });
  const float low_norm = 1.0f + p.norm[low], high_norm = 1.0f + p.norm[high];
  const float low_scale = row_scale<F>(p.up, low), high_scale = row_scale<F>(p.up, high);
  wait_copies<0>();
  __syncthreads();  // And nobody reads rows of x any more.
  auto& halves = *reinterpret_cast<float(*)[BT][36]>(&memory);
#pragma unroll
  for (int j = 0; j < BT / 8; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      totals[4 * j + i] = sigmoid(totals[4 * j + i] * low_scale);
      totals[4 * j + i + 2] = sigmoid(totals[4 * j + i + 2] * high_scale);
    }
  const auto add = [&](int j, int i, float sum) {
    const int row = wide_column(j, i);
    sum = fmaf(totals[4 * j + i], tile.H[first][row][column] * tile.scales[row][first] * low_norm, sum);
    return fmaf(totals[4 * j + i + 2], tile.H[first + 1][row][column] * tile.scales[row][first + 1] * high_norm, sum);
  };
  if (first == 0) {
#pragma unroll
    for (int j = 0; j < BT / 8; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) halves[wide_column(j, i)][column] = add(j, i, 0);
  }
  __syncthreads();
  if (first == 0) return;
#pragma unroll
  for (int j = 0; j < BT / 8; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t t = t0 + wide_column(j, i);
      const float sum = add(j, i, halves[wide_column(j, i)][column]);
      if (t < p.T) p.x[t * p.M + m] = sum / static_cast<float>(p.S);
    }
}

template <class Kernel>
bool asks_for(Kernel kernel, size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)) ==
         cudaSuccess;
}

template <WeightFormat F, WeightFormat kNext>
void launch(Stream& stream, const WideResidual& w) {
  constexpr int kDown = 128, kUp = 128;  // Rows of x in a tile.
  static const bool asked = asks_for(wide_down_kernel<kDown, F, kNext>, kWideBytes<kDown>) &&
                            asks_for(wide_up_kernel<kUp, kNext>, kUpBytes<kUp>);
  WP_ASSERT(asked);
  const GatedResidual& p = w.p;
  pack_norm_kernel<F><<<blocks_for(p.T * p.S, 1), kThreads, 0, on(stream)>>>(w);
  const dim3 down(blocks_for(p.R + (p.weights ? p.S : 0), kWideRows), blocks_for(p.T, kDown));
  wide_down_kernel<kDown, F, kNext><<<down, kThreads, kWideBytes<kDown>, on(stream)>>>(w);
  const dim3 up(blocks_for(p.T, kUp), blocks_for(p.M, 32));
  wide_up_kernel<kUp, kNext><<<up, kThreads, kUpBytes<kUp>, on(stream)>>>(w);
}

}  // namespace

bool gated_residual_wide(Stream& stream, const GatedResidual& p) {
  if (p.S != kStreams || p.M % 32 != 0 || !fits_stages(p.down) || !fits_stages(p.up)) return false;
  if (p.down.format != WeightFormat::bf16 || p.up.format != WeightFormat::bf16) return false;
  if (p.weights && p.inject.format != WeightFormat::bf16) return false;
  const int64_t low_bytes = (p.T * p.R * 2 + 255) / 256 * 256;  // In the memory of the gates, which nobody writes here.
  WP_ASSERT(low_bytes + p.T * p.S * 4 <= p.T * p.S * p.M * 4);
  auto* gates = reinterpret_cast<std::byte*>(p.gates);
  launch<WeightFormat::bf16, WeightFormat::bf16>(stream, {.p = p,
                                                          .normed = reinterpret_cast<uint16_t*>(p.normed),
                                                          .low = reinterpret_cast<uint16_t*>(gates),
                                                          .scales = reinterpret_cast<float*>(gates + low_bytes)});
  check_launch();
  return true;
}

}  // namespace wp::kernels::gpu
