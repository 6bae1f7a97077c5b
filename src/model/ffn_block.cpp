#include "model/ffn_block.h"

#include "ops/linear.h"
#include "ops/residual.h"

namespace wp {

Result<void> bind_swiglu(Binder& binder, const std::string& prefix, int64_t M, int64_t F, SwigluBlock& block) {
  WP_TRY(binder.matrix(prefix + ".gate_proj", F, M, block.gate));
  WP_TRY(binder.matrix(prefix + ".up_proj", F, M, block.up));
  return binder.matrix(prefix + ".down_proj", M, F, block.down);
}

SwigluScratch plan_swiglu(ScratchLayout& layout, int64_t F, int64_t rows) {
  return {.gate = layout.f32({rows, F}), .up = layout.f32({rows, F})};
}

void swiglu_forward(Stream& stream, const SwigluBlock& block, const Tensor& x, const SwigluScratch& scratch,
                    const Tensor& y) {
  const Tensor gate = scratch.gate.rows(x.dim(0)), up = scratch.up.rows(x.dim(0));
  ops::matmul_group(stream, x, {{block.gate, gate}, {block.up, up}});
  ops::silu_mul(stream, gate, up);
  ops::matmul(stream, gate, block.down, y);
}

double MoeBlock::multiply_adds() const {
  const int64_t M = router.K;
  return static_cast<double>(M * (config.E + 3 * config.A * config.F + 1)) + shared.multiply_adds();
}

Result<void> bind_moe(Binder& binder, const std::string& prefix, const TrunkConfig& trunk, const MoeConfig& config,
                      MoeBlock& block) {
  block.config = config;
  WP_TRY(binder.matrix(prefix + ".gate", config.E, trunk.M, block.router));
  WP_TRY(binder.experts(prefix, config.E, config.A, config.F, trunk.M, block.experts, block.experts_at));
  WP_TRY(bind_swiglu(binder, prefix + ".shared_expert", trunk.M, config.shared_F, block.shared));
  return binder.matrix(prefix + ".shared_expert_gate", 1, trunk.M, block.shared_gate);
}

MoeScratch plan_moe(ScratchLayout& layout, int64_t M, const MoeConfig& config, int64_t rows) {
  const int64_t A = config.A, E = config.E;
  return {.logits = layout.f32({rows, E}),
          .routing = {.experts = layout.i32({rows, A}),
                      .weights = layout.f32({rows, A}),
                      .offsets = layout.i32({E + 1}),
                      .order = layout.i32({rows * A})},
          .shared = plan_swiglu(layout, config.shared_F, rows),
          .shared_out = layout.f32({rows, M}),
          .shared_gate = layout.f32({rows, 1}),
          .hidden = layout.f32({rows * A, 2 * config.F}),
          .outputs = layout.f32({rows * A, M})};
}

void moe_forward(Stream& stream, const MoeBlock& block, const Tensor& x, const MoeScratch& scratch,
                 const ops::Workspace& workspace, const Tensor& y) {
  stream.enter("mixture");
  const int64_t T = x.dim(0), A = block.config.A;
  const Tensor logits = scratch.logits.rows(T);
  const ops::Routing routing{.experts = scratch.routing.experts.rows(T),
                             .weights = scratch.routing.weights.rows(T),
                             .offsets = scratch.routing.offsets,
                             .order = scratch.routing.order.rows(T * A)};
  const Tensor shared = scratch.shared_out.rows(T), shared_gate = scratch.shared_gate.rows(T);
  const Tensor gate = scratch.shared.gate.rows(T), up = scratch.shared.up.rows(T);
  ops::matmul_group(
      stream, x,
      {{block.router, logits}, {block.shared.gate, gate}, {block.shared.up, up}, {block.shared_gate, shared_gate}});
  ops::router(stream, logits, block.config.normalise, routing);
  ops::silu_mul(stream, gate, up);
  ops::matmul(stream, gate, block.shared.down, shared);
  ops::experts(stream, block.experts_at, block.experts[0], x, routing, shared, shared_gate, y,
               {.hidden = scratch.hidden.rows(T * A), .outputs = scratch.outputs.rows(T * A), .workspace = workspace});
}

}  // namespace wp
