// What device code of this folder shares: weights as f32, small functions, sums over a block of threads. Fused
// multiply-adds are written out; the compiler contracts nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/assert.h"
#include "core/matrix.h"
#include "device/stream_handle.h"

namespace wp::kernels::gpu {

constexpr int kThreads = 256;  // Of a block, unless a kernel says otherwise.

inline cudaStream_t on(Stream& stream) { return static_cast<cudaStream_t>(stream_handle(stream)); }

// A launch that failed is a fault of ours: nothing a caller could do.
inline void check_launch() { WP_ASSERT(cudaGetLastError() == cudaSuccess); }

constexpr unsigned blocks_for(int64_t count, int64_t each) { return static_cast<unsigned>((count + each - 1) / each); }

__device__ inline float bf16_value(uint16_t bits) { return __uint_as_float(static_cast<uint32_t>(bits) << 16); }

// The exponent's bias moves by an exact power of two, subnormals included; infinity and NaN by hand.
__device__ inline float f16_value(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, rest = bits & 0x7FFF;
  if (rest >= 0x7C00) return __uint_as_float(sign | 0x7F800000 | (rest & 0x3FF) << 13);
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest << 13) * 0x1p112f));
}

__device__ inline float e4m3_value(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80) << 24, rest = bits & 0x7F;
  if (rest == 0x7F) return __uint_as_float(0x7FC00000);
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest << 20) * 0x1p120f));
}

__device__ inline float e2m1_value(uint32_t bits) {
  const uint32_t sign = (bits & 8) << 28, rest = bits & 7;
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest << 22) * 0x1p126f));
}

__device__ inline float scale_value(const Matrix& W, int64_t index) {
  switch (W.scale_dtype) {
    case DType::bf16: return bf16_value(static_cast<const uint16_t*>(W.scale)[index]);
    case DType::f16: return f16_value(static_cast<const uint16_t*>(W.scale)[index]);
    default: return static_cast<const float*>(W.scale)[index];
  }
}

// Element [n, k]. An nvfp4 code times its block's scale is exact; the second scale rounds once.
template <WeightFormat F>
__device__ inline float weight(const Matrix& W, int64_t n, int64_t k) {
  const int64_t at = n * W.K + k;
  if constexpr (F == WeightFormat::f32) return static_cast<const float*>(W.data)[at];
  if constexpr (F == WeightFormat::f16) return f16_value(static_cast<const uint16_t*>(W.data)[at]);
  if constexpr (F == WeightFormat::bf16) return bf16_value(static_cast<const uint16_t*>(W.data)[at]);
  if constexpr (F == WeightFormat::nvfp4) {
    const uint32_t byte = static_cast<const uint8_t*>(W.data)[at / 2];
    const float block = e4m3_value(static_cast<const uint8_t*>(W.scale)[at / 16]);
    return e2m1_value(k % 2 ? byte >> 4 : byte & 15) * block * W.scale_2;
  }
  if constexpr (F == WeightFormat::fp8_tensor || F == WeightFormat::fp8_row || F == WeightFormat::fp8_block) {
    const float value = e4m3_value(static_cast<const uint8_t*>(W.data)[at]);
    if constexpr (F == WeightFormat::fp8_tensor) return value * scale_value(W, 0);
    if constexpr (F == WeightFormat::fp8_row) return value * scale_value(W, n);
    return value * scale_value(W, n / 128 * ((W.K + 127) / 128) + k / 128);
  }
}

// The same where the format is known at run time only: look-ups.
__device__ inline float weight_of(const Matrix& W, int64_t n, int64_t k) {
  switch (W.format) {
    case WeightFormat::f32: return weight<WeightFormat::f32>(W, n, k);
    case WeightFormat::f16: return weight<WeightFormat::f16>(W, n, k);
    case WeightFormat::bf16: return weight<WeightFormat::bf16>(W, n, k);
    case WeightFormat::fp8_tensor: return weight<WeightFormat::fp8_tensor>(W, n, k);
    case WeightFormat::fp8_row: return weight<WeightFormat::fp8_row>(W, n, k);
    case WeightFormat::fp8_block: return weight<WeightFormat::fp8_block>(W, n, k);
    case WeightFormat::nvfp4: return weight<WeightFormat::nvfp4>(W, n, k);
  }
  return 0;
}

// By the unit for special functions: within a few units in the last place.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ inline float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }
__device__ inline float softplus(float x) { return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x)); }

// One value from all threads, in a fixed tree; every thread gets it. `shared` has kThreads elements and is free again
// when the function returns. kThreads threads, all of them.
template <class T, class Join>
__device__ inline T join_block(T value, T* shared, Join join) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = join(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  const T joined = shared[0];
  __syncthreads();
  return joined;
}

__device__ inline float sum_block(float value, float* shared) {
  return join_block(value, shared, [](float a, float b) { return a + b; });
}

// The sum of f(i) for i < count: thread t adds i = t, t + kThreads, ...
template <class F>
__device__ inline float sum_of(int64_t count, float* shared, F f) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += f(i);
  return sum_block(sum, shared);
}

// 1 / sqrt(mean of squares + epsilon) of f(i)
template <class F>
__device__ inline float inverse_rms(int64_t count, float epsilon, float* shared, F f) {
  const float squares = sum_of(count, shared, [&](int64_t i) {
    const float value = f(i);
    return value * value;
  });
  return 1.0f / sqrtf(squares / static_cast<float>(count) + epsilon);
}

}  // namespace wp::kernels::gpu
