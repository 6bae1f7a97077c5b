// Qwen3.5, 3.6 and 3.8 dense (spec/qwen4_exp.md 6).
#include "model/families.h"
#include "model/pre_norm.h"

namespace wp {

Result<std::unique_ptr<Model>> load_qwen3_5(Checkpoint checkpoint, Device& device, const ProgressSink& progress) {
  return load_pre_norm({.name = "qwen3_5", .experts = false, .interleaved = false}, std::move(checkpoint), device,
                       progress);
}

}  // namespace wp
