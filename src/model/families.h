// The families of models: one loader each, by the model_type of config.json. The only list of them is families.cpp.
#pragma once

#include <memory>

#include "model/model.h"

namespace wp {

using FamilyLoader = Result<std::unique_ptr<Model>> (*)(Checkpoint checkpoint, Device& device,
                                                        const ProgressSink& progress);

Result<std::unique_ptr<Model>> load_qwen4_exp(Checkpoint checkpoint, Device& device, const ProgressSink& progress);
Result<std::unique_ptr<Model>> load_qwen3_5(Checkpoint checkpoint, Device& device, const ProgressSink& progress);
Result<std::unique_ptr<Model>> load_qwen3_5_moe(Checkpoint checkpoint, Device& device, const ProgressSink& progress);
Result<std::unique_ptr<Model>> load_qwen3_next(Checkpoint checkpoint, Device& device, const ProgressSink& progress);

}  // namespace wp
