// Feed-forward parts: SwiGLU, and a mixture of experts with a gated shared one (spec/qwen4_exp.md 3.4, 6). Const once
// bound.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/binder.h"
#include "model/config.h"
#include "model/layout.h"
#include "ops/batch.h"
#include "ops/moe.h"

namespace wp {

struct SwigluBlock {
  Matrix gate, up;  // [F, M]
  Matrix down;      // [M, F]
  double multiply_adds() const { return 3.0 * static_cast<double>(down.N * down.K); }
};
struct SwigluScratch {
  Tensor gate, up;  // [T, F]
};

struct MoeBlock {
  MoeConfig config;
  Matrix router;  // [E, M]
  std::vector<kernels::ExpertWeights> experts;
  std::span<const kernels::ExpertWeights> experts_at;  // The same, where kernels read it
  SwigluBlock shared;
  Matrix shared_gate;  // [1, M]
  double multiply_adds() const;
};
struct MoeScratch {
  Tensor logits;  // [T, E]
  ops::Routing routing;
  SwigluScratch shared;
  Tensor shared_out;   // [T, M]
  Tensor shared_gate;  // [T, 1]
  Tensor hidden, outputs;
};

Result<void> bind_swiglu(Binder& binder, const std::string& prefix, int64_t M, int64_t F, SwigluBlock& block);
SwigluScratch plan_swiglu(ScratchLayout& layout, int64_t F, int64_t rows);
void swiglu_forward(Stream& stream, const SwigluBlock& block, const Tensor& x, const SwigluScratch& scratch,
                    const Tensor& y);

Result<void> bind_moe(Binder& binder, const std::string& prefix, const TrunkConfig& trunk, const MoeConfig& config,
                      MoeBlock& block);
MoeScratch plan_moe(ScratchLayout& layout, int64_t M, const MoeConfig& config, int64_t rows);
void moe_forward(Stream& stream, const MoeBlock& block, const Tensor& x, const MoeScratch& scratch,
                 const ops::Workspace& workspace, const Tensor& y);

}  // namespace wp
