// Any bytes as the body of a response: parsed and lowered to a chat, or refused with a 400 that names what was
// expected, never a crash. Parsing only: no engine.
#include <cstddef>
#include <cstdint>

#include "serve/api_responses.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wp;
  const auto body = parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!body.ok()) return 0;
  ResponsesRequest request;
  if (const auto error = parse_responses(*body, &request)) {
    WP_ASSERT(error->status == 400 && !error->message.empty() && !error->param.empty());
    return 0;
  }
  WP_ASSERT(request.echo.is_object() && request.items.is_array());
  const ParseContext context{.context_tokens = 8192, .vocabulary = 1000};
  // The input again, as the history of a stored conversation.
  std::vector<Json> history;
  if (!request.previous_response_id.empty()) history.push_back(request.items);
  const FindItem find_item = [&](const std::string& id) -> std::optional<Json> {
    if (id.size() % 2 == 0 || request.items.empty()) return std::nullopt;
    return request.items[0];
  };
  ChatRequest chat;
  if (const auto error = lower_responses(request, history, find_item, context, &chat)) {
    WP_ASSERT(error->status == 400 && !error->message.empty());
    WP_ASSERT(error->param.compare(0, 8, "messages") != 0);
  } else {
    WP_ASSERT(!chat.history.messages.empty());
    WP_ASSERT(template_variables(chat, chat.history.messages).is_object());
  }
  return 0;
}
