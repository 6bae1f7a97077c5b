#include "measure/kl.h"

#include <algorithm>
#include <cmath>

#include "measure/model_runner.h"
#include "measure/statistics.h"

namespace wp::measure {
namespace {

constexpr int64_t kPassRows =
    2048;  // Of a pass when the caller does not cut: on the grid, so the bits are one piece's.

std::vector<int64_t> piece_sizes(const KlOptions& options, int64_t tokens, int64_t pass_rows) {
  std::vector<int64_t> sizes;
  int64_t done = 0;
  const auto take = [&](int64_t rows) {
    rows = std::min(rows, tokens - done);
    if (rows > 0) sizes.push_back(rows);
    done += rows;
  };
  for (int64_t piece : options.pieces) take(piece);
  while (done < tokens) take(options.pieces.empty() ? pass_rows : 1);
  return sizes;
}

void compare_rows(const ReferencePrompt& prompt, std::span<const ReferenceRow> rows, const Tensor& logits,
                  std::vector<RowDivergence>& out) {
  const int64_t vocabulary = logits.dim(1);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> found{logits.f32() + static_cast<int64_t>(i) * vocabulary,
                                       static_cast<size_t>(vocabulary)};
    const int64_t next = rows[i].position + 1;
    const bool has_next = next < static_cast<int64_t>(prompt.tokens.size());
    RowDivergence row = rows[i].logits.empty()
                            ? compare_top(rows[i].top_values, rows[i].top_ids, found)
                            : compare_row(rows[i].logits, found, has_next ? prompt.tokens[next] : -1);
    row.position = rows[i].position;
    out.push_back(row);
  }
}

// Greedy from the prompt's last logits on, by decode steps; stops at the first difference or where the reference's own
// choice hangs on less than the tolerance.
void compare_greedy(ModelRunner& runner, const ReferencePrompt& prompt, int32_t first, double gap_min,
                    KlPromptResult& result) {
  result.greedy_steps = static_cast<int64_t>(prompt.greedy.size());
  int32_t token = first;
  for (size_t step = 0; step < prompt.greedy.size(); ++step) {
    if (step < prompt.greedy_gaps.size() && prompt.greedy_gaps[step] < gap_min) return;
    ++result.greedy_compared;
    if (token != prompt.greedy[step]) {
      result.greedy_matches = false;
      return;
    }
    ++result.greedy_equal;
    if (step + 1 < prompt.greedy.size()) token = argmax(runner.run_last(Phase::decode, {&token, 1}));
  }
}

KlPromptResult run_prompt(ModelRunner& runner, const ReferencePrompt& prompt, const KlOptions& options,
                          double tolerance) {
  KlPromptResult result{.name = prompt.name, .tokens = static_cast<int64_t>(prompt.tokens.size())};
  runner.restart();
  std::span<const ReferenceRow> left = prompt.rows;
  const std::span<const TokenId> tokens = prompt.tokens;
  int32_t next = -1;
  for (int64_t rows : piece_sizes(options, result.tokens, runner.limits().rows_max)) {
    const int64_t begin = runner.position();
    size_t here = 0;
    std::vector<int32_t> wanted;
    for (; here < left.size() && left[here].position < begin + rows; ++here)
      wanted.push_back(static_cast<int32_t>(left[here].position - begin));
    const bool last = begin + rows == result.tokens;
    if (last && (wanted.empty() || wanted.back() != rows - 1)) wanted.push_back(static_cast<int32_t>(rows - 1));
    const Tensor logits = runner.run(Phase::prefill, tokens.subspan(begin, rows), wanted);
    compare_rows(prompt, left.first(here), logits, result.rows);
    left = left.subspan(here);
    if (last) {
      const int64_t V = logits.dim(1), R = logits.dim(0);
      next = argmax({logits.f32() + (R - 1) * V, static_cast<size_t>(V)});
    }
    if (options.progress) options.progress(prompt.name, runner.position(), result.tokens);
  }
  result.summary = summarize(result.rows);
  compare_greedy(runner, prompt, next, 2 * tolerance, result);
  return result;
}

Result<void> check_prompt(const ReferencePrompt& prompt, const ModelInfo& info) {
  const auto bad = [&](int32_t token) { return token >= info.vocabulary; };
  if (std::any_of(prompt.tokens.begin(), prompt.tokens.end(), bad) ||
      std::any_of(prompt.greedy.begin(), prompt.greedy.end(), bad))
    return Error{ErrorCode::bad_file, cat("reference ", prompt.name, ": expected token ids below ", info.vocabulary)};
  for (const ReferenceRow& row : prompt.rows) {
    if (!row.logits.empty() && static_cast<int64_t>(row.logits.size()) != info.vocabulary)
      return Error{ErrorCode::bad_file, cat("reference ", prompt.name, ": expected rows of ", info.vocabulary,
                                            " logits, found ", row.logits.size())};
    if (std::any_of(row.top_ids.begin(), row.top_ids.end(), bad))
      return Error{ErrorCode::bad_file, cat("reference ", prompt.name, ": expected ids below ", info.vocabulary)};
  }
  return {};
}

}  // namespace

double default_tolerance(const ModelInfo& info, DeviceKind kind) {
  if (kind != DeviceKind::ref) return 2e-3;
  return info.family.rfind("qwen3_5", 0) == 0 ? 1e-3 : 2e-4;
}

Result<KlResult> run_kl(const Model& model, Device& device, const Reference& reference, const KlOptions& options) {
  const ModelInfo& info = model.info();
  KlResult result;
  result.tolerance = options.tolerance > 0 ? options.tolerance : default_tolerance(info, device.kind());
  RunnerLimits limits{.tokens_max = 1, .rows_max = 1, .logit_rows_max = 1};
  std::vector<const ReferencePrompt*> chosen;
  for (const ReferencePrompt& prompt : reference.prompts()) {
    WP_TRY(check_prompt(prompt, info));
    const int64_t tokens = static_cast<int64_t>(prompt.tokens.size());
    if (options.tokens_max > 0 && tokens > options.tokens_max) {
      result.skipped.push_back(prompt.name);
      continue;
    }
    chosen.push_back(&prompt);
    limits.tokens_max = std::max(limits.tokens_max, tokens + static_cast<int64_t>(prompt.greedy.size()));
    for (int64_t rows : piece_sizes(options, tokens, kPassRows)) limits.rows_max = std::max(limits.rows_max, rows);
    limits.logit_rows_max = std::max(limits.logit_rows_max, static_cast<int64_t>(prompt.rows.size()) + 1);
  }
  limits.logit_rows_max = std::min(limits.logit_rows_max, limits.rows_max);
  WP_TRY(const auto runner, ModelRunner::make(model, device, limits));

  std::vector<RowDivergence> all;
  for (const ReferencePrompt* prompt : chosen) {
    result.prompts.push_back(run_prompt(*runner, *prompt, options, result.tolerance));
    const KlPromptResult& found = result.prompts.back();
    all.insert(all.end(), found.rows.begin(), found.rows.end());
    if (!result.failure.empty()) continue;
    if (!(found.summary.logit_error_max <= result.tolerance))
      result.failure = fmt::format("{} row {}: expected logits within {:.1e}, found {:.3e}", found.name,
                                   found.summary.worst_position, result.tolerance, found.summary.logit_error_max);
    else if (!found.greedy_matches)
      result.failure = fmt::format("{}: expected {} greedy tokens as in the reference, found the first {}", found.name,
                                   found.greedy_steps, found.greedy_equal);
  }
  result.summary = summarize(all);
  if (all.empty()) result.failure = "expected at least one row to compare, found none";
  result.passed = result.failure.empty();
  return result;
}

std::string kl_table(const KlResult& result, bool every_row) {
  std::string out =
      fmt::format("{:<12} {:>7} {:>6} {:>11} {:>7} {:>10} {:>10} {:>10} {:>9} {:>9}\n", "prompt", "tokens", "rows",
                  "max|dlogit|", "at row", "KL mean", "KL 99%", "KL max", "same top", "greedy");
  for (const KlPromptResult& prompt : result.prompts)
    out += fmt::format("{:<12} {:>7} {:>6} {:>11.3e} {:>7} {:>10.2e} {:>10.2e} {:>10.2e} {:>8.2f}% {:>9}\n",
                       prompt.name, prompt.tokens, prompt.rows.size(), prompt.summary.logit_error_max,
                       prompt.summary.worst_position, prompt.summary.kl_mean, prompt.summary.kl_p99,
                       prompt.summary.kl_max, 100 * prompt.summary.same_top_share,
                       fmt::format("{}/{}", prompt.greedy_equal, prompt.greedy_compared));
  for (const std::string& name : result.skipped) out += cat(name, " left out: longer than --tokens-max\n");
  for (const KlPromptResult& prompt : result.prompts) {
    if (prompt.greedy_compared < prompt.greedy_steps && prompt.greedy_matches)
      out += fmt::format(
          "{}: {} of {} greedy steps compared; at the next the reference's two best logits are within {:.1e}\n",
          prompt.name, prompt.greedy_compared, prompt.greedy_steps, 2 * result.tolerance);
    std::vector<const RowDivergence*> rows;
    for (const RowDivergence& row : prompt.rows) rows.push_back(&row);
    if (!every_row) {
      std::stable_sort(rows.begin(), rows.end(), [](const RowDivergence* a, const RowDivergence* b) {
        return a->logit_error_max > b->logit_error_max;
      });
      rows.resize(std::min<size_t>(rows.size(), 3));
    }
    for (const RowDivergence* row : rows)
      out += fmt::format("{} {:<12} row {:>6}  max|dlogit| {:.3e}  KL {:.2e}  same top {}\n",
                         every_row ? "  row" : "worst", prompt.name, row->position, row->logit_error_max, row->kl,
                         row->same_top ? "yes" : "no");
  }
  const DivergenceSummary& s = result.summary;
  out += fmt::format("KL divergence: mean {:.3e}, max {:.3e}, 99.9% {:.3e}, 99% {:.3e}, median {:.3e}\n", s.kl_mean,
                     s.kl_max, s.kl_p999, s.kl_p99, s.kl_median);
  out += fmt::format("mean dp {:+.3e}, RMS dp {:.3e}, same top {:.3f} %, rows {}, tolerance {:.1e}: {}\n",
                     s.probability_change_mean, s.probability_change_rms, 100 * s.same_top_share, s.rows,
                     result.tolerance, result.passed ? "passed" : "FAILED");
  return out;
}

Json kl_json(const KlResult& result) {
  Json prompts = Json::array();
  for (const KlPromptResult& prompt : result.prompts) {
    Json rows = Json::array();
    for (const RowDivergence& row : prompt.rows)
      rows.push_back({{"position", row.position},
                      {"logit_error_max", row.logit_error_max},
                      {"kl", row.kl},
                      {"same_top", row.same_top}});
    prompts.push_back({{"name", prompt.name},
                       {"tokens", prompt.tokens},
                       {"logit_error_max", prompt.summary.logit_error_max},
                       {"worst_row", prompt.summary.worst_position},
                       {"kl_mean", prompt.summary.kl_mean},
                       {"kl_max", prompt.summary.kl_max},
                       {"kl_p99", prompt.summary.kl_p99},
                       {"same_top_share", prompt.summary.same_top_share},
                       {"greedy_steps", prompt.greedy_steps},
                       {"greedy_compared", prompt.greedy_compared},
                       {"greedy_equal", prompt.greedy_equal},
                       {"rows", std::move(rows)}});
  }
  return {{"tolerance", result.tolerance},
          {"passed", result.passed},
          {"failure", result.failure},
          {"skipped", result.skipped},
          {"logit_error_max", result.summary.logit_error_max},
          {"kl_mean", result.summary.kl_mean},
          {"kl_max", result.summary.kl_max},
          {"kl_p999", result.summary.kl_p999},
          {"kl_p99", result.summary.kl_p99},
          {"kl_median", result.summary.kl_median},
          {"same_top_share", result.summary.same_top_share},
          {"prompts", std::move(prompts)}};
}

}  // namespace wp::measure
