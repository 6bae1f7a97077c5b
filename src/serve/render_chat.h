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

}  // namespace wp
