#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "measure/divergence.h"
#include "measure/model_speed.h"
#include "measure/perplexity.h"

namespace wp::measure {
namespace {

TEST(Statistics, KnownSamples) {
  const std::vector<double> samples = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(mean(samples), 2.5);
  EXPECT_NEAR(deviation(samples), 1.2909944487358056, 1e-15);
  EXPECT_DOUBLE_EQ(median(samples), 2.5);
  EXPECT_DOUBLE_EQ(percentile(samples, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(samples, 90), 3.7);  // numpy.percentile
  EXPECT_DOUBLE_EQ(percentile(samples, 100), 4);
  EXPECT_DOUBLE_EQ(percentile({}, 50), 0);
  const std::vector<double> one = {7};
  EXPECT_DOUBLE_EQ(deviation(one), 0);
  EXPECT_DOUBLE_EQ(percentile(one, 99), 7);
}

TEST(Statistics, Texts) {
  EXPECT_EQ(duration_text(0.0123), "12.3 ms");
  EXPECT_EQ(duration_text(12.345), "12.3 s");
  EXPECT_EQ(bytes_text(77.3 * (1 << 30)), "77.3 GiB");
  EXPECT_EQ(count_text(1254300), "1,254,300");
  EXPECT_EQ(count_text(-12), "-12");
}

// By hand: softmax([0, ln 3]) = [1/4, 3/4], softmax([0, 0]) = [1/2, 1/2].
TEST(Divergence, RowByHand) {
  const std::vector<float> reference = {0.0f, std::log(3.0f)}, found = {0.0f, 0.0f};
  const RowDivergence row = compare_row(reference, found, 1);
  EXPECT_NEAR(row.kl, 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
  EXPECT_NEAR(row.logit_error_max, std::log(3.0), 1e-6);
  EXPECT_FALSE(row.same_top);  // A tie goes to the lower id.
  EXPECT_NEAR(row.next_probability_change, -0.25, 1e-7);
}

TEST(Divergence, EqualRowsDoNotDiverge) {
  const std::vector<float> row = {100.0f, -50.0f, 3.25f};
  const RowDivergence same = compare_row(row, row);
  EXPECT_EQ(same.kl, 0);
  EXPECT_EQ(same.logit_error_max, 0);
  EXPECT_TRUE(same.same_top);
  EXPECT_FALSE(same.has_next);
}

TEST(Divergence, NanIsAnInfiniteError) {
  const std::vector<float> reference = {1.0f, 2.0f}, found = {1.0f, NAN};
  EXPECT_TRUE(std::isinf(compare_row(reference, found).logit_error_max));
  EXPECT_TRUE(std::isinf(compare_row(reference, found).kl));
}

TEST(Divergence, TopRowsCompareTheIdsGiven) {
  const std::vector<float> values = {5.0f, 4.0f}, found = {0.0f, 4.0f, 9.0f, 5.5f};
  const std::vector<int32_t> ids = {3, 1};
  const RowDivergence row = compare_top(values, ids, found);
  EXPECT_DOUBLE_EQ(row.logit_error_max, 0.5);
  EXPECT_FALSE(row.same_top);  // Id 2 is the best of all.
}

TEST(Divergence, SummaryNamesTheWorstRow) {
  std::vector<RowDivergence> rows(100);
  for (int i = 0; i < 100; ++i)
    rows[i] = {.position = i, .logit_error_max = i == 41 ? 0.5 : 0.1, .kl = i * 0.01, .same_top = i != 7};
  const DivergenceSummary summary = summarize(rows);
  EXPECT_EQ(summary.worst_position, 41);
  EXPECT_DOUBLE_EQ(summary.logit_error_max, 0.5);
  EXPECT_NEAR(summary.kl_mean, 0.495, 1e-12);
  EXPECT_NEAR(summary.kl_p99, 0.9801, 1e-12);
  EXPECT_DOUBLE_EQ(summary.same_top_share, 0.99);
}

TEST(Perplexity, WindowRule) {
  EXPECT_EQ(window_count(2047, {.window_tokens = 2048}), 0);
  EXPECT_EQ(window_count(2048 * 3 + 5, {.window_tokens = 2048}), 3);  // The rest is left out.
  EXPECT_EQ(window_count(2048 * 100, {.window_tokens = 2048, .windows_max = 64}), 64);
  EXPECT_NEAR(negative_log_likelihood(std::vector<float>{0.0f, 0.0f, 0.0f, 0.0f}, 2), std::log(4.0), 1e-12);
}

TEST(Bench, MultiplyAddsCountWhatIsVisible) {
  const ModelInfo info{.sparse_bound = 8,
                       .multiply_adds_per_token = 100,
                       .multiply_adds_per_token_and_key = 10,
                       .multiply_adds_per_token_and_block = 1,
                       .multiply_adds_head = 1000};
  EXPECT_DOUBLE_EQ(multiply_adds_needed(info, 0, 2, 1), 2 * 100 + 10 * (1 + 2) + 1000);
  // From the bound on the keys stand still and the blocks are scored.
  EXPECT_DOUBLE_EQ(multiply_adds_needed(info, 11, 1, 0), 100 + 10 * 8 + 3);
}

}  // namespace
}  // namespace wp::measure
