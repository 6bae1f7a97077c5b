#include "measure/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "measure/divergence.h"
#include "measure/model_runner.h"
#include "measure/statistics.h"

namespace wp::measure {
namespace {

Loss loss_of(const std::vector<double>& samples) {
  return {.tokens = static_cast<int64_t>(samples.size()), .mean = mean(samples), .deviation = deviation(samples)};
}

}  // namespace

double Loss::perplexity() const { return tokens == 0 ? 0 : std::exp(mean); }
double Loss::error() const {
  return tokens == 0 ? 0 : perplexity() * deviation / std::sqrt(static_cast<double>(tokens));
}

int64_t window_count(int64_t tokens, const PerplexityOptions& options) {
  return std::min(tokens / options.window_tokens, options.windows_max);
}

Result<PerplexityResult> run_perplexity(const Model& model, Device& device, std::span<const TokenId> tokens,
                                        const PerplexityOptions& options) {
  const ModelInfo& info = model.info();
  const int64_t window = options.window_tokens;
  if (window < 2) return Error{ErrorCode::bad_request, cat("expected windows of at least 2 tokens, found ", window)};
  PerplexityResult result;
  result.windows = window_count(static_cast<int64_t>(tokens.size()), options);
  if (result.windows == 0)
    return Error{ErrorCode::bad_request,
                 cat("expected a text of at least one window of ", window, " tokens, found ", tokens.size())};
  const int64_t rows_max = rows_with_logits(info, std::min<int64_t>(window, 512));
  WP_TRY(const auto runner, ModelRunner::make(model, device, {window, rows_max, rows_max}));
  std::vector<int32_t> every_row(static_cast<size_t>(rows_max));
  std::iota(every_row.begin(), every_row.end(), 0);

  std::vector<double> all, dense, sparse;
  for (int64_t w = 0; w < result.windows; ++w) {
    const auto text = tokens.subspan(static_cast<size_t>(w * window), static_cast<size_t>(window));
    runner->restart();
    while (runner->position() < window) {
      const int64_t begin = runner->position(), rows = std::min(rows_max, window - begin);
      const Tensor logits = runner->run(Phase::prefill, text.subspan(begin, rows), std::span(every_row).first(rows));
      for (int64_t row = 0; row < rows && begin + row + 1 < window; ++row) {
        const std::span<const float> values{logits.f32() + row * info.vocabulary, static_cast<size_t>(info.vocabulary)};
        const double loss = negative_log_likelihood(values, text[begin + row + 1]);
        all.push_back(loss);
        (info.sparse_bound > 0 && begin + row + 1 > info.sparse_bound ? sparse : dense).push_back(loss);
      }
      if (options.progress) options.progress(w * window + runner->position(), result.windows * window);
    }
  }
  result.all = loss_of(all);
  result.dense = loss_of(dense);
  result.sparse = loss_of(sparse);
  return result;
}

}  // namespace wp::measure
