#include "ops/attention.h"

#include <cmath>

#include "ops/tables.h"

namespace wp::ops {

void attention_inputs(Stream& stream, const kernels::BatchView& batch, const kernels::LayerPages& pages,
                      const kernels::Rope& rope, const AttentionHeads& heads, const Tensor& q_gate, const Tensor& k,
                      const Tensor& v, const Tensor& q_norm, const Tensor& k_norm, float epsilon, const Tensor& q) {
  const int64_t T = batch.rows;
  expect("attention_inputs q_gate", q_gate, DType::f32, {T, heads.HQ * 2 * heads.D});
  expect("attention_inputs k", k, DType::f32, {T, heads.HK * heads.D});
  expect("attention_inputs v", v, DType::f32, {T, heads.HK * heads.D});
  expect("attention_inputs q_norm", q_norm, DType::f32, {heads.D});
  expect("attention_inputs k_norm", k_norm, DType::f32, {heads.D});
  expect("attention_inputs q", q, DType::f32, {T, heads.HQ * heads.D});
  WP_ASSERT(q_gate.dense() && k.dense() && v.dense() && q.dense());
  WP_ASSERT(pages.layout.HK == heads.HK && pages.layout.D == heads.D);
  WP_ASSERT(rope.rotary % 2 == 0 && rope.rotary <= heads.D);
  if (T == 0) return;
  attention_inputs_kernels.run(stream, {.batch = batch,
                                        .pages = pages,
                                        .rope = rope,
                                        .HQ = heads.HQ,
                                        .HK = heads.HK,
                                        .D = heads.D,
                                        .q_gate = q_gate.f32(),
                                        .k = k.f32(),
                                        .v = v.f32(),
                                        .q_norm = q_norm.f32(),
                                        .k_norm = k_norm.f32(),
                                        .epsilon = epsilon,
                                        .q = q.f32()});
}

void index_keys(Stream& stream, const kernels::BatchView& batch, const kernels::LayerPages& pages,
                const kernels::Rope& rope, const Tensor& z, const Tensor& q_norm, const Tensor& k_norm, float epsilon,
                int64_t state_offset, const Tensor& queries) {
  Dim DI{"DI"}, row{"HI * DI"};
  expect("index_keys q_norm", q_norm, DType::f32, {DI});
  expect("index_keys k_norm", k_norm, DType::f32, {DI});
  expect("index_keys queries", queries, DType::f32, {batch.rows, row});
  expect("index_keys z", z, DType::f32, {batch.rows, row + DI});
  WP_ASSERT(row % DI == 0 && z.dense() && queries.dense() && pages.layout.DI == DI && state_offset % 64 == 0);
  WP_ASSERT(rope.rotary % 2 == 0 && rope.rotary <= DI);
  if (batch.rows == 0) return;
  index_keys_kernels.run(stream, {.batch = batch,
                                  .pages = pages,
                                  .rope = rope,
                                  .HI = row / DI,
                                  .DI = DI,
                                  .z = z.f32(),
                                  .q_norm = q_norm.f32(),
                                  .k_norm = k_norm.f32(),
                                  .epsilon = epsilon,
                                  .state_offset = state_offset,
                                  .queries = queries.f32()});
}

void select_blocks(Stream& stream, const kernels::BatchView& batch, const kernels::LayerPages& pages,
                   const Tensor& queries, const Tensor& selected, const kernels::Workspace& workspace) {
  Dim row{"HI * DI"}, budget{"budget"};
  expect("select_blocks queries", queries, DType::f32, {batch.rows, row});
  expect("select_blocks selected", selected, DType::i32, {batch.rows, budget});
  const int64_t DI = pages.layout.DI;
  WP_ASSERT(DI > 0 && row % DI == 0 && budget > 0 && queries.dense() && selected.dense());
  if (batch.rows == 0) return;
  select_blocks_kernels.run(stream, {.batch = batch,
                                     .pages = pages,
                                     .HI = row / DI,
                                     .DI = DI,
                                     .budget = budget,
                                     .queries = queries.f32(),
                                     .selected = selected.i32(),
                                     .workspace = workspace});
}

void attention(Stream& stream, const kernels::BatchView& batch, const kernels::LayerPages& pages,
               const AttentionHeads& heads, const Tensor& q, const Tensor& q_gate, const Tensor& selected,
               const Tensor& o, const kernels::Workspace& workspace) {
  const int64_t T = batch.rows, row = heads.HQ * heads.D;
  Dim budget{"budget"};
  expect("attention q", q, DType::f32, {T, row});
  expect("attention q_gate", q_gate, DType::f32, {T, 2 * row});
  expect("attention o", o, DType::f32, {T, row});
  if (selected) expect("attention selected", selected, DType::i32, {T, budget});
  WP_ASSERT(heads.HQ % heads.HK == 0 && pages.layout.HK == heads.HK && pages.layout.D == heads.D);
  WP_ASSERT(q.dense() && q_gate.dense() && o.dense() && (!selected || selected.dense()));
  if (T == 0) return;
  attention_kernels.run(stream, {.batch = batch,
                                 .pages = pages,
                                 .HQ = heads.HQ,
                                 .HK = heads.HK,
                                 .D = heads.D,
                                 .budget = selected ? static_cast<int64_t>(budget) : 0,
                                 .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads.D))),
                                 .q = q.f32(),
                                 .q_gate = q_gate.f32(),
                                 .selected = selected ? selected.i32() : nullptr,
                                 .o = o.f32(),
                                 .workspace = workspace});
}

void fill_rope(const Tensor& cosine, const Tensor& sine, double theta) {
  Dim positions{"positions"}, half{"rotary / 2"};
  expect("fill_rope cosine", cosine, DType::f32, {positions, half});
  expect("fill_rope sine", sine, DType::f32, {positions, half});
  WP_ASSERT(cosine.dense() && sine.dense());
  for (int64_t i = 0; i < half; ++i) {
    const auto exponent = static_cast<float>(static_cast<double>(2 * i) / static_cast<double>(2 * half));
    const float power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    const float frequency = 1.0f / power;
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<float>(p) * frequency;
      cosine.f32()[p * half + i] = static_cast<float>(std::cos(angle));
      sine.f32()[p * half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace wp::ops
