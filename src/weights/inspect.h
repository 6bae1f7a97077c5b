// What a checkpoint holds, as plain data for `warmpath inspect`: weights grouped by module, each with the format that
// its tensors make it, and totals by format. Reads headers only; prints nothing, marks nothing. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "weights/checkpoint.h"

namespace wp {

// One weight with the tensors that belong to it (scales), which count into its bytes.
struct WeightSummary {
  std::string name;    // "self_attn.q_proj.weight", relative to its module.
  std::string format;  // "bf16", "fp8-block128", "nvfp4", "i64": as core/matrix.h names them.
  Shape shape;         // Of the values: [N, K], not of the packed bytes.
  int64_t size_bytes = 0;
  int64_t tensors_count = 0;  // Itself and its companions.
  std::string file;
};

// Tensors of one layer, or of what stands beside the layers. Within a module, expert weights of one kind are one row
// with `tensors_count` the sum: "mlp.experts.*.gate_proj.weight".
struct ModuleSummary {
  std::string name;  // "model.layers.3", "model.embed_tokens", "lm_head"; "" for a name without a dot.
  int64_t size_bytes = 0;
  std::vector<WeightSummary> weights;
};

struct FormatTotal {
  std::string format;
  int64_t weights_count = 0;  // Each expert counts.
  int64_t values_count = 0;   // Elements, scales not counted.
  int64_t size_bytes = 0;     // With scales.
};

struct CheckpointSummary {
  int64_t tensors_count = 0, files_count = 0, size_bytes = 0, values_count = 0;
  std::vector<ModuleSummary> modules;  // Layers in the order of their numbers.
  std::vector<FormatTotal> formats;    // The largest first.
};

CheckpointSummary summarize(const Checkpoint& checkpoint);

}  // namespace wp
