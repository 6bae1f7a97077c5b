// The `ppl` gate: next-token loss over a text, by windows that know nothing of each other. One thread.
#pragma once

#include <functional>
#include <span>

#include "core/error.h"
#include "device/device.h"
#include "model/model.h"

namespace wp::measure {

struct PerplexityOptions {
  int64_t window_tokens = 2048;
  int64_t windows_max = 64;
  std::function<void(int64_t tokens_done, int64_t tokens_total)> progress;
};

struct Loss {
  int64_t tokens = 0;
  double mean = 0;       // Negative log-likelihood in nats.
  double deviation = 0;  // Of one token's.
  double perplexity() const;
  double error() const;  // One standard error of the perplexity.
};

struct PerplexityResult {
  int64_t windows = 0;
  Loss all;
  Loss dense, sparse;  // Predicted from at most, and from more than, the model's sparse bound of tokens.
};

// How many whole windows of `window_tokens` the text has, at most `windows_max`. The rest of the text is left out.
int64_t window_count(int64_t tokens, const PerplexityOptions& options);
// Each window is run alone from an empty state; its tokens 2 to the last count.
Result<PerplexityResult> run_perplexity(const Model& model, Device& device, std::span<const TokenId> tokens,
                                        const PerplexityOptions& options);

}  // namespace wp::measure
