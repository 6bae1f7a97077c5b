// The body of POST /v1/completions as plain data (spec/api.md 5). Parsing only. Pure.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "serve/api_sampling.h"

namespace wp {

using PromptInput = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  CommonFields common;
  std::vector<PromptInput> prompts;  // At least one; none is an empty list of tokens.
  std::optional<std::string> suffix;
  bool echo = false;
  bool parse_special = false;  // Extension: added tokens in a text prompt become their ids. Off: text stays text.
  int32_t logprobs = -1;       // -1: none.
};

std::optional<ApiError> parse_completion(const Json& body, const ParseContext& context, CompletionRequest* out);

}  // namespace wp
