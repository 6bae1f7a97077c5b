// The body of POST /v1/messages and /v1/messages/count_tokens, Anthropic's, as plain data: brought into the form that
// chats have, so that what follows is the same for both. Blocks and tools that this server does not know are left out
// and named; what would change an answer unseen (images, output formats) is refused by name. Parsing only. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/api_chat.h"

namespace wp {

struct MessagesRequest {
  ChatRequest chat;
  bool prefill = false;              // The last message is the assistant's: its answer would have to be continued.
  std::vector<std::string> ignored;  // Without effect here, each once: "tools[].type:web_search_20250305".
};

std::optional<ApiError> parse_messages(const Json& body, const ParseContext& context, MessagesRequest* out);

}  // namespace wp
