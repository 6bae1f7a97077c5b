// Experts of many rows on compute capability 9.0. x becomes bf16 once, in memory lent to the stream. A tile is 64 rows
// of an expert's weights for each group of four warps, times up to BT of its rows of x; codes and rows of x are copied
// to shared memory well ahead, for weights are read once and come from far away. Each sum is one chain over ascending
// k, as few rows have it (experts_few.cu). Bound by arithmetic from about 50 rows an expert on, by the bytes of the
// weights below; sixteen warps of a multiprocessor hide each other's decoding.
#include "kernels/gpu/expert_tiles.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/wide.h"
#include "kernels/gpu/wide_product.h"

namespace wp::kernels::gpu {
namespace {

// x [T, M] and hidden [T * A, F], in the grouping's order, both packed.
struct WideExperts {
  Experts p;
  const uint16_t* x;
  uint16_t* hidden;
};

// Shapes of a tile: kGroups groups of four warps, BT rows of x, weights of format F.
template <int kGroups, int BT, WeightFormat F>
struct Tile {
  static constexpr int kWarps = kGroups * 4, kThreads = kWarps * 32, kRows = kGroups * 64;
  static constexpr int kSlots = F == WeightFormat::bf16 ? 4 : kGroups == 2 ? 5 : F == WeightFormat::nvfp4 ? 8 : 6;
  static constexpr int kAhead = kSlots - 2;
  static constexpr int kPieces = StageFormat<F>::kPieces, kRowBytes = StageFormat<F>::kRowBytes;
  static constexpr int kCodeCopies = kRows * kPieces / kThreads > 0 ? kRows* kPieces / kThreads : 1;
  static constexpr int kXCopies = (BT * 8 + kThreads - 1) / kThreads;

  struct Memory {
    uint16_t x[kSlots][BT][kStageK];
    CodeStage<F, kRows> codes[kSlots];
    uint64_t full[kSlots], empty[kSlots];
  };
  static constexpr size_t kBytes = sizeof(Memory) + 1024;  // Aligned within what a launch asks for.

  static __device__ Memory& begin(std::byte* dynamic) {
    const uint32_t at = shared_address(dynamic);
    auto& memory = *reinterpret_cast<Memory*>(dynamic + ((at + 1023) / 1024 * 1024 - at));
    if (threadIdx.x < kSlots) {
      make_barrier(memory.full[threadIdx.x], kWarps);
      make_barrier(memory.empty[threadIdx.x], kWarps);
    }
    __syncthreads();
    return memory;
  }

  // What this thread copies of each stage, and where in the first slot it goes. w(i): matrix and row of tile row i;
  // x(i): row i of the packed rows, or null; any_x: one of them.
  struct Copies {
    const uint8_t *codes[kCodeCopies], *scales = nullptr;
    const uint16_t* x[kXCopies];
    int x_bytes[kXCopies];

    template <class W, class X>
    __device__ Copies(W w, X row_of_x, const uint16_t* any_x) {
#pragma unroll
      for (int j = 0; j < kCodeCopies; ++j) {
        const WeightRow row = w((threadIdx.x + j * kThreads) / kPieces);
        codes[j] = codes_of<F>(row.W, row.n) + threadIdx.x % kPieces * 16;
      }
      if (F == WeightFormat::nvfp4 && threadIdx.x < kRows) {
        const WeightRow row = w(threadIdx.x);
        scales = scales_of(row.W, row.n);
      }
#pragma unroll
      for (int i = 0; i < kXCopies; ++i) {
        const int at = (threadIdx.x + i * kThreads) / 8;
        const uint16_t* from = at < BT ? row_of_x(at) : nullptr;
        x_bytes[i] = from ? 16 : 0;
        x[i] = (from ? from : any_x) + threadIdx.x % 8 * 8;
      }
    }

    // Stage s into the slot that all have left.
    __device__ void copy(Memory& memory, int s) const {
      const int slot = s % kSlots;
      if (s >= kSlots) wait(memory.empty[slot], (s / kSlots - 1) % 2);
      auto& stage = memory.codes[slot];
      const int first = threadIdx.x / kPieces;
      const uint32_t to = shared_address(&stage.pieces[first][stage.place(first, threadIdx.x % kPieces)]);
#pragma unroll
      for (int j = 0; j < kCodeCopies; ++j) copy_ahead<16>(to + j * kThreads * 16, codes[j] + s * kRowBytes);
      if (F == WeightFormat::nvfp4 && threadIdx.x < kRows)
        copy_ahead<4>(shared_address(&stage.scales[threadIdx.x]), scales + s * 4);
      const int row = threadIdx.x / 8;
      const uint32_t x_to = shared_address(&memory.x[slot][row][(threadIdx.x % 8 ^ row % 8) * 8]);
#pragma unroll
      for (int i = 0; i < kXCopies; ++i)
        if ((i + 1) * kThreads <= BT * 8 || row + i * kThreads / 8 < BT)
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(x_to + i * kThreads * 16),
                       "l"(x[i] + s * kStageK), "r"(x_bytes[i])
                       : "memory");
    }
  };

  // sums[4 j + i]: tile row tile_row(i), row of x wide_column(j, i).
  static __device__ void multiply(const Copies& copies, int stages, Memory& memory, float (&sums)[BT / 2]) {
    const auto publish = [&](int s) {
      wait_copies<kAhead - 1>();
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(memory.full[s % kSlots]);
    };
    for (int s = 0; s < kAhead; ++s) {
      if (s < stages) copies.copy(memory, s);
      commit_copies();
    }
    publish(0);
    uint32_t a[2][4][4];
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const auto stage = [&](int s, uint32_t(&mine)[4][4]) {
      if (s + kAhead < stages) copies.copy(memory, s + kAhead);
      commit_copies();
      publish(s + 1);
      const int slot = s % kSlots;
      wait(memory.full[slot], s / kSlots % 2);
      decode_pair(memory.codes[slot], row, row + 8, mine);
      const uint64_t rows = describe_rows(shared_address(memory.x[slot]));
      fence_wgmma();
#pragma unroll
      for (int step = 0; step < 4; ++step)
        multiply_add_wide<BT>(sums, mine[step], at_step(rows, step), s > 0 || step > 0);
      commit_wgmma();
      wait_wgmma<1>();
      if (s > 0 && threadIdx.x % 32 == 0) arrive(memory.empty[(s - 1) % kSlots]);
    };
    int s = 0;
    for (; s + 1 < stages; s += 2) {
      stage(s, a[0]);
      stage(s + 1, a[1]);
    }
    if (s < stages) stage(s, a[0]);
    wait_wgmma<0>();
  }
};

// Row of a tile whose sums a thread has: of m64, two.
__device__ inline int tile_row(int i) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 * 8; }

constexpr int kGateUpGroups = 4, kDownGroups = 2;

// hidden = silu(gate x) * (up x): tile rows are 8 of gate, the same 8 of up, and so on, so that a thread has both.
// Grid: tiles of F, tiles of rows.
template <int BT, WeightFormat F>
__global__ void __launch_bounds__(kGateUpGroups * 128, 1) wide_gate_up_kernel(WideExperts w) {
  using Shape = Tile<kGateUpGroups, BT, F>;
  extern __shared__ std::byte dynamic[];
  const Experts& p = w.p;
  ExpertTile tile;
  if (!tile_of(p, tile)) return;
  auto& memory = Shape::begin(dynamic);
  const ExpertWeights& expert = p.matrices[tile.expert];
  const int64_t f0 = int64_t{blockIdx.x} * (Shape::kRows / 2), last = p.F - 1;
  const typename Shape::Copies copies(
      [&](int i) {
        const int64_t f = f0 + i / 16 * 8 + i % 8;
        return WeightRow{i % 16 < 8 ? expert.gate : expert.up, f < last ? f : last};
      },
      [&](int i) { return tile.begin + i < tile.end ? w.x + p.order[tile.begin + i] / p.A * p.M : nullptr; }, w.x);
  float sums[BT / 2];
  Shape::multiply(copies, static_cast<int>(p.M / kStageK), memory, sums);
  const int64_t f = f0 + tile_row(0) / 16 * 8 + tile_row(0) % 8;
  if (f > last) return;
  const float gate_scale = row_scale<F>(expert.gate, f), up_scale = row_scale<F>(expert.up, f);
  uint16_t* to = w.hidden + chain_place<F>(f);
#pragma unroll
  for (int j = 0; j < BT / 8; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t at = tile.begin + wide_column(j, i);
      if (at >= tile.end) continue;
      const float value = silu(sums[4 * j + i] * gate_scale) * (sums[4 * j + i + 2] * up_scale);
      to[at * p.F] = static_cast<uint16_t>(bf16_pair(value, 0));
    }
}

// Grid: tiles of M, tiles of rows.
template <int BT, WeightFormat F>
__global__ void __launch_bounds__(kDownGroups * 128, 2) wide_down_kernel(WideExperts w) {
  using Shape = Tile<kDownGroups, BT, F>;
  extern __shared__ std::byte dynamic[];
  const Experts& p = w.p;
  ExpertTile tile;
  if (!tile_of(p, tile)) return;
  auto& memory = Shape::begin(dynamic);
  const Matrix& down = p.matrices[tile.expert].down;
  const int64_t n0 = int64_t{blockIdx.x} * Shape::kRows, last = p.M - 1;
  const typename Shape::Copies copies(
      [&](int i) {
        return WeightRow{down, n0 + i < last ? n0 + i : last};
      },
      [&](int i) -> const uint16_t* {
        const int64_t at = tile.begin + i;
        return at < tile.end ? w.hidden + at * p.F : nullptr;
      },
      w.hidden);
  float sums[BT / 2];
  Shape::multiply(copies, static_cast<int>(p.F / kStageK), memory, sums);
  const int64_t n = n0 + tile_row(0);
  if (n > last) return;  // Rows of M come in eights: with n also the row 8 further, or neither.
  const float low_scale = row_scale<F>(down, n), high_scale = n + 8 <= last ? row_scale<F>(down, n + 8) : 0;
#pragma unroll
  for (int j = 0; j < BT / 8; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t at = tile.begin + wide_column(j, i);
      if (at >= tile.end) continue;
      float* to = p.outputs + p.order[at] * p.M + n;
      to[0] = sums[4 * j + i] * low_scale;
      if (n + 8 <= last) to[8] = sums[4 * j + i + 2] * high_scale;
    }
}

template <int BT, WeightFormat F>
void launch(Stream& stream, const WideExperts& w) {
  using GateUp = Tile<kGateUpGroups, BT, F>;
  using Down = Tile<kDownGroups, BT, F>;
  static const bool asked = [] {
    const auto ask = [](auto kernel, size_t bytes) {
      return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)) ==
             cudaSuccess;
    };
    return ask(wide_gate_up_kernel<BT, F>, GateUp::kBytes) && ask(wide_down_kernel<BT, F>, Down::kBytes);
  }();
  WP_ASSERT(asked);
  const unsigned tiles = list_tiles(stream, w.p, BT);
  const dim3 gate_up(blocks_for(w.p.F, GateUp::kRows / 2), tiles), down(blocks_for(w.p.M, Down::kRows), tiles);
  wide_gate_up_kernel<BT, F><<<gate_up, GateUp::kThreads, GateUp::kBytes, on(stream)>>>(w);
  wide_down_kernel<BT, F><<<down, Down::kThreads, Down::kBytes, on(stream)>>>(w);
}

// x [T, K] f32 to bf16 in the order of chains; thread per 16 values of k that one thread of four multiplies.
template <WeightFormat F>
__global__ void pack_chains_kernel(int64_t T, int64_t K, const float* x, uint16_t* packed) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= T * K / 16) return;
  const auto* from = reinterpret_cast<const float4*>(x + at * 16);
  auto* to = reinterpret_cast<uint32_t*>(packed + at / 4 * 64 + at % 4 * 2);
#pragma unroll
  for (int word = 0; word < 2; ++word) {
    const uint4 eight = chain_eight<F>(__ldg(from + word * 2), __ldg(from + word * 2 + 1));
    to[word * 16] = eight.x;
    to[word * 16 + 4] = eight.y;
    to[word * 16 + 8] = eight.z;
    to[word * 16 + 12] = eight.w;
  }
}

template <WeightFormat F>
void compute(Stream& stream, const Experts& p, std::byte* lent) {
  auto* x = reinterpret_cast<uint16_t*>(lent);
  pack_chains_kernel<F><<<blocks_for(p.T * p.M / 16, kThreads), kThreads, 0, on(stream)>>>(p.T, p.M, p.x, x);
  const WideExperts w{.p = p, .x = x, .hidden = reinterpret_cast<uint16_t*>(p.hidden)};
  const int64_t each = p.T * p.A / p.E;  // Rows of an expert, in the mean.
  if (each <= 24) launch<32, F>(stream, w);
  else if (each <= 52) launch<64, F>(stream, w);
  else launch<96, F>(stream, w);
}

}  // namespace

bool experts_wide(Stream& stream, const Experts& p) {
  const Lent lent = lent_to(stream);
  if (lent.size_bytes < p.T * p.M * 2) return false;
  switch (p.first.gate.format) {
    case WeightFormat::bf16: compute<WeightFormat::bf16>(stream, p, lent.data); break;
    case WeightFormat::nvfp4: compute<WeightFormat::nvfp4>(stream, p, lent.data); break;
    case WeightFormat::fp8_tensor: compute<WeightFormat::fp8_tensor>(stream, p, lent.data); break;
    case WeightFormat::fp8_row: compute<WeightFormat::fp8_row>(stream, p, lent.data); break;
    default: WP_ASSERT(false);
  }
  check_launch();
  return true;
}

}  // namespace wp::kernels::gpu
