#include "ops/ngram.h"

#include "ops/tables.h"

namespace wp::ops {

void ngram_rows(Stream& stream, const kernels::BatchView& batch, const NgramHash& hash, const Tensor& tokens,
                int64_t state_offset, const Tensor& rows) {
  const int64_t heads = (hash.order - 1) * hash.heads;
  expect("ngram_rows tokens", tokens, DType::i32, {batch.rows});
  expect("ngram_rows rows", rows, DType::i64, {batch.rows, heads});
  WP_ASSERT(static_cast<int64_t>(hash.multipliers.size()) == hash.order && hash.order >= 2);
  WP_ASSERT(static_cast<int64_t>(hash.moduli.size()) == heads && static_cast<int64_t>(hash.offsets.size()) == heads);
  WP_ASSERT(rows.dense() && state_offset % 64 == 0);
  if (batch.rows == 0) return;
  ngram_rows_kernels.run(stream, {.batch = batch,
                                  .order = hash.order,
                                  .heads = hash.heads,
                                  .multipliers = hash.multipliers.data(),
                                  .moduli = hash.moduli.data(),
                                  .offsets = hash.offsets.data(),
                                  .end_of_text = hash.end_of_text,
                                  .state_offset = state_offset,
                                  .tokens = tokens.i32(),
                                  .rows = rows.i64()});
}

void ngram_gate(Stream& stream, const NgramNorms& norms, const Tensor& H, const Tensor& key, const Tensor& value,
                const Tensor& gated, const Tensor& normed) {
  Dim T{"T"}, W{"S * M"}, M{"M"};
  expect("ngram_gate H", H, DType::f32, {T, W});
  expect("ngram_gate key", key, DType::f32, {T, W});
  expect("ngram_gate value", value, DType::f32, {T, M});
  expect("ngram_gate gated", gated, DType::f32, {T, W});
  expect("ngram_gate normed", normed, DType::f32, {T, W});
  expect("ngram_gate norm_key", norms.key, DType::f32, {W});
  expect("ngram_gate norm_query", norms.query, DType::f32, {W});
  expect("ngram_gate norm_conv", norms.conv, DType::f32, {W});
  WP_ASSERT(W % M == 0 && H.dense() && key.dense() && value.dense() && gated.dense() && normed.dense());
  if (T == 0) return;
  ngram_gate_kernels.run(stream, {.T = T,
                                  .S = W / M,
                                  .M = M,
                                  .H = H.f32(),
                                  .key = key.f32(),
                                  .value = value.f32(),
                                  .norm_key = norms.key.f32(),
                                  .norm_query = norms.query.f32(),
                                  .norm_conv = norms.conv.f32(),
                                  .epsilon = norms.epsilon,
                                  .gated = gated.f32(),
                                  .normed = normed.f32()});
}

}  // namespace wp::ops
