// HollowModel: a model without arithmetic. Every answer is its end token, every capture is complete, pages and states
// hold nothing; an engine over it decides exactly as over a real one, so that what the cache would do with recorded
// conversations can be seen without weights. Const; forward() from the engine thread.
#pragma once

#include "model/model.h"

namespace wp::measure {

class HollowModel final : public Model {
 public:
  HollowModel(int64_t vocabulary, int64_t context_max, TokenId end_token);

  const ModelInfo& info() const override { return info_; }
  Result<std::unique_ptr<Scratch>> make_scratch(Device& device, const ScratchLimits& limits) const override;
  void forward(Stream& stream, const Batch& batch, Pools& pools, Scratch& scratch, const Tensor& logits) const override;

 private:
  ModelInfo info_;
  TokenId end_token_;
};

}  // namespace wp::measure
