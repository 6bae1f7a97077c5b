// Messages as clients send them, brought into the one form that chat templates expect: content is a string, developer
// is system, leading system messages are one, arguments of calls are objects with their keys in order. Pure.
#pragma once

#include <optional>

#include "serve/api_error.h"

namespace wp {

struct NormalisedMessages {
  Json messages = Json::array();
  bool late_system = false;       // A system message stands behind others.
  bool repeated_call = false;     // The same call stands three times or more in the history.
  bool unmatched_result = false;  // A tool result without its call.
};

// One of them: `index` is its place in the client's list, for what is refused.
std::optional<ApiError> normalise_message(const Json& message, size_t index, Json* out);
std::optional<ApiError> normalise_messages(const Json& messages, int32_t messages_max, NormalisedMessages* out);
// For templates that refuse system messages behind others: these become user turns, tagged, in place.
void tag_late_system(Json& messages);

}  // namespace wp
