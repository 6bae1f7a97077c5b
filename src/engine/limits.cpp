#include "engine/limits.h"

#include <cmath>
#include <limits>

namespace wp {
namespace {

Result<void> expect_range(const char* what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return Error{ErrorCode::bad_request, cat(what, ": expected ", low, "..", high, ", found ", value)};
}

Result<void> expect_range(const char* what, float value, float low, float high) {
  if (value >= low && value <= high) return {};  // NaN is in no range.
  return Error{ErrorCode::bad_request, cat(what, ": expected ", low, "..", high, ", found ", value)};
}

Result<void> check_sampling(const SamplingParams& sampling) {
  // Wide enough for every use, narrow enough that no logit overflows.
  WP_TRY(expect_range("temperature", sampling.temperature, 0.0f, 100.0f));
  WP_TRY(expect_range("top_k", int64_t{sampling.top_k}, 0, std::numeric_limits<int32_t>::max()));
  WP_TRY(expect_range("top_p", sampling.top_p, 0.0f, 1.0f));
  WP_TRY(expect_range("min_p", sampling.min_p, 0.0f, 1.0f));
  WP_TRY(expect_range("repetition_penalty", sampling.repetition_penalty, 0.001f, 1000.0f));
  WP_TRY(expect_range("presence_penalty", sampling.presence_penalty, -1000.0f, 1000.0f));
  WP_TRY(expect_range("frequency_penalty", sampling.frequency_penalty, -1000.0f, 1000.0f));
  WP_TRY(expect_range("top_logprobs", int64_t{sampling.top_logprobs}, -1, kTopLogprobsMax));
  WP_TRY(expect_range("logit_bias entries", static_cast<int64_t>(sampling.logit_bias.size()), 0, kLogitBiasMax));
  for (const auto& [id, bias] : sampling.logit_bias) WP_TRY(expect_range("logit_bias", bias, -1e6f, 1e6f));
  return {};
}

}  // namespace

Result<EngineLimits> complete_limits(EngineLimits limits, const ModelInfo& info) {
  const int64_t context_max = info.context_max > 0 ? info.context_max : std::numeric_limits<int32_t>::max() / 2;
  WP_TRY(expect_range("sequences", int64_t{limits.sequences}, 1, 4096));
  if (limits.context_tokens == 0) limits.context_tokens = context_max;
  WP_TRY(expect_range("context_tokens", limits.context_tokens, 1, context_max));
  const int64_t pages_each = pages_for(limits.context_tokens);
  if (limits.anchors == 0) limits.anchors = 2 * limits.sequences + 4;
  if (limits.pages == 0) {
    const int64_t pages = pages_each * conversations_of(limits);
    WP_TRY(expect_range("pages", pages, 1, std::numeric_limits<int32_t>::max()));
    limits.pages = static_cast<int32_t>(pages);
  }
  if (limits.pages < pages_each)
    return Error{ErrorCode::bad_request, cat("pages: expected at least ", pages_each, " for a context of ",
                                             limits.context_tokens, " tokens, found ", limits.pages)};
  WP_TRY(expect_range("anchors", int64_t{limits.anchors}, limits.sequences + 2, 1 << 20));
  WP_TRY(expect_range("queue_max", int64_t{limits.queue_max}, 1, 1 << 20));
  WP_TRY(expect_range("pass_tokens", limits.pass_tokens, kPageTokens, 1 << 20));
  if (limits.pass_tokens % kPageTokens != 0)
    return Error{ErrorCode::bad_request, cat("pass_tokens: expected a multiple of 64, found ", limits.pass_tokens)};
  WP_TRY(expect_range("stall_ns", limits.stall_ns, 1, std::numeric_limits<int64_t>::max() / 4));
  WP_TRY(expect_range("events_max", int64_t{limits.events_max}, 1, 1 << 20));
  return limits;
}

Result<void> check_request(const GenerateRequest& request, const EngineLimits& limits, const ModelInfo& info) {
  const int64_t prompt = static_cast<int64_t>(request.tokens.size());
  if (prompt == 0) return Error{ErrorCode::bad_request, "prompt: expected at least one token, found none"};
  WP_TRY(expect_range("max_tokens", request.max_tokens, request.prompt_logprobs ? 0 : 1,
                      std::numeric_limits<int64_t>::max() / 2));
  if (prompt + request.max_tokens > limits.context_tokens)
    return Error{ErrorCode::too_long,
                 cat("prompt ", prompt, " + max_tokens ", request.max_tokens, " > context ", limits.context_tokens)};
  for (size_t i = 0; i < request.tokens.size(); ++i)
    if (request.tokens[i] < 0 || request.tokens[i] >= info.vocabulary)
      return Error{ErrorCode::bad_request,
                   cat("prompt token ", i, ": expected 0..", info.vocabulary - 1, ", found ", request.tokens[i])};
  WP_TRY(expect_range("stop_tokens", static_cast<int64_t>(request.stop_tokens.size()), 0, kStopTokensMax));
  WP_TRY(expect_range("min_tokens", request.min_tokens, 0, std::numeric_limits<int64_t>::max()));
  WP_TRY(expect_range("vocabulary_limit", int64_t{request.vocabulary_limit}, 0, info.vocabulary));
  WP_TRY(expect_range("captures", static_cast<int64_t>(request.cache.captures.size()), 0, kCapturesMax));
  if (request.grammar)
    WP_TRY(expect_range("grammar vocabulary", int64_t{request.grammar->trie().vocabulary()}, 1, info.vocabulary));
  return check_sampling(request.sampling);
}

int64_t logit_rows_max(const EngineLimits& limits) { return int64_t{limits.sequences} + kLogprobRows; }

ScratchLimits scratch_limits(const EngineLimits& limits) {
  return {.rows_max = std::max<int64_t>(limits.pass_tokens, limits.sequences),
          .logit_rows_max = logit_rows_max(limits),
          .segments_max = limits.sequences,
          .context_max = limits.context_tokens};
}

}  // namespace wp
