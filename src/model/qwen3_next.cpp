// Qwen3-Next, with interleaved GDN projections and a mixture of experts (spec/qwen4_exp.md 6).
#include "model/families.h"
#include "model/pre_norm.h"

namespace wp {

Result<std::unique_ptr<Model>> load_qwen3_next(Checkpoint checkpoint, Device& device, const ProgressSink& progress) {
  return load_pre_norm({.name = "qwen3_next", .experts = true, .interleaved = true}, std::move(checkpoint), device,
                       progress);
}

}  // namespace wp
