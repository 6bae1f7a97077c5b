#include "measure/divergence.h"

#include <algorithm>
#include <cmath>

#include "core/argmax.h"
#include "core/assert.h"
#include "measure/statistics.h"

namespace wp::measure {
namespace {

// log of the sum of exp, without overflow.
template <class Get>
double log_sum(size_t count, const Get& get) {
  double top = get(0);
  for (size_t i = 1; i < count; ++i) top = std::max(top, static_cast<double>(get(i)));
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += std::exp(get(i) - top);
  return top + std::log(sum);
}

// A NaN anywhere is an infinite error, never an unnoticed one.
double difference(float a, float b) {
  const double d = std::abs(static_cast<double>(a) - static_cast<double>(b));
  return std::isnan(d) ? HUGE_VAL : d;
}

template <class Reference, class Found>
void compare(size_t count, const Reference& reference, const Found& found, RowDivergence& row) {
  const double reference_log = log_sum(count, reference), found_log = log_sum(count, found);
  for (size_t i = 0; i < count; ++i) {
    const double p = reference(i) - reference_log, q = found(i) - found_log;
    row.kl += std::exp(p) * (p - q);
    row.logit_error_max = std::max(row.logit_error_max, difference(reference(i), found(i)));
  }
  row.kl = std::isnan(row.kl) ? HUGE_VAL : std::max(row.kl, 0.0);  // Rounding alone makes it negative.
}

}  // namespace

int32_t argmax(std::span<const float> logits) { return static_cast<int32_t>(index_of_largest(logits)); }

double negative_log_likelihood(std::span<const float> logits, int64_t id) {
  return log_sum(logits.size(), [&](size_t i) { return static_cast<double>(logits[i]); }) - logits[id];
}

RowDivergence compare_row(std::span<const float> reference, std::span<const float> found, int64_t next) {
  WP_ASSERT(reference.size() == found.size() && !reference.empty());
  RowDivergence row;
  const auto r = [&](size_t i) { return reference[i]; };
  const auto f = [&](size_t i) { return found[i]; };
  compare(reference.size(), r, f, row);
  row.same_top = argmax(reference) == argmax(found);
  if (next >= 0) {
    row.has_next = true;
    row.next_probability_change =
        std::exp(-negative_log_likelihood(found, next)) - std::exp(-negative_log_likelihood(reference, next));
  }
  return row;
}

RowDivergence compare_top(std::span<const float> reference_values, std::span<const int32_t> reference_ids,
                          std::span<const float> found) {
  WP_ASSERT(reference_values.size() == reference_ids.size() && !reference_ids.empty());
  RowDivergence row;
  const auto r = [&](size_t i) { return reference_values[i]; };
  const auto f = [&](size_t i) { return found[reference_ids[i]]; };
  compare(reference_ids.size(), r, f, row);
  row.same_top = argmax(found) == reference_ids[0];
  return row;
}

DivergenceSummary summarize(std::span<const RowDivergence> rows) {
  DivergenceSummary summary;
  std::vector<double> kl, change, change_squared;
  int64_t same = 0;
  for (const RowDivergence& row : rows) {
    kl.push_back(row.kl);
    same += row.same_top;
    if (row.has_next) {
      change.push_back(row.next_probability_change);
      change_squared.push_back(row.next_probability_change * row.next_probability_change);
    }
    if (summary.worst_position >= 0 && row.logit_error_max <= summary.logit_error_max) continue;
    summary.logit_error_max = row.logit_error_max;
    summary.worst_position = row.position;
  }
  summary.rows = static_cast<int64_t>(rows.size());
  summary.kl_mean = mean(kl);
  summary.kl_max = percentile(kl, 100);
  summary.kl_p999 = percentile(kl, 99.9);
  summary.kl_p99 = percentile(kl, 99);
  summary.kl_median = median(kl);
  summary.same_top_share = rows.empty() ? 0 : static_cast<double>(same) / static_cast<double>(rows.size());
  summary.probability_change_mean = mean(change);
  summary.probability_change_rms = std::sqrt(mean(change_squared));
  return summary;
}

}  // namespace wp::measure
