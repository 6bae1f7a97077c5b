// An attention layer's mixer, dense or QSA (spec/qwen4_exp.md 3.3): weights, their binding, forward. Const once bound.
#pragma once

#include <string>

#include "model/binder.h"
#include "model/config.h"
#include "model/layout.h"
#include "model/pass.h"
#include "ops/attention.h"
#include "ops/batch.h"

namespace wp {

// The index of a QSA layer; heads of 0: dense attention.
struct IndexerConfig {
  int64_t HI = 0, DI = 0;
  int64_t budget = 0;  // Blocks.
};

struct AttentionBlock {
  ops::AttentionHeads heads;
  IndexerConfig indexer;
  float epsilon = 0;
  Matrix q_gate;                      // [HQ * 2 * D, M]: of each head the query's rows, then the gate's
  Matrix k, v;                        // [HK * D, M]
  Matrix out;                         // [M, HQ * D]
  Tensor q_norm, k_norm;              // [D]
  Matrix index_qk;                    // [(HI + 1) * DI, M]
  Tensor index_q_norm, index_k_norm;  // [DI]
  kernels::LayerPages pages;
  int64_t pending_offset = 0;

  double multiply_adds() const;  // Of one token, without the context.
  double multiply_adds_per_key() const { return 2.0 * static_cast<double>(heads.HQ * heads.D); }
  double multiply_adds_per_block() const { return static_cast<double>(indexer.HI * indexer.DI); }
};

struct AttentionScratch {
  Tensor q_gate;    // [T, HQ * 2 * D]
  Tensor k, v;      // [T, HK * D]
  Tensor q, o;      // [T, HQ * D]
  Tensor index_z;   // [T, (HI + 1) * DI]
  Tensor index_q;   // [T, HI * DI]
  Tensor selected;  // [T, budget] i32
};

Result<void> bind_attention(Binder& binder, const std::string& prefix, const TrunkConfig& config,
                            const IndexerConfig& indexer, int64_t& page_bytes, AttentionBlock& block);
AttentionScratch plan_attention(ScratchLayout& layout, const TrunkConfig& config, const IndexerConfig& indexer,
                                int64_t rows);

// y [T, M] of x [T, M].
void attention_forward(Stream& stream, const Pass& pass, const AttentionBlock& block, const kernels::Rope& rope,
                       const Tensor& x, const AttentionScratch& scratch, const ops::Workspace& workspace,
                       const Tensor& y);

}  // namespace wp
