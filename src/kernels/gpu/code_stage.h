// Codes of weights in shared memory, 64 values of k of a row at a time, as they lie in the checkpoint: copied there
// well ahead, decoded on the way to the tensor cores. Products of experts take them in chains: each sum is one chain of
// steps of 16 over ascending stages. Of a stage thread `quad` of four takes 16 neighbours of k, 4 to a step.
#pragma once

#include "kernels/gpu/tensor_cores.h"

namespace wp::kernels::gpu {

constexpr int kStageK = 64;  // Values of k in a stage of shared memory.

// Of the formats that tensor cores take, all but blocks of 128, whose sums are scaled on the way; whole stages.
inline bool fits_stages(const Matrix& W) {
  return on_tensor_cores(W) && W.format != WeightFormat::fp8_block && W.K % kStageK == 0;
}

__device__ inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}
template <int kBytes>
__device__ inline void copy_ahead(uint32_t to, const void* from) {
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all of this thread's copies but those of the last kPending commits are there.
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Eight values in the order in which chains have them in four registers, two for each of two steps: nvfp4 codes come
// out of their word in pairs four apart.
template <WeightFormat F>
__device__ inline uint4 chain_eight(float4 a, float4 b) {
  if constexpr (F == WeightFormat::nvfp4)
    return {bf16_pair(a.x, b.x), bf16_pair(a.y, b.y), bf16_pair(a.z, b.z), bf16_pair(a.w, b.w)};
  return {bf16_pair(a.x, a.y), bf16_pair(a.z, a.w), bf16_pair(b.x, b.y), bf16_pair(b.z, b.w)};
}
// Where element k of a row of x lies that steps of wgmma read, in whole stages.
template <WeightFormat F>
__host__ __device__ constexpr int64_t chain_place(int64_t k) {
  const int64_t quad = k % 64 / 16, word = k % 16 / 8, i = k % 8;
  const bool apart = F == WeightFormat::nvfp4;
  const int64_t half = apart ? i % 4 / 2 : i / 4, pair = apart ? i % 2 : i % 4 / 2, in_pair = apart ? i / 4 : i % 2;
  return k / 64 * 64 + (word * 2 + half) * 16 + quad * 2 + in_pair + pair * 8;
}

template <WeightFormat F>
struct StageFormat {
  static constexpr bool kFp4 = F == WeightFormat::nvfp4, kBf16 = F == WeightFormat::bf16;
  static constexpr int kRowBytes = kBf16 ? 128 : kFp4 ? 32 : 64, kPieces = kRowBytes / 16;
};

// From the first stage of row n on.
template <WeightFormat F>
__device__ inline const uint8_t* codes_of(const Matrix& W, int64_t n) {
  return static_cast<const uint8_t*>(W.data) + n * W.K / 64 * StageFormat<F>::kRowBytes;
}
__device__ inline const uint8_t* scales_of(const Matrix& W, int64_t n) {
  return static_cast<const uint8_t*>(W.scale) + n * W.K / 16;
}

// A block's scale times 2^118, twice: see nvfp4_scale.
__device__ inline uint32_t chain_scale(uint8_t code) {
  uint32_t halves;
  asm("{\n.reg .b16 two;\ncvt.u16.u32 two, %1;\ncvt.rn.f16x2.e4m3x2 %0, two;\n}" : "=r"(halves) : "r"(uint32_t{code}));
  float value;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;\n}" : "=f"(value) : "r"(halves));
  value *= 0x1p118f;
  return bf16_pair(value, value);
}

// Codes 0 to 7 as (0, 4), (1, 5), (2, 6), (3, 7): each pair lies 16 bits apart in the word.
__device__ inline uint4 chain_nvfp4(uint32_t codes, uint32_t scale) {
  const auto pair = [&](uint32_t value, uint32_t sign) {
    return multiply_pair((value & 0x01C001C0) | (sign & 0x80008000), scale);
  };
  return {pair(codes << 6, codes << 12), pair(codes << 2, codes << 8), pair(codes >> 2, codes << 4),
          pair(codes >> 6, codes)};
}

// Some rows' codes of one stage, and of nvfp4 the four scales of each. Threads of a warp, who read a quarter of 8 rows
// each, meet no bank twice: of bf16 the pieces of odd rows change places.
template <WeightFormat F, int kRows>
struct CodeStage {
  using Format = StageFormat<F>;
  uint4 pieces[kRows][Format::kPieces];
  uint32_t scales[Format::kFp4 ? kRows : 4];

  static __device__ constexpr int place(int row, int piece) { return Format::kBf16 ? piece ^ row % 2 : piece; }

  // The 16 values of a row that thread `quad` multiplies, as chain_eight orders each eight.
  __device__ void decode(int row, int quad, uint4 (&eights)[2]) const {
    const auto* codes = reinterpret_cast<const uint8_t*>(pieces[row]);
    if constexpr (Format::kBf16) {
      eights[0] = pieces[row][place(row, 2 * quad)];
      eights[1] = pieces[row][place(row, 2 * quad + 1)];
    } else if constexpr (Format::kFp4) {
      const uint2 words = *reinterpret_cast<const uint2*>(codes + quad * 8);
      const uint32_t scale = chain_scale(reinterpret_cast<const uint8_t*>(&scales[row])[quad]);
      eights[0] = chain_nvfp4(words.x, scale);
      eights[1] = chain_nvfp4(words.y, scale);
    } else {
      const uint4 words = *reinterpret_cast<const uint4*>(codes + quad * 16);
      eights[0] = fp8_eight({words.x, words.y});
      eights[1] = fp8_eight({words.z, words.w});
    }
  }
};

// The fragments of a pair of rows for the four steps of a stage.
template <WeightFormat F, int kRows>
__device__ inline void decode_pair(const CodeStage<F, kRows>& stage, int low_row, int high_row, uint32_t (&a)[4][4]) {
  uint4 low[2], high[2];
  stage.decode(low_row, threadIdx.x % 4, low);
  stage.decode(high_row, threadIdx.x % 4, high);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    a[2 * i][0] = low[i].x, a[2 * i][1] = high[i].x, a[2 * i][2] = low[i].y, a[2 * i][3] = high[i].y;
    a[2 * i + 1][0] = low[i].z, a[2 * i + 1][1] = high[i].z, a[2 * i + 1][2] = low[i].w, a[2 * i + 1][3] = high[i].w;
  }
}

}  // namespace wp::kernels::gpu
