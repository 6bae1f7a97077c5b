// What bounds the engine: limits as given made complete and checked, and a request checked against them. Pure; any
// thread.
#pragma once

#include <algorithm>

#include "engine/engine.h"

namespace wp {

// Rows of a prompt_logprobs piece: bounds the logits buffer.
constexpr int32_t kLogprobRows = 64;
constexpr int32_t kTopLogprobsMax = 20;
constexpr int32_t kStopTokensMax = 256;
constexpr int32_t kLogitBiasMax = 4096;
constexpr int32_t kCapturesMax = 64;

// Conversations that the anchors can keep: two tails each, and four to spare (spec/prefix_cache.md 12). At least one
// for each sequence.
inline int64_t conversations_of(const EngineLimits& limits) {
  return std::max<int64_t>(limits.sequences, (int64_t{limits.anchors} - 4) / 2);
}

// Zeros replaced by what follows from the model: context_tokens, anchors (2 * sequences + 4), pages (a context for each
// conversation that the anchors can keep). An error names the limit, what was expected and what was found.
Result<EngineLimits> complete_limits(EngineLimits limits, const ModelInfo& info);

// Why this request can never be served, with the numbers.
Result<void> check_request(const GenerateRequest& request, const EngineLimits& limits, const ModelInfo& info);

// Rows of logits that the largest pass asks for.
int64_t logit_rows_max(const EngineLimits& limits);
ScratchLimits scratch_limits(const EngineLimits& limits);

inline int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace wp
