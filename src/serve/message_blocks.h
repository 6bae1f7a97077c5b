// Anthropic's messages and system text, which are lists of typed blocks, lowered to the messages that chats have: what
// a user says and each tool's result become messages of their own, in their order. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api_error.h"

namespace wp {

// A list of names for the log: each once, and not too many.
void add_once(std::vector<std::string>* names, std::string name);

struct LoweredMessages {
  Json messages = Json::array();     // As parse_chat() takes them.
  std::vector<std::string> ignored;  // Kinds of blocks that were left out, each once.
  std::optional<ApiError> error;     // The first refusal.

  void fail(ApiError found) {
    if (!error) error = std::move(found);
  }
  void ignore(std::string what) { add_once(&ignored, std::move(what)); }
};

void lower_system(const Json& system, LoweredMessages* out);
// One of `messages`; `index` is its place there.
void lower_message(const Json& message, size_t index, LoweredMessages* out);

}  // namespace wp
