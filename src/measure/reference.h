// Reference: what another implementation computed for given prompts: logits of rows and greedy continuations. Reads two
// layouts: one prompt with all logits (input_ids [T], logits [T, V], greedy [G]), and several with the best ids of some
// rows (NAME.positions, NAME.top_values, NAME.top_ids, NAME.last_logits, and prompts.json beside the file). Read once,
// const afterwards; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "weights/checkpoint.h"

namespace wp::measure {

struct ReferenceRow {
  int64_t position = 0;
  std::span<const float> logits;      // All V of them, or empty.
  std::span<const float> top_values;  // Best first, or empty.
  std::span<const int32_t> top_ids;
};

struct ReferencePrompt {
  std::string name;
  std::vector<int32_t> tokens;
  std::vector<ReferenceRow> rows;  // Ascending positions.
  std::vector<int32_t> greedy;
  std::vector<double> greedy_gaps;  // Best logit less the second best at each step; empty: not known.
};

class Reference {
 public:
  static Result<Reference> read(const std::string& path);
  const std::vector<ReferencePrompt>& prompts() const { return prompts_; }

 private:
  explicit Reference(Checkpoint file) : file_(std::make_unique<Checkpoint>(std::move(file))) {}
  Result<void> read_whole();
  Result<void> read_top(const std::string& prompts_path);

  std::unique_ptr<Checkpoint> file_;  // The rows are views of it.
  std::vector<ReferencePrompt> prompts_;
};

// The whole file, at most `size_bytes_max` of it.
Result<std::string> read_text_file(const std::string& path, int64_t size_bytes_max = int64_t{1} << 30);

}  // namespace wp::measure
