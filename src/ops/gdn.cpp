#include "ops/gdn.h"

#include "ops/tables.h"

namespace wp::ops {

void conv_silu(Stream& stream, const kernels::BatchView& batch, const Tensor& u, const Tensor& weight, int64_t dilation,
               int64_t state_offset, const Tensor& y) {
  Dim taps{"taps"}, C{"C"};
  expect("conv_silu u", u, DType::f32, {batch.rows, C});
  expect("conv_silu y", y, DType::f32, {batch.rows, C});
  expect("conv_silu weight", weight, DType::f32, {taps, C});
  WP_ASSERT(u.dense() && y.dense() && u.data != y.data && dilation > 0 && state_offset % 64 == 0);
  if (batch.rows == 0) return;
  conv_silu_kernels.run(stream, {.batch = batch,
                                 .C = C,
                                 .taps = taps,
                                 .dilation = dilation,
                                 .u = u.f32(),
                                 .weight = weight.f32(),
                                 .state_offset = state_offset,
                                 .y = y.f32()});
}

void gdn(Stream& stream, const kernels::BatchView& batch, const GdnHeads& heads, const Tensor& qkv, const Tensor& a,
         const Tensor& b, const Tensor& A_log, const Tensor& dt_bias, int64_t state_offset, const Tensor& o,
         const Tensor& spare, const kernels::Workspace& workspace) {
  const int64_t T = batch.rows;
  expect("gdn qkv", qkv, DType::f32, {T, heads.channels()});
  expect("gdn a", a, DType::f32, {T, heads.HV});
  expect("gdn b", b, DType::f32, {T, heads.HV});
  expect("gdn A_log", A_log, DType::f32, {heads.HV});
  expect("gdn dt_bias", dt_bias, DType::f32, {heads.HV});
  expect("gdn spare", spare, DType::f32, {T, heads.channels()});
  expect("gdn o", o, DType::f32, {T, heads.HV * heads.DV});
  WP_ASSERT(heads.HV % heads.HK == 0 && state_offset % 64 == 0);
  WP_ASSERT(qkv.dense() && a.dense() && b.dense() && o.dense() && spare.dense() && spare.data != qkv.data);
  if (T == 0) return;
  gdn_kernels.run(stream, {.batch = batch,
                           .HK = heads.HK,
                           .HV = heads.HV,
                           .DK = heads.DK,
                           .DV = heads.DV,
                           .qkv = qkv.f32(),
                           .a = a.f32(),
                           .b = b.f32(),
                           .A_log = A_log.f32(),
                           .dt_bias = dt_bias.f32(),
                           .state_offset = state_offset,
                           .o = o.f32(),
                           .spare = spare.f32(),
                           .workspace = workspace});
}

void gated_norm(Stream& stream, const Tensor& o, const Tensor& z, const Tensor& weight, float epsilon,
                kernels::Gate gate, const Tensor& y) {
  Dim T{"T"}, row{"HV * DV"}, DV{"DV"};
  expect("gated_norm o", o, DType::f32, {T, row});
  expect("gated_norm z", z, DType::f32, {T, row});
  expect("gated_norm y", y, DType::f32, {T, row});
  expect("gated_norm weight", weight, DType::f32, {DV});
  WP_ASSERT(row % DV == 0 && o.dense() && z.dense() && y.dense());
  if (T == 0) return;
  gated_norm_kernels.run(stream, {.T = T,
                                  .HV = row / DV,
                                  .DV = DV,
                                  .o = o.f32(),
                                  .z = z.f32(),
                                  .weight = weight.f32(),
                                  .epsilon = epsilon,
                                  .gate = gate,
                                  .y = y.f32()});
}

}  // namespace wp::ops
