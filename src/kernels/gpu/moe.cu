// Mixture of experts: the three products of each expert over its rows, the weighted sum.
#include <cmath>
#include <type_traits>

#include "kernels/gpu/expert_tiles.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/tensor_cores.h"
#include "kernels/gpu/tile.h"
#include "kernels/gpu/wide.h"

namespace wp::kernels::gpu {
namespace {

// hidden = silu(gate x) * (up x). Grid: tiles of F, experts; a block walks its expert's rows.
template <class S, WeightFormat F>
__global__ void gate_up_kernel(Experts p) {
  __shared__ TileMemory<S> memory;
  const int32_t begin = p.offsets[blockIdx.y], end = p.offsets[blockIdx.y + 1];
  if (begin == end) return;
  const ExpertWeights expert = p.matrices[blockIdx.y];
  const int64_t n0 = int64_t{blockIdx.x} * S::BN;
  for (int32_t at = begin; at < end; at += S::BT) {
    const auto row = [&](int t) { return at + t < end ? p.x + p.order[at + t] / p.A * p.M : nullptr; };
    float gate[S::RT][S::RN], up[S::RT][S::RN];
    multiply_tile<S, F>(expert.gate, n0, row, memory, gate);
    multiply_tile<S, F>(expert.up, n0, row, memory, up);
#pragma unroll
    for (int i = 0; i < S::RT; ++i)
#pragma unroll
      for (int j = 0; j < S::RN; ++j) gate[i][j] = silu(gate[i][j]) * up[i][j];
    each_output<S>(gate, [&](int t, int n, float value) {
      if (at + t < end && n0 + n < p.F) p.hidden[p.order[at + t] * 2 * p.F + n0 + n] = value;
    });
  }
}

// Grid: tiles of M, experts.
template <class S, WeightFormat F>
__global__ void down_kernel(Experts p) {
  __shared__ TileMemory<S> memory;
  const int32_t begin = p.offsets[blockIdx.y], end = p.offsets[blockIdx.y + 1];
  if (begin == end) return;
  const Matrix down = p.matrices[blockIdx.y].down;
  const int64_t n0 = int64_t{blockIdx.x} * S::BN;
  for (int32_t at = begin; at < end; at += S::BT) {
    const auto row = [&](int t) { return at + t < end ? p.hidden + p.order[at + t] * 2 * p.F : nullptr; };
    float sums[S::RT][S::RN];
    multiply_tile<S, F>(down, n0, row, memory, sums);
    each_output<S>(sums, [&](int t, int n, float value) {
      if (at + t < end && n0 + n < p.M) p.outputs[p.order[at + t] * p.M + n0 + n] = value;
    });
  }
}

// One block of threads. Tiles of lower experts come first.
__global__ void list_tiles_kernel(Experts p, int32_t rows) {
  __shared__ int32_t ends[kThreads];
  auto* list = reinterpret_cast<TileList*>(p.workspace.data);
  const int64_t run = (p.E + kThreads - 1) / kThreads, first = threadIdx.x * run;
  const int64_t last = first + run < p.E ? first + run : p.E;
  const auto tiles = [&](int64_t e) { return (p.offsets[e + 1] - p.offsets[e] + rows - 1) / rows; };
  int32_t mine = 0;
  for (int64_t e = first; e < last; ++e) mine += tiles(e);
  ends[threadIdx.x] = mine;
  __syncthreads();
  for (int far = 1; far < kThreads; far *= 2) {
    const int32_t before = static_cast<int>(threadIdx.x) >= far ? ends[threadIdx.x - far] : 0;
    __syncthreads();
    ends[threadIdx.x] += before;
    __syncthreads();
  }
  int32_t at = ends[threadIdx.x] - mine;
  for (int64_t e = first; e < last; ++e)
    for (int32_t row = p.offsets[e], end = p.offsets[e + 1]; row < end; row += rows)
      list->tiles[at++] = {static_cast<int32_t>(e), row, row + rows < end ? row + rows : end};
  if (threadIdx.x == kThreads - 1) list->count = ends[threadIdx.x];
}

// hidden = silu(gate x) * (up x) for 64 of F: tile rows are 16 of gate, the same 16 of up, and so on, so that a thread
// has both. Grid: F / 64, tiles.
template <int BT, WeightFormat F>
__global__ void __launch_bounds__(kThreads) wide_gate_up_kernel(Experts p) {
  __shared__ TensorTile<BT> memory;
  ExpertTile tile;
  if (!tile_of(p, tile)) return;
  const ExpertWeights& expert = p.matrices[tile.expert];
  const Matrix gate = expert.gate, up = expert.up;
  const int64_t f0 = int64_t{blockIdx.x} * 64;
  const auto column = [&](int i) { return f0 + i / 64 * 32 + i % 64 / 32 * 16 + i % 16; };
  const auto is_up = [](int i) { return i / 16 % 2 == 1; };
  const auto w = [&](int i, int64_t k) -> uint4 {
    return column(i) < p.F ? eight_codes<F>(is_up(i) ? up : gate, column(i), k) : uint4{0, 0, 0, 0};
  };
  const auto scale = [&](int i, int64_t block) {
    const int64_t n = column(i) < p.F ? column(i) : 0;
    return scale_value(is_up(i) ? up : gate, n / 128 * (p.M / 128) + block);
  };
  TensorSums<BT> sums;
  multiply_on_tensor_cores<BT, F>(
      p.M, slice_of(p.M), w, [&](int t) { return input_row(p, tile, t); }, scale, memory, sums);
#pragma unroll
  for (int m = 0; m < 4; m += 2)
#pragma unroll
    for (int n = 0; n < BT / 32; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = sum_row(m, i), t = sum_column<BT>(n, i);
        const int64_t f = column(at);
        if (f >= p.F || tile.begin + t >= tile.end) continue;
        p.hidden[int64_t{p.order[tile.begin + t]} * 2 * p.F + f] =
            silu(sums[m][n][i] * row_scale<F>(gate, f)) * (sums[m + 1][n][i] * row_scale<F>(up, f));
      }
}

// Grid: tiles of M, tiles.
template <int BT, WeightFormat F>
__global__ void __launch_bounds__(kThreads) wide_down_kernel(Experts p) {
  __shared__ TensorTile<BT> memory;
  ExpertTile tile;
  if (!tile_of(p, tile)) return;
  const Matrix down = p.matrices[tile.expert].down;
  const int64_t n0 = int64_t{blockIdx.x} * TensorTile<BT>::BN;
  const auto w = [&](int i, int64_t k) -> uint4 {
    return n0 + i < p.M ? eight_codes<F>(down, n0 + i, k) : uint4{0, 0, 0, 0};
  };
  const auto scale = [&](int i, int64_t block) {
    return scale_value(down, (n0 + i < p.M ? n0 + i : 0) / 128 * (p.F / 128) + block);
  };
  TensorSums<BT> sums;
  multiply_on_tensor_cores<BT, F>(
      p.F, slice_of(p.F), w, [&](int t) { return hidden_row(p, tile, t); }, scale, memory, sums);
  each_sum<BT>(sums, [&](int n, int t, float sum) {
    if (tile.begin + t < tile.end && n0 + n < p.M)
      p.outputs[p.order[tile.begin + t] * p.M + n0 + n] = sum * row_scale<F>(down, n0 + n);
  });
}

// Up to 8 rows of an expert; 8 of F, gate and up side by side. Grid: F / 8, tiles.
template <WeightFormat F>
__global__ void __launch_bounds__(kThreads) few_gate_up_kernel(Experts p) {
  __shared__ Slices<1> slices;
  ExpertTile tile;
  if (!tile_of(p, tile)) return;
  const ExpertWeights& expert = p.matrices[tile.expert];
  const Matrix gate = expert.gate, up = expert.up;
  const int group = threadIdx.x % 32 / 4;
  const int64_t f0 = int64_t{blockIdx.x} * 8, f = f0 + group < p.F ? f0 + group : p.F - 1;
  const float* x[1] = {input_row(p, tile, group)};
  multiply_few_rows<1, F>({gate, f}, {up, f}, x, slices, by_warps());
  if (threadIdx.x >= 64) return;
  const int t = threadIdx.x / 8, n = threadIdx.x % 8;
  if (tile.begin + t >= tile.end || f0 + n >= p.F) return;
  p.hidden[int64_t{p.order[tile.begin + t]} * 2 * p.F + f0 + n] =
      silu(sliced_sum<1>(slices, p.M, t, n) * row_scale<F>(gate, f0 + n)) *
      (sliced_sum<1>(slices, p.M, t, n + 8) * row_scale<F>(up, f0 + n));
}

// Grid: M / 16, tiles.
template <WeightFormat F>
__global__ void __launch_bounds__(kThreads) few_down_kernel(Experts p) {
  __shared__ Slices<1> slices;
  ExpertTile tile;
  if (!tile_of(p, tile)) return;
  const Matrix down = p.matrices[tile.expert].down;
  const int group = threadIdx.x % 32 / 4;
  const int64_t n0 = int64_t{blockIdx.x} * 16, last = p.M - 1;
  const float* x[1] = {hidden_row(p, tile, group)};
  multiply_few_rows<1, F>({down, n0 + group < last ? n0 + group : last},
                          {down, n0 + group + 8 < last ? n0 + group + 8 : last}, x, slices, by_warps());
  const int t = threadIdx.x / 16, n = threadIdx.x % 16;
  if (t < 8 && tile.begin + t < tile.end && n0 + n < p.M)
    p.outputs[p.order[tile.begin + t] * p.M + n0 + n] = sliced_sum<1>(slices, p.F, t, n) * row_scale<F>(down, n0 + n);
}

// By ascending expert, then the shared one. Thread per (t, m).
__global__ void combine_kernel(Experts p) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, t = i / p.M, m = i % p.M;
  if (t >= p.T) return;
  float sum = 0;
  for (int64_t a = 0; a < p.A; ++a) sum = fmaf(p.weights[t * p.A + a], p.outputs[(t * p.A + a) * p.M + m], sum);
  p.y[i] = fmaf(sigmoid(p.shared_gate[t]), p.shared[i], sum);
}

template <class S>
void launch_experts(Stream& stream, const Experts& p, WeightFormat gate_up, WeightFormat down) {
  const auto E = static_cast<unsigned>(p.E);
  with_format(gate_up, [&](auto format) {
    gate_up_kernel<S, format()><<<dim3(blocks_for(p.F, S::BN), E), kThreads, 0, on(stream)>>>(p);
  });
  with_format(down, [&](auto format) {
    down_kernel<S, format()><<<dim3(blocks_for(p.M, S::BN), E), kThreads, 0, on(stream)>>>(p);
  });
}

template <int BT>
void launch_wide(Stream& stream, const Experts& p, WeightFormat gate_up, WeightFormat down) {
  const unsigned tiles = list_tiles(stream, p, BT);
  with_tensor_format(gate_up, [&](auto format) {
    wide_gate_up_kernel<BT, format()><<<dim3(blocks_for(p.F, 64), tiles), kThreads, 0, on(stream)>>>(p);
  });
  with_tensor_format(down, [&](auto format) {
    wide_down_kernel<BT, format()><<<dim3(blocks_for(p.M, 128), tiles), kThreads, 0, on(stream)>>>(p);
  });
}

void launch_few(Stream& stream, const Experts& p, WeightFormat gate_up, WeightFormat down) {
  WP_ASSERT(p.M < kLongRow && p.F < kLongRow);
  const unsigned tiles = list_tiles(stream, p, 8);
  with_tensor_format(gate_up, [&](auto format) {
    few_gate_up_kernel<format()><<<dim3(blocks_for(p.F, 8), tiles), kThreads, 0, on(stream)>>>(p);
  });
  with_tensor_format(down, [&](auto format) {
    few_down_kernel<format()><<<dim3(blocks_for(p.M, 16), tiles), kThreads, 0, on(stream)>>>(p);
  });
}

// Any of them gives the same bits: tiles are for speed.
void launch_on_tensor_cores(Stream& stream, const Experts& p, WeightFormat gate_up, WeightFormat down) {
  const int64_t choices = p.T * p.A;
  if (experts_in_chains(p)) {
    if (choices <= 4 * p.E || !experts_wide(stream, p)) experts_few(stream, p);
    return;
  }
  if (choices <= 4 * p.E) return launch_few(stream, p, gate_up, down);
  if (choices <= 40 * p.E) return launch_wide<32>(stream, p, gate_up, down);
  launch_wide<64>(stream, p, gate_up, down);
}

}  // namespace

unsigned list_tiles(Stream& stream, const Experts& p, int32_t rows) {
  const int64_t choices = p.T * p.A, all = choices / rows + p.E, most = all < choices ? all : choices;
  WP_ASSERT(static_cast<int64_t>(sizeof(TileList)) + most * static_cast<int64_t>(sizeof(ExpertTile)) <=
            p.workspace.bytes_per_thread * p.workspace.threads);
  list_tiles_kernel<<<1, kThreads, 0, on(stream)>>>(p, rows);
  return static_cast<unsigned>(most);
}

void experts(Stream& stream, const Experts& p) {
  const WeightFormat gate_up = p.first.gate.format, down = p.first.down.format;
  if (on_tensor_cores(p.first.gate) && on_tensor_cores(p.first.down)) launch_on_tensor_cores(stream, p, gate_up, down);
  else if (p.T * p.A <= kSlimRows * p.E) launch_experts<SlimTile>(stream, p, gate_up, down);
  else launch_experts<WideTile>(stream, p, gate_up, down);
  combine_kernel<<<blocks_for(p.T * p.M, kThreads), kThreads, 0, on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
