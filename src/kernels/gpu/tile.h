// The product tile that matmul and experts share: BT rows of x times BN rows of W, whatever the format of W. Every
// output is one chain of fused multiply-adds over ascending k, so that its bits depend on its two rows alone.
#pragma once

#include "kernels/gpu/device_math.h"

namespace wp::kernels::gpu {

// Each of 256 threads owns RT x RN outputs. Two shapes, one order of summing: the small one fills the device when
// there are few rows, and returns the same bits.
template <int BT_, int BN_, int BK_>
struct TileShape {
  static constexpr int BT = BT_, BN = BN_, BK = BK_;
  static constexpr int kAcross = BN < 16 ? BN : 16;  // Threads along n.
  static constexpr int kDown = kThreads / kAcross;   // Threads along t.
  static constexpr int RN = BN / kAcross;
  static constexpr int RT = BT / kDown;
  static_assert(RN >= 1 && RT >= 1 && BN % kAcross == 0 && BT % kDown == 0);
};
using WideTile = TileShape<64, 64, 32>;
using SlimTile = TileShape<16, 16, 128>;
constexpr int64_t kSlimRows = 16;  // Up to here the small tile computes no more rows than the large one.

template <class S>
struct TileMemory {
  float x[S::BK][S::BT + 1];
  float w[S::BK][S::BN + 1];
};

// sums[i][j] = x of row (t of thread) + i times row n0 + (n of thread) + j of W. row(i): pointer to x of tile row i, or
// null beyond the last.
template <class S, WeightFormat F, class Row>
__device__ inline void multiply_tile(const Matrix& W, int64_t n0, Row row, TileMemory<S>& memory,
                                     float (&sums)[S::RT][S::RN]) {
  const int across = threadIdx.x % S::kAcross, down = threadIdx.x / S::kAcross;
  for (int i = 0; i < S::RT; ++i)
    for (int j = 0; j < S::RN; ++j) sums[i][j] = 0;
  for (int64_t k0 = 0; k0 < W.K; k0 += S::BK) {
    for (int at = threadIdx.x; at < S::BT * S::BK; at += kThreads) {
      const int t = at / S::BK, k = at % S::BK;
      const float* x = row(t);
      memory.x[k][t] = x && k0 + k < W.K ? x[k0 + k] : 0.0f;
    }
    for (int at = threadIdx.x; at < S::BN * S::BK; at += kThreads) {
      const int n = at / S::BK, k = at % S::BK;
      memory.w[k][n] = n0 + n < W.N && k0 + k < W.K ? weight<F>(W, n0 + n, k0 + k) : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < S::BK; ++k) {
      float x[S::RT], w[S::RN];
#pragma unroll
      for (int i = 0; i < S::RT; ++i) x[i] = memory.x[k][down + i * S::kDown];
#pragma unroll
      for (int j = 0; j < S::RN; ++j) w[j] = memory.w[k][across + j * S::kAcross];
#pragma unroll
      for (int i = 0; i < S::RT; ++i)
#pragma unroll
        for (int j = 0; j < S::RN; ++j) sums[i][j] = fmaf(x[i], w[j], sums[i][j]);
    }
    __syncthreads();
  }
}

// Calls body(t of tile, n of tile, sum) for the thread's outputs.
template <class S, class Body>
__device__ inline void each_output(const float (&sums)[S::RT][S::RN], Body body) {
  const int across = threadIdx.x % S::kAcross, down = threadIdx.x / S::kAcross;
#pragma unroll
  for (int i = 0; i < S::RT; ++i)
#pragma unroll
    for (int j = 0; j < S::RN; ++j) body(down + i * S::kDown, across + j * S::kAcross, sums[i][j]);
}

// Calls f with the format as a constant.
template <class F>
void with_format(WeightFormat format, F f) {
  switch (format) {
    case WeightFormat::f32: return f(std::integral_constant<WeightFormat, WeightFormat::f32>());
    case WeightFormat::f16: return f(std::integral_constant<WeightFormat, WeightFormat::f16>());
    case WeightFormat::bf16: return f(std::integral_constant<WeightFormat, WeightFormat::bf16>());
    case WeightFormat::fp8_tensor: return f(std::integral_constant<WeightFormat, WeightFormat::fp8_tensor>());
    case WeightFormat::fp8_row: return f(std::integral_constant<WeightFormat, WeightFormat::fp8_row>());
    case WeightFormat::fp8_block: return f(std::integral_constant<WeightFormat, WeightFormat::fp8_block>());
    case WeightFormat::nvfp4: return f(std::integral_constant<WeightFormat, WeightFormat::nvfp4>());
  }
}

}  // namespace wp::kernels::gpu
