// Rows of tables as floats: embeddings, n-gram tables, gathers. Nothing is summed; bound by memory.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/regions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/lookup.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// 16 codes of a row in the checkpoint's layout, of which `count` exist.
HWY_INLINE V16 codes_at(const Matrix& W, int64_t n, int64_t k, int64_t count) {
  const int64_t at = n * W.K + k;
  const auto* data = static_cast<const uint8_t*>(W.data);
  const size_t width = static_cast<size_t>(W.data_bytes() / W.N) / static_cast<size_t>(W.K);
  HWY_ALIGN uint8_t padded[64] = {};
  if (W.format == WeightFormat::nvfp4) {
    for (int64_t i = 0; i < count; ++i) padded[i] = static_cast<uint8_t>(data[(at + i) / 2] >> ((at + i) % 2 * 4)) & 15;
    return e2m1_code(bytes(padded));
  }
  std::memcpy(padded, data + static_cast<size_t>(at) * width, static_cast<size_t>(count) * width);
  switch (W.format) {
    case WeightFormat::f32: return load(reinterpret_cast<const float*>(padded));
    case WeightFormat::f16: return from_f16(reinterpret_cast<const uint16_t*>(padded));
    case WeightFormat::bf16: return from_bf16(reinterpret_cast<const uint16_t*>(padded));
    default: return e4m3_code(bytes(padded));
  }
}

HWY_INLINE float scale_value(const Matrix& W, int64_t index) {
  const auto* scale = static_cast<const uint8_t*>(W.scale);
  HWY_ALIGN uint8_t padded[64] = {};
  if (W.scale_dtype == DType::f32) {
    std::memcpy(padded, scale + index * 4, 4);
    return hn::GetLane(load(reinterpret_cast<const float*>(padded)).part[0]);
  }
  std::memcpy(padded, scale + index * 2, 2);
  const auto* half = reinterpret_cast<const uint16_t*>(padded);
  return hn::GetLane((W.scale_dtype == DType::bf16 ? from_bf16(half) : from_f16(half)).part[0]);
}

// The scale of elements [n, k .. k + 15], k a multiple of 16; 1 where the format has none.
HWY_INLINE V16 scale_at(const Matrix& W, int64_t n, int64_t k) {
  switch (W.format) {
    case WeightFormat::fp8_tensor: return set(scale_value(W, 0));
    case WeightFormat::fp8_row: return set(scale_value(W, n));
    case WeightFormat::fp8_block: return set(scale_value(W, n / 128 * ((W.K + 127) / 128) + k / 128));
    case WeightFormat::nvfp4: {
      const auto code = static_cast<const uint8_t*>(W.scale)[(n * W.K + k) / 16];
      return mul(e4m3_code(set_bits(code)), set(W.scale_2));
    }
    default: return set(1.0f);
  }
}

HWY_NOINLINE void decode_row(const Matrix& W, int64_t n, float* y) {
  for (int64_t k = 0; k < W.K; k += kLanes) {
    const int64_t count = std::min(kLanes, W.K - k);
    store_some(mul(codes_at(W, n, k, count), scale_at(W, n, k)), y + k, count);
  }
}

void embed(Stream& stream, const Embed& p) {
  const int64_t M = p.table.K;
  for_ranges(stream, p.T, 32, p.T * p.S * M / 8, [&](int64_t begin, int64_t end, int) HWY_ATTR {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t token = p.tokens[t];
      WP_ASSERT(token >= 0 && token < p.table.N);
      float* y = p.y + t * p.S * M;
      decode_row(p.table, token, y);
      for (int64_t s = 1; s < p.S; ++s) std::copy_n(y, M, y + s * M);
    }
  });
}

void table_rows(Stream& stream, const TableRows& p) {
  for_ranges(stream, p.T, 32, p.T * p.heads * p.width / 4, [&](int64_t begin, int64_t end, int) HWY_ATTR {
    for (int64_t i = begin * p.heads; i < end * p.heads; ++i) {
      const int64_t row = p.rows[i];
      WP_ASSERT(row >= 0 && row < p.shards_count * p.shard_rows);
      decode_row(p.shards[row / p.shard_rows], row % p.shard_rows, p.y + i * p.width);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {

HWY_EXPORT(embed);
HWY_EXPORT(table_rows);

void embed(Stream& stream, const Embed& p) { HWY_DYNAMIC_DISPATCH(embed)(stream, p); }
void table_rows(Stream& stream, const TableRows& p) { HWY_DYNAMIC_DISPATCH(table_rows)(stream, p); }

// Copies: no arithmetic, so nothing to choose by instruction set.
void gather_rows(Stream& stream, const GatherRows& p) {
  for_ranges(stream, p.R, 32, p.R * p.width / 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) std::copy_n(p.x + p.rows[r] * p.width, p.width, p.y + r * p.width);
  });
}
void gather_columns(Stream& stream, const GatherColumns& p) {
  for_ranges(stream, p.T, 32, p.T * p.N / 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t n = 0; n < p.N; ++n) p.y[t * p.N + n] = p.x[t * p.x_stride + p.columns[n]];
  });
}

}  // namespace wp::kernels::cpu
#endif
