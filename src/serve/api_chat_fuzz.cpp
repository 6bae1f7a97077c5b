// Any bytes as the body of a chat or a completion: parsed or refused with a 400 that names what was expected, never a
// crash. Parsing only: no engine.
#include <cstddef>
#include <cstdint>

#include "serve/api_chat.h"
#include "serve/api_completions.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wp;
  const auto body = parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!body.ok()) return 0;
  const ParseContext context{.context_tokens = 8192, .vocabulary = 1000};
  ChatRequest chat;
  if (const auto error = parse_chat(*body, context, &chat)) {
    WP_ASSERT(error->status == 400 && !error->message.empty() && error->body().is_object());
  } else {
    WP_ASSERT(!chat.history.messages.empty());
    if (chat.history.late_system) tag_late_system(chat.history.messages);
    WP_ASSERT(template_variables(chat, chat.history.messages).is_object());
  }
  CompletionRequest completion;
  if (const auto error = parse_completion(*body, context, &completion)) WP_ASSERT(error->status == 400);
  else WP_ASSERT(!completion.prompts.empty());
  return 0;
}
