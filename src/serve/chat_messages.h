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
  // cache_control: how many messages stand before each breakpoint, ascending, and for how long it is asked.
  std::vector<size_t> breakpoints;
  int64_t pin_s = 0;
};

// One of them: `index` is its place in the client's list, for what is refused.
std::optional<ApiError> normalise_message(const Json& message, size_t index, Json* out);
// The seconds that a cache_control asks for, as a member of a message, a part or a tool: {"type": "ephemeral"}, and
// perhaps a ttl, "5m" or "1h". 0: there is none.
int64_t cache_control_s(const Json& holder);
std::optional<ApiError> normalise_messages(const Json& messages, int32_t messages_max, NormalisedMessages* out);
// For templates that refuse system messages behind others: these become user turns, tagged, in place.
void tag_late_system(Json& messages);
// Claude Code begins its system text with a line that differs in each request, so that nothing behind it could be found
// in the cache: "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch=eb6c6;". Takes it out of
// system messages; what only looks like it stays. Returns how many there were.
int strip_volatile_lines(Json& messages);

}  // namespace wp
