// Any bytes as the body of Anthropic's messages: brought into the form of a chat, or refused with a 400 that names what
// was expected, in both dialects' shapes; never a crash. Parsing only: no engine.
#include <cstddef>
#include <cstdint>

#include "serve/api_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wp;
  const auto body = parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!body.ok()) return 0;
  const ParseContext context{.context_tokens = 8192, .vocabulary = 1000};
  MessagesRequest request;
  if (const auto error = parse_messages(*body, context, &request)) {
    WP_ASSERT(error->status == 400 && !error->message.empty());
    WP_ASSERT(error->body(ErrorShape::anthropic, "r-1")["error"].size() == 2);
    return 0;
  }
  WP_ASSERT(!request.chat.history.messages.empty());
  for (const Json& message : request.chat.history.messages) WP_ASSERT(message["content"].is_string());
  WP_ASSERT(request.ignored.size() <= 32);
  WP_ASSERT(template_variables(request.chat, request.chat.history.messages).is_object());
  return 0;
}
