#include "model/attention_block.h"

#include "ops/linear.h"

namespace wp {

double AttentionBlock::multiply_adds() const {
  const int64_t M = out.N;
  return static_cast<double>(M * (3 * heads.HQ * heads.D + 2 * heads.HK * heads.D) +
                             (indexer.HI ? M * (indexer.HI + 1) * indexer.DI : 0));
}

Result<void> bind_attention(Binder& binder, const std::string& prefix, const TrunkConfig& config,
                            const IndexerConfig& indexer, int64_t& page_bytes, AttentionBlock& block) {
  const int64_t M = config.M, HQ = config.HQ, HK = config.HK, D = config.D;
  block.heads = {.HQ = HQ, .HK = HK, .D = D};
  block.indexer = indexer;
  block.epsilon = static_cast<float>(config.epsilon);
  WP_TRY(binder.matrix(prefix + "q_proj", HQ * 2 * D, M, block.q_gate));
  WP_TRY(binder.matrix(prefix + "k_proj", HK * D, M, block.k));
  WP_TRY(binder.matrix(prefix + "v_proj", HK * D, M, block.v));
  WP_TRY(binder.matrix(prefix + "o_proj", M, HQ * D, block.out));
  WP_TRY(binder.vector(prefix + "q_norm.weight", {D}, block.q_norm));
  WP_TRY(binder.vector(prefix + "k_norm.weight", {D}, block.k_norm));
  if (indexer.HI) {
    const std::string index = prefix + "indexer.";
    WP_TRY(binder.matrix(index + "index_qk_proj", (indexer.HI + 1) * indexer.DI, M, block.index_qk));
    WP_TRY(binder.vector(index + "q_layernorm.weight", {indexer.DI}, block.index_q_norm));
    WP_TRY(binder.vector(index + "k_layernorm.weight", {indexer.DI}, block.index_k_norm));
  }
  block.pages = {.layout = {.HK = HK, .D = D, .DI = indexer.DI}, .page_offset = page_bytes};
  page_bytes += round_up(block.pages.layout.layer_bytes(), 64);
  return {};
}

AttentionScratch plan_attention(ScratchLayout& layout, const TrunkConfig& config, const IndexerConfig& indexer,
                                int64_t rows) {
  const int64_t HQ = config.HQ, HK = config.HK, D = config.D;
  AttentionScratch scratch{.q_gate = layout.f32({rows, HQ * 2 * D}),
                           .k = layout.f32({rows, HK * D}),
                           .v = layout.f32({rows, HK * D}),
                           .q = layout.f32({rows, HQ * D}),
                           .o = layout.f32({rows, HQ * D})};
  if (indexer.HI) {
    scratch.index_z = layout.f32({rows, (indexer.HI + 1) * indexer.DI});
    scratch.index_q = layout.f32({rows, indexer.HI * indexer.DI});
    scratch.selected = layout.i32({rows, indexer.budget});
  }
  return scratch;
}

void attention_forward(Stream& stream, const Pass& pass, const AttentionBlock& block, const kernels::Rope& rope,
                       const Tensor& x, const AttentionScratch& scratch, const ops::Workspace& workspace,
                       const Tensor& y) {
  stream.enter("attention");
  const int64_t T = pass.rows();
  const Tensor q_gate = scratch.q_gate.rows(T), k = scratch.k.rows(T), v = scratch.v.rows(T);
  const Tensor q = scratch.q.rows(T), o = scratch.o.rows(T);
  if (block.indexer.HI)
    ops::matmul_group(stream, x,
                      {{block.q_gate, q_gate}, {block.k, k}, {block.v, v}, {block.index_qk, scratch.index_z.rows(T)}});
  else ops::matmul_group(stream, x, {{block.q_gate, q_gate}, {block.k, k}, {block.v, v}});
  ops::attention_inputs(stream, pass.view(), block.pages, rope, block.heads, q_gate, k, v, block.q_norm, block.k_norm,
                        block.epsilon, q);
  Tensor selected;
  if (block.indexer.HI) {
    const Tensor z = scratch.index_z.rows(T), queries = scratch.index_q.rows(T);
    selected = scratch.selected.rows(T);
    ops::index_keys(stream, pass.view(), block.pages, rope, z, block.index_q_norm, block.index_k_norm, block.epsilon,
                    block.pending_offset, queries);
    ops::select_blocks(stream, pass.view(), block.pages, queries, selected, workspace);
  }
  ops::attention(stream, pass.view(), block.pages, block.heads, q, q_gate, selected, o, workspace);
  ops::matmul(stream, o, block.out, y);
}

}  // namespace wp
