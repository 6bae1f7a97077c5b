// Divergence: how far a row of logits is from a reference row, and the summary over many rows. Arithmetic in double.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace wp::measure {

struct RowDivergence {
  int64_t position = 0;
  double logit_error_max = 0;  // max |found - reference| over the ids compared.
  double kl = 0;          // KL(reference || found), in nats, over the ids compared, each side normalised over them.
  bool same_top = false;  // The best id; the lower one wins a tie.
  double next_probability_change = 0;  // Of the text's next token, where there is one.
  bool has_next = false;
};

// All V logits. `next`: the text's next token, -1: none.
RowDivergence compare_row(std::span<const float> reference, std::span<const float> found, int64_t next = -1);
// The reference knows only its best ids, best first.
RowDivergence compare_top(std::span<const float> reference_values, std::span<const int32_t> reference_ids,
                          std::span<const float> found);

struct DivergenceSummary {
  int64_t rows = 0;
  double logit_error_max = 0;
  int64_t worst_position = -1;
  double kl_mean = 0, kl_max = 0, kl_p999 = 0, kl_p99 = 0, kl_median = 0;
  double same_top_share = 0;
  double probability_change_mean = 0, probability_change_rms = 0;
};

DivergenceSummary summarize(std::span<const RowDivergence> rows);
int32_t argmax(std::span<const float> logits);  // The lower id wins a tie.
// -log softmax(logits)[id].
double negative_log_likelihood(std::span<const float> logits, int64_t id);

}  // namespace wp::measure
