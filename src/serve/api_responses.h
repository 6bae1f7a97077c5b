// The body of POST /v1/responses (and of /v1/responses/input_tokens) as plain data: what the dialect has of its own is
// read here, everything else is lowered to the body of a chat and read there, so that a field means the same in both.
// Parsing only; a fuzzer drives it without an engine. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/api_chat.h"
#include "serve/response_items.h"
#include "serve/response_tools.h"

namespace wp {

struct ResponsesRequest {
  Json items = Json::array();        // The new input, a string as one message.
  std::string previous_response_id;  // Empty: none.
  std::string instructions;
  bool store = true;
  bool summary = false;    // Thoughts are shown as their summary, which is all of them.
  bool encrypted = false;  // reasoning.encrypted_content is asked for.
  bool logprobs = false;   // message.output_text.logprobs, or top_logprobs.
  ResponseTools tools;
  Json chat = Json::object();        // The rest, as a chat body without messages.
  Json echo = Json::object();        // What the response object repeats of the request.
  std::vector<std::string> unknown;  // Members nobody knows here.
  std::vector<std::string> skipped;  // Kinds of tools and items that are not offered.

  bool is_probe() const { return items.empty() && previous_response_id.empty(); }  // Generates nothing.
};

std::optional<ApiError> parse_responses(const Json& body, ResponsesRequest* out);
// The chat of a parsed request: behind `history`, lists of items, the oldest first. Takes `request.chat`.
std::optional<ApiError> lower_responses(ResponsesRequest& request, const std::vector<Json>& history,
                                        const FindItem& find_item, const ParseContext& context, ChatRequest* out);
// A refusal of the chat's in this dialect's names.
ApiError in_responses_words(ApiError error);

}  // namespace wp
