#include "serve/render_chat.h"

#include "core/log.h"

namespace wp {

std::optional<ChatPrompt> render_chat(const RunContext& context, const HttpRequest& http, ChatRequest& request,
                                      bool captures) {
  const Service& service = context.service;
  if (!service.prompter) {
    context.response.fail(unsupported_value("messages", "messages: expected a model with a chat template, found none"));
    return std::nullopt;
  }
  if (!request.tools.is_null() && service.chat_template->source().find("tools") == std::string::npos) {
    context.response.fail(unsupported_value("tools", "tools: the model template has no tool section"));
    return std::nullopt;
  }
  if (request.history.repeated_call) context.state.metrics.count_repeated_call();
  if (request.history.unmatched_result) log_warning("unmatched_tool_call_id", {{"id", http.id}});

  auto prompt = service.prompter->build(template_variables(request, request.history.messages), captures);
  if (!prompt.ok() && request.history.late_system) {
    tag_late_system(request.history.messages);
    prompt = service.prompter->build(template_variables(request, request.history.messages), captures);
  }
  if (prompt.ok() && !prompt->tokens.empty()) return std::move(*prompt);
  context.state.metrics.count_template_error();
  if (prompt.ok()) {
    context.response.fail(invalid_value("messages", "messages: expected a prompt of at least one token, found none"));
  } else {
    ApiError error =
        invalid_value("messages", cat("messages: the chat template refused them: ", prompt.error().message));
    if (prompt.error().code != ErrorCode::bad_request) error = from_error(prompt.error(), "messages");
    context.response.fail(error);
  }
  return std::nullopt;
}

}  // namespace wp
