// The `kl` gate: runs a model over a reference's prompts, in given pieces, and compares every row of logits that the
// reference has, and the greedy continuation. One thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "device/device.h"
#include "measure/divergence.h"
#include "measure/reference.h"
#include "model/model.h"

namespace wp::measure {

struct KlOptions {
  double tolerance = 0;         // Largest |logit error| that passes; 0: the family's and the device's.
  std::vector<int64_t> pieces;  // Prefill passes; what is left of the prompt follows row by row. Empty: as few as fit.
  int64_t tokens_max = 0;       // Longer prompts are left out, and said so; 0: none is.
  std::function<void(const std::string& prompt, int64_t done, int64_t total)> progress;
};

struct KlPromptResult {
  std::string name;
  int64_t tokens = 0;
  std::vector<RowDivergence> rows;
  DivergenceSummary summary;
  int64_t greedy_steps = 0;     // In the reference.
  int64_t greedy_compared = 0;  // Up to the first step whose gap is within twice the tolerance.
  int64_t greedy_equal = 0;     // Steps before the first difference.
  bool greedy_matches = true;
};

struct KlResult {
  double tolerance = 0;
  std::vector<KlPromptResult> prompts;
  std::vector<std::string> skipped;
  DivergenceSummary summary;
  bool passed = false;
  std::string failure;  // Why not, in one line.
};

// 2e-4 for qwen4 and qwen3_next on ref, 1e-3 for qwen3_5 on ref, 2e-3 on cpu.
double default_tolerance(const ModelInfo& info, DeviceKind kind);
Result<KlResult> run_kl(const Model& model, Device& device, const Reference& reference, const KlOptions& options);

std::string kl_table(const KlResult& result, bool every_row);
Json kl_json(const KlResult& result);

}  // namespace wp::measure
