// From a parsed chat request to the prompt, with what the server decides about templates: a late system message is
// rendered in place, as a system turn where the template allows it, else as a tagged user turn. Connection threads.
#pragma once

#include <optional>

#include "serve/api_chat.h"
#include "serve/generation_run.h"

namespace wp {

// Nothing: the refusal has been answered.
std::optional<ChatPrompt> render_chat(const RunContext& context, const HttpRequest& http, ChatRequest& request,
                                      bool captures);

// After the answer is out: what the next prompt will begin with, now that the turn has ended with `message` (as it was
// sent), is left to the engine's idle time.
void consolidate_turn(const Service& service, const ChatRequest& request, const Json& message, const CacheHints& hints,
                      const RequestStats& stats);

}  // namespace wp
