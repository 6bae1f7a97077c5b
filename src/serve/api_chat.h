// The body of POST /v1/chat/completions (and of /apply-template) as plain data: every field checked for type and range,
// messages normalised, what is not offered refused by name. Parsing only; a fuzzer drives it without an engine. Pure.
#pragma once

#include <optional>

#include "serve/api_sampling.h"
#include "serve/chat_messages.h"

namespace wp {

struct ChatRequest {
  const char* input_name = "messages";  // What the dialect calls the conversation, for refusals.
  CommonFields common;
  NormalisedMessages history;
  Json tools = nullptr;             // As given; null: none.
  Json variables = Json::object();  // chat_template_kwargs and what stands for them, for the template.
  bool calls_allowed = false;       // Tools are given, and tool_choice is not none.
  int64_t tools_pin_s = 0;          // A tool carries a cache_control.
  bool parallel_calls = true;
  bool add_generation_prompt = true;
  bool stop_in_reasoning = false;
  std::string_view call_id_prefix = "call_";
};

std::optional<ApiError> parse_chat(const Json& body, const ParseContext& context, ChatRequest* out);
// The template's variables for the request: messages, tools, add_generation_prompt and the rest.
Json template_variables(const ChatRequest& request, Json messages);

}  // namespace wp
