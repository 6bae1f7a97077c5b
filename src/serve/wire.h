// JSON objects that several answers share: usage, timings, progress, log-probabilities (spec/api.md 2, 5, 10). Pure.
#pragma once

#include <string>

#include "core/json.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace wp {

struct Usage {
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, reasoning_tokens = 0;
  void add(const Usage& other, bool same_prompt);  // A further choice; of the same prompt, its tokens count once.
};

Json usage_json(const Usage& usage);
Json timings_json(const RequestStats& stats, int64_t predicted_tokens);
Json progress_json(const RequestStats& stats, int64_t prompt_done, int64_t time_ns);
// {token, logprob, bytes, top_logprobs:[{token, logprob, bytes}]}
Json logprob_json(const Tokenizer& tokenizer, const TokenEvent& event);
// A token's bytes as text; what is not UTF-8 by itself shows as U+FFFD.
std::string token_text(const Tokenizer& tokenizer, TokenId token);
// OpenAI wants finite numbers.
double finite_logprob(float logprob);

// "chatcmpl-…", "call_…": unique and not guessable from the one before.
std::string make_id(std::string_view prefix);

}  // namespace wp
