// Qwen3.5 and 3.6 with a mixture of experts (spec/qwen4_exp.md 6).
#include "model/families.h"
#include "model/pre_norm.h"

namespace wp {

Result<std::unique_ptr<Model>> load_qwen3_5_moe(Checkpoint checkpoint, Device& device, const ProgressSink& progress) {
  return load_pre_norm({.name = "qwen3_5_moe", .experts = true, .interleaved = false}, std::move(checkpoint), device,
                       progress);
}

}  // namespace wp
