#include "serve/render_chat.h"

#include "core/log.h"

namespace wp {

std::optional<ChatPrompt> render_chat(const RunContext& context, const HttpRequest& http, ChatRequest& request,
                                      bool captures) {
  const Service& service = context.service;
  const std::string input = request.input_name;
  if (!service.prompter) {
    context.response.fail(unsupported_value(input, cat(input, ": expected a model with a chat template, found none")));
    return std::nullopt;
  }
  if (!request.tools.is_null() && service.chat_template->source().find("tools") == std::string::npos) {
    context.response.fail(unsupported_value("tools", "tools: the model template has no tool section"));
    return std::nullopt;
  }
  if (service.strip_volatile)
    context.state.metrics.count_volatile_lines(strip_volatile_lines(request.history.messages));
  if (request.history.repeated_call) context.state.metrics.count_repeated_call();
  if (request.history.unmatched_result) log_warning("unmatched_tool_call_id", {{"id", http.id}});

  auto prompt = service.prompter->build(template_variables(request, request.history.messages), captures,
                                        request.history.breakpoints);
  if (!prompt.ok() && request.history.late_system) {
    tag_late_system(request.history.messages);
    prompt = service.prompter->build(template_variables(request, request.history.messages), captures,
                                     request.history.breakpoints);
  }
  if (prompt.ok() && !prompt->tokens.empty()) return std::move(*prompt);
  context.state.metrics.count_template_error();
  if (prompt.ok()) {
    context.response.fail(invalid_value(input, cat(input, ": expected a prompt of at least one token, found none")));
  } else {
    ApiError error = invalid_value(input, cat(input, ": the chat template refused it: ", prompt.error().message));
    if (prompt.error().code != ErrorCode::bad_request) error = from_error(prompt.error(), input);
    context.response.fail(error);
  }
  return std::nullopt;
}

void consolidate_turn(const Service& service, const ChatRequest& request, const Json& message, const CacheHints& hints,
                      const RequestStats& stats) {
  const EngineLimits& limits = service.engine->limits();
  if (!limits.cache || !limits.consolidate || !hints.enabled) return;
  Json messages = request.history.messages;
  if (!messages.empty() && messages.back()["role"] == "assistant") return;  // What follows two answers is anybody's.
  Json sent_back;                                                           // As the client will send it.
  if (normalise_message(message, messages.size(), &sent_back)) return;
  messages.push_back(std::move(sent_back));
  auto prefix = service.prompter->stable_prefix(template_variables(request, std::move(messages)));
  if (!prefix.ok()) return;  // A template that refuses the answer will refuse it again.
  service.engine->consolidate({.tokens = std::move(*prefix),
                               .domain = hints.domain,
                               .conversation = hints.conversation,
                               .slot = stats.slot,
                               .order = stats.order});
}

}  // namespace wp
