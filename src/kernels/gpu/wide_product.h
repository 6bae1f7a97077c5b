// Products of many rows on compute capability 9.0: rows of W go from global memory to registers, are decoded there and
// multiplied by rows of x that lie in shared memory as bf16. The order of sums is that of tensor_cores.h, so the bits
// are those of its kernels. Included by *_sm90.cu alone.
#pragma once

#include "kernels/gpu/code_stage.h"
#include "kernels/gpu/wgmma.h"

namespace wp::kernels::gpu {

constexpr int kAhead = 3, kStages = kAhead + 2;  // Stages under way; the slots they take in turn.
constexpr int kWideRows = 128;                   // Rows of W in a tile: 64 to each of two groups of four warps.

// Rows of x are bf16 [rows, K] in the order of k in which a format's codes are multiplied: where element k of a row
// lies, in whole runs of 32.
template <WeightFormat F>
__host__ __device__ constexpr int64_t packed_place(int64_t k) {
  const int64_t quad = k % 32 / 8, step = k % 8 / 4, i = k % 4;
  const int64_t in_step = F == WeightFormat::nvfp4 ? i / 2 + i % 2 * 8 : i % 2 + i / 2 * 8;
  return k / 32 * 32 + step * 16 + quad * 2 + in_step;
}

template <int BT>
struct WideMemory {
  uint16_t x[kStages][BT][kStageK];
  uint64_t full[kStages], empty[kStages];
};
template <int BT>
constexpr size_t kWideBytes = sizeof(WideMemory<BT>) + 1024;  // Aligned within what a launch asks for.

// A phase ends with the arrival of `count` threads.
__device__ inline void make_barrier(uint64_t& barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count));
}
__device__ inline void arrive(uint64_t& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
// Until the phase of this parity has ended.
__device__ inline void wait(uint64_t& barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra over;\n"
      "bra again;\nover:\n}\n" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}

// Called by all threads of the block.
template <int BT>
__device__ inline WideMemory<BT>& begin_wide(std::byte* dynamic) {
  const uint32_t at = shared_address(dynamic);
  auto& memory = *reinterpret_cast<WideMemory<BT>*>(dynamic + ((at + 1023) / 1024 * 1024 - at));
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      make_barrier(memory.full[i], kThreads / 32);
      make_barrier(memory.empty[i], kThreads / 32);
    }
  }
  __syncthreads();
  return memory;
}

// One row of W, from its first code.
struct CodeRow {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;  // nvfp4.
};
template <WeightFormat F>
__device__ inline CodeRow code_row(const Matrix& W, int64_t n) {
  const auto *codes = static_cast<const uint8_t*>(W.data), *scales = static_cast<const uint8_t*>(W.scale);
  if constexpr (F == WeightFormat::bf16) return {codes + n * W.K * 2, nullptr};
  if constexpr (F == WeightFormat::nvfp4) return {codes + n * W.K / 2, scales + n * W.K / 16};
  return {codes + n * W.K, nullptr};
}

// This thread's codes of a stage: 8 values of k of each run of 32.
template <WeightFormat F>
struct StageCodes {
  using Word =
      std::conditional_t<F == WeightFormat::bf16, uint4, std::conditional_t<F == WeightFormat::nvfp4, uint32_t, uint2>>;
  Word words[2];
  uint8_t scales[2];
};

template <WeightFormat F>
__device__ inline void load_codes(const CodeRow& row, int64_t k, StageCodes<F>& codes) {
  constexpr int kWord = sizeof(typename StageCodes<F>::Word);  // Of eight codes.
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    codes.words[i] = __ldg(reinterpret_cast<const typename StageCodes<F>::Word*>(row.codes + (k + 32 * i) / 8 * kWord));
    if constexpr (F == WeightFormat::nvfp4) codes.scales[i] = __ldg(row.scales + (k + 32 * i) / 16);
  }
}

template <WeightFormat F>
__device__ inline uint4 decode(const StageCodes<F>& codes, int i) {
  if constexpr (F == WeightFormat::bf16) return codes.words[i];
  else if constexpr (F == WeightFormat::nvfp4) return nvfp4_eight(codes.words[i], nvfp4_scale(codes.scales[i]));
  else return fp8_eight(codes.words[i]);
}

// Copies stages of BT rows of x to shared memory. Thread: 16 bytes of rows threadIdx.x / 8 + 32 i.
template <int BT>
class RowsOfX {
 public:
  // row(i): row i of the tile, or null for zeros; x: any row.
  template <class Row>
  __device__ RowsOfX(WideMemory<BT>& memory, const uint16_t* x, Row row) : memory_(memory) {
#pragma unroll
    for (int i = 0; i < BT / 32; ++i) {
      const uint16_t* from = row(threadIdx.x / 8 + 32 * i);
      bytes_[i] = from ? 16 : 0;
      from_[i] = (from ? from : x) + threadIdx.x % 8 * 8;
    }
  }
  // Stage `s`, of 64 values from k on, into its slot, which all have left.
  __device__ void copy(int s, int64_t k) {
    const int slot = s % kStages;
    if (s >= kStages) wait(memory_.empty[slot], (s / kStages - 1) % 2);
    const uint32_t to = shared_address(&memory_.x[slot][threadIdx.x / 8][(threadIdx.x % 8 ^ threadIdx.x / 8 % 8) * 8]);
#pragma unroll
    for (int i = 0; i < BT / 32; ++i)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + i * 32 * kStageK * 2), "l"(from_[i] + k),
                   "r"(bytes_[i])
                   : "memory");
  }
  // Of this thread's copies all but the last kAhead - 1 groups are done: tells the others of stage s.
  __device__ void publish(int s) {
    asm volatile("cp.async.wait_group %0;\nfence.proxy.async.shared::cta;" ::"n"(kAhead - 1) : "memory");
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(memory_.full[s % kStages]);
  }

 private:
  WideMemory<BT>& memory_;
  const uint16_t* from_[BT / 32];
  int bytes_[BT / 32];
};

// What a tile multiplies: `low` and `high`, the rows of W of this thread's group of four; packed rows of x; slices
// [first, last) of K.
struct WideProduct {
  CodeRow low, high;
  const uint16_t* x;
  int64_t K;
  int first, last;
};

// The sums of this thread: totals[4 j + i] as multiply_add_wide has them. row(i): row i of x in the tile, or null.
// copy_more: begins other copies, once the first stages are on their way. Every thread of the block calls it once.
template <int BT, WeightFormat F, class Row, class CopyMore>
__device__ inline void multiply_wide(const WideProduct& p, Row row, WideMemory<BT>& memory, float (&totals)[BT / 2],
                                     CopyMore copy_more) {
  const int lane = threadIdx.x % 32, quad = lane % 4;
  const int64_t slice = slice_of(p.K), begin = p.first * slice, end = p.last * slice < p.K ? p.last * slice : p.K;
  const int stages = static_cast<int>((end - begin) / kStageK), stages_of_slice = static_cast<int>(slice / kStageK);
  RowsOfX<BT> x(memory, p.x, row);
  StageCodes<F> codes[2][2];
  uint32_t a[2][4][4];
  float sums[BT / 2];
  const auto load = [&](StageCodes<F>(&to)[2], int s) {
    if (s >= stages) return;
    const int64_t k = begin + int64_t{s} * kStageK + quad * 8;
    load_codes<F>(p.low, k, to[0]);
    load_codes<F>(p.high, k, to[1]);
  };
  const auto prepare = [&](const StageCodes<F>(&from)[2], uint32_t(&to)[4][4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 l = decode<F>(from[0], i), h = decode<F>(from[1], i);
      to[2 * i][0] = l.x, to[2 * i][1] = h.x, to[2 * i][2] = l.y, to[2 * i][3] = h.y;
      to[2 * i + 1][0] = l.z, to[2 * i + 1][1] = h.z, to[2 * i + 1][2] = l.w, to[2 * i + 1][3] = h.w;
    }
  };
  const auto stage = [&](int s, bool more, uint32_t(&mine)[4][4], uint32_t(&next)[4][4],
                         StageCodes<F>(&next_codes)[2]) {
    if (s + kAhead < stages) x.copy(s + kAhead, begin + int64_t{s + kAhead} * kStageK);
    if (s == 0) copy_more();
    commit_copies();
    x.publish(s + 1);
    wait(memory.full[s % kStages], s / kStages % 2);
    const uint64_t rows = describe_rows(shared_address(memory.x[s % kStages]));
    fence_wgmma();
#pragma unroll
    for (int step = 0; step < 4; ++step) multiply_add_wide<BT>(sums, mine[step], at_step(rows, step), more || step > 0);
    commit_wgmma();
    wait_wgmma<1>();
    if (s > 0 && lane == 0) arrive(memory.empty[(s - 1) % kStages]);
    if (s + 1 < stages) prepare(next_codes, next);
    load(next_codes, s + 3);
  };
#pragma unroll
  for (int i = 0; i < BT / 2; ++i) totals[i] = 0;
  load(codes[0], 0);
  load(codes[1], 1);
  for (int s = 0; s < kAhead; ++s) {
    if (s < stages) x.copy(s, begin + int64_t{s} * kStageK);
    commit_copies();
  }
  x.publish(0);
  prepare(codes[0], a[0]);
  load(codes[0], 2);
  for (int begin = 0; begin < stages; begin += stages_of_slice) {
    const int end = begin + stages_of_slice < stages ? begin + stages_of_slice : stages;
    int s = begin;
    for (; s + 1 < end; s += 2) {
      stage(s, s > begin, a[0], a[1], codes[1]);
      stage(s + 1, true, a[1], a[0], codes[0]);
    }
    if (s < end) stage(s, s > begin, a[0], a[1], codes[1]);  // Of the last slice alone: others are even.
    wait_wgmma<0>();
#pragma unroll
    for (int i = 0; i < BT / 2; ++i) totals[i] += sums[i];
  }
}

// This thread's rows of W in a tile of kWideRows, and its rows of x.
__device__ inline int wide_row(int i) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 * 8; }
__device__ inline int wide_column(int j, int i) { return j * 8 + threadIdx.x % 4 * 2 + i % 2; }

// x [T, K] f32 to bf16 in the order of F; thread per 16 values of k that one step multiplies.
template <WeightFormat F>
__global__ void pack_rows_kernel(int64_t T, int64_t K, const float* x, int64_t x_stride, const int32_t* rows,
                                 uint16_t* packed) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x, t = at / (K / 16), k = at % (K / 16) * 16;
  if (t >= T) return;
  const float* from = x + (rows ? rows[t] : t) * x_stride + k / 32 * 32 + k % 32 / 16 * 4;
  uint32_t to[8];
#pragma unroll
  for (int quad = 0; quad < 4; ++quad) {
    const uint2 four = bf16_four<F>(__ldg(reinterpret_cast<const float4*>(from + quad * 8)));
    to[quad] = four.x;
    to[quad + 4] = four.y;
  }
  auto* out = reinterpret_cast<uint4*>(packed + t * K + k);
  out[0] = {to[0], to[1], to[2], to[3]};
  out[1] = {to[4], to[5], to[6], to[7]};
}

}  // namespace wp::kernels::gpu
