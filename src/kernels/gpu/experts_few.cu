// Experts of few rows: up to 8 rows of x of one expert times 16 rows of its weights by each warp, one chain over
// ascending k, so that the bits are those of many rows (experts_sm90.cu). Bound by the bytes of the weights: every warp
// copies its codes to shared memory kAhead stages before it multiplies them.
#include "kernels/gpu/code_stage.h"
#include "kernels/gpu/expert_tiles.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/wide.h"

namespace wp::kernels::gpu {
namespace {

constexpr int kWarps = kThreads / 32, kRows = 16, kTokens = 8;

// Of one warp.
template <WeightFormat F>
struct WarpStages {
  static constexpr int kSlots = F == WeightFormat::nvfp4 ? 12 : F == WeightFormat::bf16 ? 3 : 6, kAhead = kSlots - 1;
  CodeStage<F, kRows> slot[kSlots];
};

// Rows of x as bf16, as the thread that multiplies a run of 8 loads them; a row's end keeps rows off the same banks.
struct RowsOfX {
  uint4* rows;
  int64_t stride;  // Of a row, in uint4.
};
constexpr int64_t stride_of(int64_t K) { return K / 8 + 1; }

// x(i): row i or null. All threads; then they wait for each other.
template <WeightFormat F, class X>
__device__ inline void load_rows(RowsOfX to, int64_t K, X x) {
  for (int64_t at = threadIdx.x; at < kTokens * K / 8; at += kThreads) {
    const int64_t row = at / (K / 8), run = at % (K / 8);
    uint4 eight{0, 0, 0, 0};
    if (const float* from = x(static_cast<int>(row))) {
      const auto* four = reinterpret_cast<const float4*>(from + run * 8);
      eight = chain_eight<F>(four[0], four[1]);
    }
    to.rows[row * to.stride + run] = eight;
  }
}

// w(i): matrix and row of this warp's row i; load: brings the block's rows of x. sums as multiply_add has them.
template <WeightFormat F, class W, class Load>
__device__ inline void multiply_rows(W w, int64_t K, RowsOfX x, Load load, WarpStages<F>& memory, float (&sums)[4]) {
  using Stages = WarpStages<F>;
  constexpr int kPieces = StageFormat<F>::kPieces, kCopies = kRows * kPieces / 32 > 0 ? kRows * kPieces / 32 : 1;
  const int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4, stages = static_cast<int>(K / kStageK);
  const uint8_t *codes[kCopies], *scales = nullptr;
#pragma unroll
  for (int j = 0; j < kCopies; ++j) {
    const WeightRow row = w((lane + j * 32) / kPieces);
    codes[j] = codes_of<F>(row.W, row.n) + lane % kPieces * 16;
  }
  if constexpr (F == WeightFormat::nvfp4) {
    const WeightRow row = w(lane % kRows);
    scales = scales_of(row.W, row.n);
  }
  const auto copy = [&](int s) {
    if (s < stages) {
      auto& stage = memory.slot[s % Stages::kSlots];
#pragma unroll
      for (int j = 0; j < kCopies; ++j) {
        const int row = (lane + j * 32) / kPieces;
        copy_ahead<16>(shared_address(&stage.pieces[row][stage.place(row, lane % kPieces)]),
                       codes[j] + s * StageFormat<F>::kRowBytes);
      }
      if constexpr (F == WeightFormat::nvfp4)
        if (lane < kRows) copy_ahead<4>(shared_address(&stage.scales[lane]), scales + s * 4);
    }
    commit_copies();
  };
  for (int s = 0; s < Stages::kAhead; ++s) copy(s);
  load();
  __syncthreads();
  for (int s = 0; s < stages; ++s) {
    wait_copies<Stages::kAhead - 1>();
    __syncwarp();
    uint32_t a[4][4];
    decode_pair(memory.slot[s % Stages::kSlots], group, group + 8, a);
    const uint4* from = x.rows + group * x.stride + s * 8 + quad * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 b = from[i];
      multiply_add(sums, a[2 * i], {b.x, b.y});
      multiply_add(sums, a[2 * i + 1], {b.z, b.w});
    }
    copy(s + Stages::kAhead);  // Into the slot of the stage before, which the whole warp has read.
  }
}

template <WeightFormat F>
constexpr size_t bytes_of(int64_t K) {
  return sizeof(WarpStages<F>) * kWarps + static_cast<size_t>(kTokens * stride_of(K)) * sizeof(uint4);
}
template <WeightFormat F>
__device__ inline RowsOfX rows_behind_stages(std::byte* dynamic, int64_t K) {
  return {reinterpret_cast<uint4*>(dynamic + sizeof(WarpStages<F>) * kWarps), stride_of(K)};
}

// Grid: F / 64, tiles. A warp: 8 of F, gate and up.
template <WeightFormat F>
__global__ void __launch_bounds__(kThreads) few_gate_up_kernel(Experts p) {
  extern __shared__ uint4 dynamic[];
  ExpertTile tile;
  if (!tile_of(p, tile)) return;
  const RowsOfX x = rows_behind_stages<F>(reinterpret_cast<std::byte*>(dynamic), p.M);
  const ExpertWeights& expert = p.matrices[tile.expert];
  const int warp = threadIdx.x / 32, quad = threadIdx.x % 4;
  const int64_t f0 = (int64_t{blockIdx.x} * kWarps + warp) * 8, f = f0 + threadIdx.x % 32 / 4;
  float sums[4] = {};
  multiply_rows<F>(
      [&](int i) {
        return WeightRow{i < 8 ? expert.gate : expert.up, f0 + i % 8};
      },
      p.M, x, [&] { load_rows<F>(x, p.M, [&](int i) { return input_row(p, tile, i); }); },
      reinterpret_cast<WarpStages<F>*>(dynamic)[warp], sums);
  const float gate_scale = row_scale<F>(expert.gate, f), up_scale = row_scale<F>(expert.up, f);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int32_t at = tile.begin + quad * 2 + i;
    if (at < tile.end)
      p.hidden[int64_t{p.order[at]} * 2 * p.F + f] = silu(sums[i] * gate_scale) * (sums[i + 2] * up_scale);
  }
}

// Grid: M / 128, tiles. A warp: 16 of M.
template <WeightFormat F>
__global__ void __launch_bounds__(kThreads) few_down_kernel(Experts p) {
  extern __shared__ uint4 dynamic[];
  ExpertTile tile;
  if (!tile_of(p, tile)) return;
  const RowsOfX x = rows_behind_stages<F>(reinterpret_cast<std::byte*>(dynamic), p.F);
  const Matrix& down = p.matrices[tile.expert].down;
  const int warp = threadIdx.x / 32, quad = threadIdx.x % 4, group = threadIdx.x % 32 / 4;
  const int64_t n0 = (int64_t{blockIdx.x} * kWarps + warp) * kRows;
  float sums[4] = {};
  multiply_rows<F>(
      [&](int i) {
        return WeightRow{down, n0 + i < p.M ? n0 + i : p.M - 1};
      },
      p.F, x, [&] { load_rows<F>(x, p.F, [&](int i) { return hidden_row(p, tile, i); }); },
      reinterpret_cast<WarpStages<F>*>(dynamic)[warp], sums);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int32_t at = tile.begin + quad * 2 + i % 2;
    const int64_t n = n0 + group + i / 2 * 8;
    if (at < tile.end && n < p.M) p.outputs[p.order[at] * p.M + n] = sums[i] * row_scale<F>(down, n);
  }
}

template <class Kernel>
void allow(Kernel kernel, size_t bytes) {
  WP_ASSERT(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)) ==
            cudaSuccess);
}

template <WeightFormat F>
void launch(Stream& stream, const Experts& p) {
  const unsigned tiles = list_tiles(stream, p, kTokens);
  allow(few_gate_up_kernel<F>, bytes_of<F>(p.M));
  allow(few_down_kernel<F>, bytes_of<F>(p.F));
  few_gate_up_kernel<F><<<dim3(blocks_for(p.F, 8 * kWarps), tiles), kThreads, bytes_of<F>(p.M), on(stream)>>>(p);
  few_down_kernel<F><<<dim3(blocks_for(p.M, kRows * kWarps), tiles), kThreads, bytes_of<F>(p.F), on(stream)>>>(p);
}

}  // namespace

bool experts_in_chains(const Experts& p) {
  const Matrix &gate = p.first.gate, &down = p.first.down;
  return fits_stages(gate) && fits_stages(down) && gate.format == down.format &&
         bytes_of<WeightFormat::bf16>(p.M > p.F ? p.M : p.F) <= 200 << 10;
}

void experts_few(Stream& stream, const Experts& p) {
  switch (p.first.gate.format) {
    case WeightFormat::bf16: launch<WeightFormat::bf16>(stream, p); break;
    case WeightFormat::nvfp4: launch<WeightFormat::nvfp4>(stream, p); break;
    case WeightFormat::fp8_tensor: launch<WeightFormat::fp8_tensor>(stream, p); break;
    case WeightFormat::fp8_row: launch<WeightFormat::fp8_row>(stream, p); break;
    default: WP_ASSERT(false);
  }
  check_launch();
}

}  // namespace wp::kernels::gpu
