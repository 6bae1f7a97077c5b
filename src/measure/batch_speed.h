// Decode of several sequences at once: rows of the bench table. All share the prompt, its pages and its anchor, as
// sequences behind one system block do, and differ from the first generated token on. One thread.
#pragma once

#include "core/error.h"
#include "measure/model_speed.h"

namespace wp::measure {

struct BatchOptions {
  std::vector<int64_t> batches;  // Sequences of each test.
  int64_t generated = 64, depth = 0, repetitions = 5, pass_tokens = 512;
};

Result<std::vector<BenchRow>> run_batch_bench(const Model& model, Device& device, const BatchOptions& options,
                                              const FmaPeak& peak);

}  // namespace wp::measure
