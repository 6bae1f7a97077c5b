// Trunk: what every family has around its layers: checkpoint, embedding and head, packed weights, sizes of states and
// pages, info; and the memory of a pass. Const once loaded.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "model/binder.h"
#include "model/config.h"
#include "model/decode_graphs.h"
#include "model/layout.h"
#include "model/model.h"
#include "model/pass.h"
#include "ops/attention.h"
#include "ops/batch.h"

namespace wp {

struct Trunk {
  explicit Trunk(Checkpoint opened) : checkpoint(std::move(opened)) {}

  Checkpoint checkpoint;  // Keeps the mapped weights alive.
  TrunkConfig config;
  ops::WeightArena arena;
  Matrix embed;  // [V, M], in rows
  Matrix head;   // [V, M]
  StateLayout state;
  int64_t page_bytes = 0;
  int64_t widest = 0;  // The longest row that a packed matrix multiplies.
  ModelInfo info;
};

// "model.language_model." in multimodal checkpoints, "model." in text-only ones.
std::string tensor_prefix(const Checkpoint& checkpoint);
Result<void> bind_ends(Binder& binder, const std::string& prefix, Trunk& trunk);
// Refuses tensors that nobody bound, packs the rest, fills the family-independent part of info.
Result<void> finish_trunk(Binder& binder, Device& device, const ProgressSink& progress, Trunk& trunk);
// "6 GDN + 2 QSA layers"
std::string describe_layers(const TrunkConfig& config, const char* attention);

// The part of a pass's memory that all families have.
struct CommonScratch {
  kernels::Rope rope;
  ops::Workspace workspace;
  Tensor lent;  // Of streams (Stream::lend): as many rows of the widest product as a pass has, in bf16.
};
CommonScratch plan_common(ScratchLayout& layout, Device& device, const Trunk& trunk, const ScratchLimits& limits);
void fill_common(const CommonScratch& common, Device& device, const TrunkConfig& config, int64_t context_max);
Result<void> check_limits(const Trunk& trunk, const ScratchLimits& limits);

// Memory of a pass: a family's activations behind what all need. `A` is a struct of Tensors and scratch structs.
template <class A>
class TrunkScratch : public Scratch {
 public:
  using Plan = A (*)(ScratchLayout& layout, const void* model, const ScratchLimits& limits);

  static Result<std::unique_ptr<Scratch>> make(Device& device, const Trunk& trunk, const void* model,
                                               const ScratchLimits& limits, Plan plan);
  // Of the activations that make() would take.
  static int64_t planned_bytes(Device& device, const Trunk& trunk, const void* model, const ScratchLimits& limits,
                               Plan plan) {
    ScratchLayout sizes;
    plan_common(sizes, device, trunk, limits);
    plan(sizes, model, limits);
    return sizes.size_bytes();
  }

  int64_t size_bytes() const override { return buffer_.size_bytes() + pass.size_bytes(); }

  // Pass::begin, with the memory that operations may use.
  void begin(Stream& stream, const Batch& batch, Pools& pools) {
    stream.lend(lent_.data, lent_ ? lent_.size_bytes() : 0);
    pass.begin(stream, batch, pools);
  }

  Pass pass;
  DecodeGraphs graphs;
  kernels::Rope rope;
  ops::Workspace workspace;
  A a;

 private:
  TrunkScratch(const ScratchLimits& limits, int64_t page_bytes) : pass(limits, page_bytes) {}
  Buffer buffer_;
  Tensor lent_;
};

template <class A>
Result<std::unique_ptr<Scratch>> TrunkScratch<A>::make(Device& device, const Trunk& trunk, const void* model,
                                                       const ScratchLimits& limits, Plan plan) {
  WP_TRY(check_limits(trunk, limits));
  std::unique_ptr<TrunkScratch> scratch(new TrunkScratch(limits, trunk.page_bytes));
  WP_TRY(scratch->buffer_,
         Buffer::make(device, planned_bytes(device, trunk, model, limits, plan), "scratch", Memory::device));
  WP_TRY(scratch->pass.prepare(device));
  ScratchLayout layout(scratch->buffer_.data());
  const CommonScratch common = plan_common(layout, device, trunk, limits);
  scratch->a = plan(layout, model, limits);
  fill_common(common, device, trunk.config, limits.context_max);
  scratch->rope = common.rope;
  scratch->workspace = common.workspace;
  scratch->lent_ = common.lent;
  return std::unique_ptr<Scratch>(std::move(scratch));
}

}  // namespace wp
