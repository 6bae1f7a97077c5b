// PreNorm: the relatives of qwen4_exp (spec/qwen4_exp.md 6): one residual stream, each block behind its own norm,
// dense attention. Families differ in their feed-forward part and in how the GDN projections are stored.
#pragma once

#include <memory>

#include "model/model.h"

namespace wp {

struct PreNormFamily {
  const char* name;
  bool experts;      // Mixture of experts; else SwiGLU.
  bool interleaved;  // in_proj_qkvz and in_proj_ba by key head, as qwen3_next stores them.
};

Result<std::unique_ptr<Model>> load_pre_norm(const PreNormFamily& family, Checkpoint checkpoint, Device& device,
                                             const ProgressSink& progress);

}  // namespace wp
