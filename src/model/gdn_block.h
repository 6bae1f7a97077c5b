// A Gated DeltaNet layer's mixer (spec/qwen4_exp.md 3.2): weights, their binding, forward. Const once bound.
#pragma once

#include <string>
#include <vector>

#include "model/binder.h"
#include "model/config.h"
#include "model/layout.h"
#include "model/pass.h"
#include "ops/batch.h"
#include "ops/gdn.h"

namespace wp {

struct GdnBlock {
  ops::GdnHeads heads;
  float epsilon = 0;
  kernels::Gate gate = kernels::Gate::silu;
  int64_t taps = 0;
  Matrix qkv, z, b, a;  // Released layout; the interleaved one of qwen3_next instead has
  Matrix qkvz, ba;      // these two, and where each output of the first four lies in their outputs:
  std::vector<int32_t> qkv_columns, z_columns, b_columns, a_columns;
  Tensor qkv_at, z_at, b_at, a_at;  // The same, where kernels read it
  std::vector<float> conv;          // [taps, channels]
  Tensor conv_at;
  Tensor A_log, dt_bias;  // [HV]
  Tensor norm;            // [DV]
  Matrix out;             // [M, HV * DV]
  int64_t state_offset = 0, conv_offset = 0;

  int64_t value_width() const { return heads.HV * heads.DV; }
  double multiply_adds() const;  // Of one token.
};

struct GdnScratch {
  Tensor u, mixed;  // [T, channels]
  Tensor z, o;      // [T, HV * DV]
  Tensor b, a;      // [T, HV]
  Tensor qkvz, ba;  // qwen3_next only
};

// `interleaved`: in_proj_qkvz and in_proj_ba (qwen3_next).
Result<void> bind_gdn(Binder& binder, const std::string& prefix, const TrunkConfig& config, bool interleaved,
                      StateLayout& state, GdnBlock& block);
GdnScratch plan_gdn(ScratchLayout& layout, const TrunkConfig& config, bool interleaved, int64_t rows);

// y [T, M] of x [T, M].
void gdn_forward(Stream& stream, const Pass& pass, const GdnBlock& block, const Tensor& x, const GdnScratch& scratch,
                 const ops::Workspace& workspace, const Tensor& y);

}  // namespace wp
