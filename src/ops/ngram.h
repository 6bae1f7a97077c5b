// The n-gram embedding (PLE, spec/qwen4_exp.md 3.5) but for what matmul, table_rows and conv_silu do. Engine thread.
// Allocates nothing. ngram_rows is exact on every backend; ngram_gate within 1e-4 of the largest value of ref.
// Bits: row by row.
#pragma once

#include <span>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"
#include "kernels/ngram.h"

namespace wp::ops {

// The hash of one n-gram layer. Sizes: order, (order - 1) * heads, the same.
struct NgramHash {
  int64_t order = 0, heads = 0;
  std::vector<int64_t> multipliers, moduli, offsets;
  int32_t end_of_text = 0;
};

// rows [T, (order - 1) * heads] i64 of tokens [T] i32.
void ngram_rows(Stream& stream, const kernels::BatchView& batch, const NgramHash& hash, const Tensor& tokens,
                int64_t state_offset, const Tensor& rows);

struct NgramNorms {
  Tensor key, query, conv;  // [S * M] each, offset from 1
  float epsilon = 1e-6f;
};

// gated and normed [T, S * M] from the streams H [T, S * M], projected keys [T, S * M] and values [T, M].
void ngram_gate(Stream& stream, const NgramNorms& norms, const Tensor& H, const Tensor& key, const Tensor& value,
                const Tensor& gated, const Tensor& normed);

}  // namespace wp::ops
