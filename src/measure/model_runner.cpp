#include "measure/model_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace wp::measure {

ModelRunner::ModelRunner(const Model& model, Device& device, const RunnerLimits& limits)
    : model_(model), stream_(device), limits_(limits) {}

Result<std::unique_ptr<ModelRunner>> ModelRunner::make(const Model& model, Device& device, const RunnerLimits& limits) {
  WP_ASSERT(limits.tokens_max > 0 && limits.rows_max > 0 && limits.logit_rows_max > 0);
  const ModelInfo& info = model.info();
  if (limits.tokens_max > info.context_max)
    return Error{ErrorCode::too_long, cat("expected at most ", info.context_max,
                                          " tokens (the model's context), found ", limits.tokens_max)};
  std::unique_ptr<ModelRunner> made(new ModelRunner(model, device, limits));
  const int64_t pages = (limits.tokens_max + kPageRows - 1) / kPageRows;
  WP_TRY(made->pools_, Pools::make(device, info, static_cast<int32_t>(pages), 1, 1));
  WP_TRY(made->scratch_, model.make_scratch(device, {.rows_max = limits.rows_max,
                                                     .logit_rows_max = limits.logit_rows_max,
                                                     .segments_max = 1,
                                                     .context_max = limits.tokens_max}));
  WP_TRY(made->logits_, Buffer::make(device, limits.logit_rows_max * info.vocabulary * 4, "logits"));
  made->pages_.resize(static_cast<size_t>(pages));
  std::iota(made->pages_.begin(), made->pages_.end(), 0);
  return made;
}

void ModelRunner::restart() {
  position_ = 0;
  source_ = StateSource::zero;
}

void ModelRunner::rewind() {
  WP_ASSERT(kept_position_ > 0);
  position_ = kept_position_;
  source_ = StateSource::anchor;
}

Tensor ModelRunner::run(Phase phase, std::span<const TokenId> tokens, std::span<const int32_t> logit_rows) {
  const int64_t rows = static_cast<int64_t>(tokens.size());
  const int64_t wanted = static_cast<int64_t>(logit_rows.size());
  WP_ASSERT(rows > 0 && rows <= limits_.rows_max && wanted <= limits_.logit_rows_max);
  WP_ASSERT(position_ + rows <= limits_.tokens_max);
  const Capture capture{.position = position_ + rows, .anchor = 0};
  const bool keep = std::exchange(keep_next_, false);
  WP_ASSERT(!keep || (phase == Phase::prefill && capture.position % kPageRows == 0));
  if (keep) pools_.clear_receipts(0);
  const Segment segment{.rows = static_cast<int32_t>(rows),
                        .position = position_,
                        .source = source_,
                        .anchor = source_ == StateSource::anchor ? 0 : -1,
                        .slot = 0,
                        .pages = pages_,
                        .captures = {&capture, keep ? size_t{1} : size_t{0}}};
  const Tensor logits = logits_.view(DType::f32, {wanted, info().vocabulary});
  model_.forward(stream_, {.phase = phase, .tokens = tokens, .segments = {&segment, 1}, .logit_rows = logit_rows},
                 pools_, *scratch_, logits);
  stream_.synchronize();
  position_ += rows;
  source_ = StateSource::slot;
  if (keep) kept_position_ = position_;
  return logits;
}

std::span<const float> ModelRunner::run_last(Phase phase, std::span<const TokenId> tokens) {
  const int32_t last = static_cast<int32_t>(tokens.size()) - 1;
  return {run(phase, tokens, {&last, 1}).f32(), static_cast<size_t>(info().vocabulary)};
}

void ModelRunner::prefill(std::span<const TokenId> tokens, int64_t pass_tokens, bool keep_end) {
  for (size_t at = 0; at < tokens.size();) {
    const size_t rows = std::min(tokens.size() - at, static_cast<size_t>(pass_tokens));
    if (keep_end && at + rows == tokens.size()) keep_state_of_next_pass();
    run_last(Phase::prefill, tokens.subspan(at, rows));
    at += rows;
  }
}

std::vector<TokenId> random_tokens(int64_t count, int64_t vocabulary, Seed seed) {
  Rng rng(seed);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng.between(0, vocabulary - 1));
  return tokens;
}

int64_t rows_with_logits(const ModelInfo& info, int64_t rows_wanted) {
  const int64_t fitting = (64 << 20) / (info.vocabulary * 4) / kPageRows * kPageRows;
  return std::max(kPageRows, std::min(rows_wanted, fitting));
}

}  // namespace wp::measure
