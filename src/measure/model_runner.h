// ModelRunner: one sequence on a model, pass by pass, with pools and scratch of its own and no engine between. For
// gates and benchmarks. One owner, one thread; nothing is allocated after make().
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "device/device.h"
#include "model/model.h"

namespace wp::measure {

struct RunnerLimits {
  int64_t tokens_max = 0;      // Longest sequence.
  int64_t rows_max = 0;        // Of a pass.
  int64_t logit_rows_max = 0;  // Of a pass.
};

class ModelRunner {
 public:
  // Model and device outlive the runner.
  static Result<std::unique_ptr<ModelRunner>> make(const Model& model, Device& device, const RunnerLimits& limits);

  void restart();  // An empty sequence.
  // After the next prefill pass, which must end on the grid, its state is kept; rewind() returns to it.
  void keep_state_of_next_pass() { keep_next_ = true; }
  void rewind();
  int64_t position() const { return position_; }
  // Appends `tokens` in one pass; logits [R, V] of the given rows of this pass, ascending; valid until the next run.
  Tensor run(Phase phase, std::span<const TokenId> tokens, std::span<const int32_t> logit_rows);
  // As run() with the last row's logits.
  std::span<const float> run_last(Phase phase, std::span<const TokenId> tokens);

  // Reads `tokens` in passes of `pass_tokens` rows; where `keep_end`, their state is kept.
  void prefill(std::span<const TokenId> tokens, int64_t pass_tokens, bool keep_end = false);

  Stream& stream() { return stream_; }
  const ModelInfo& info() const { return model_.info(); }
  const RunnerLimits& limits() const { return limits_; }

 private:
  ModelRunner(const Model& model, Device& device, const RunnerLimits& limits);

  const Model& model_;
  Stream stream_;
  RunnerLimits limits_;
  Pools pools_;
  std::unique_ptr<Scratch> scratch_;
  Buffer logits_;
  std::vector<int32_t> pages_;
  int64_t position_ = 0, kept_position_ = 0;
  StateSource source_ = StateSource::zero;  // Of the next pass.
  bool keep_next_ = false;
};

// Any tokens of the vocabulary, the same for the same seed.
std::vector<TokenId> random_tokens(int64_t count, int64_t vocabulary, Seed seed);

// Rows of a pass whose logits are all wanted: on the grid, and the logits within 64 MiB.
int64_t rows_with_logits(const ModelInfo& info, int64_t rows_wanted);

}  // namespace wp::measure
