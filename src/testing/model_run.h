// ModelRun: a loaded model with memory of its own, run without an engine: sequences cut anywhere, batches of any
// shape, captures and restores. Test programs only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/model.h"

namespace wp::testing {

struct ModelRunSizes {
  int64_t rows_max = 256, context_max = 1024;
  int32_t sequences = 4, anchors = 8;
};

// One sequence under way: its slot, its pages, how far it got.
struct RunningSequence {
  int32_t slot = 0;
  std::vector<int32_t> pages;
  int64_t position = 0;
  int32_t resume_anchor = -1;  // Read by the next pass instead of the slot.
};

class ModelRun {
 public:
  static Result<std::unique_ptr<ModelRun>> make(const std::string& path, DeviceKind kind, int threads,
                                                const ModelRunSizes& sizes);
  // Of random weights of a configuration.
  static Result<std::unique_ptr<ModelRun>> synthesize(SyntheticOptions options, DeviceKind kind,
                                                      const ModelRunSizes& sizes);

  const ModelInfo& info() const { return model_->info(); }
  const Model& model() const { return *model_; }
  Pools& pools() { return pools_; }
  Stream& stream() { return *stream_; }

  // A record of the pools, or its first bytes, wherever it lies; and one bit of its second word turned over.
  std::vector<std::byte> record(const std::byte* data, int64_t size_bytes);
  void flip_a_bit(std::byte* record);

  // Sequence i of sizes.sequences, from position 0 (its memory is filled with NaN bits first).
  RunningSequence start(int32_t index);

  struct Part {
    RunningSequence* sequence;
    std::vector<TokenId> tokens;
    std::vector<Capture> captures = {};
  };
  // One pass over the parts; logits [rows, V] of all their rows, or of the last `last_rows`. Advances the sequences.
  std::vector<float> pass(Phase phase, const std::vector<Part>& parts, int64_t last_rows = -1);

  // All rows' logits of one sequence in prefill pieces of these lengths (the rest in one piece, at most rows_max each).
  std::vector<float> prefill(RunningSequence& sequence, const std::vector<TokenId>& tokens,
                             const std::vector<int64_t>& pieces = {});
  // The logits of these rows only, ascending; the last row is among them.
  std::vector<float> prefill_rows(RunningSequence& sequence, const std::vector<TokenId>& tokens,
                                  const std::vector<int64_t>& rows);
  // Greedy continuation by decode steps, from the logits of the last row read.
  std::vector<TokenId> greedy(RunningSequence& sequence, const std::vector<float>& last_logits, int64_t count);

 private:
  ModelRun() = default;
  Result<void> take_memory(const ModelRunSizes& sizes);

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Scratch> scratch_;
  Pools pools_;
  Buffer logits_;
  ModelRunSizes sizes_;
  int32_t pages_each_ = 0;
};

// Index of the largest logit of a row; the lower one of equals.
TokenId argmax(const float* logits, int64_t count);

}  // namespace wp::testing
