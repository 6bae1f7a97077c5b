// POST /v1/messages and POST /v1/messages/count_tokens: Anthropic's dialect (spec/api.md 9).
#include <algorithm>
#include <memory>

#include "core/hash.h"
#include "core/log.h"
#include "serve/api_messages.h"
#include "serve/chat_turn.h"
#include "serve/render_chat.h"
#include "serve/routes.h"

namespace wp {
namespace {

using Kind = OutputPiece::Kind;

// The end of the last thing that a cache_control stands at, in tokens; 0: there is none.
int64_t deepest_breakpoint(const ChatRequest& request, const CapturePositions& positions) {
  int64_t deepest = request.tools_pin_s > 0 ? positions.system_end : 0;
  for (const int64_t position : positions.breakpoints) deepest = std::max(deepest, position);
  return deepest;
}

// What clients send back with a thought, and nobody here has to believe.
std::string signature_of(const std::string& thought) {
  return cat("wp-", hex(hash_text(thought)), hex(hash_text(thought, 1)));
}

// Each part of the choice is one content block, so that both ways of answering give the same blocks.
class MessagesRun final : public ChatRun {
 public:
  MessagesRun(const RunContext& run_context, const ChatRequest& request, const OutputRules& rules, int64_t breakpoint)
      : ChatRun(run_context, request, rules), id_(make_id("msg_")), breakpoint_(breakpoint) {}

 private:
  Json usage_json() const {
    const Usage used = usage();
    const int64_t created =
        std::clamp<int64_t>(breakpoint_ - used.cached_tokens, 0, used.prompt_tokens - used.cached_tokens);
    return {{"input_tokens", used.prompt_tokens - used.cached_tokens - created},
            {"cache_creation_input_tokens", created},
            {"cache_read_input_tokens", used.cached_tokens},
            {"output_tokens", used.completion_tokens},
            {"output_tokens_details", {{"thinking_tokens", used.reasoning_tokens}}}};
  }

  const char* stop_reason() const {
    const std::string_view reason = choice(0).finish_reason();
    if (reason == "length") return "max_tokens";
    if (reason == "tool_calls") return "tool_use";
    return choice(0).stop_string().empty() ? "end_turn" : "stop_sequence";
  }

  Json stop_sequence() const {
    const bool stopped = std::string_view(stop_reason()) == "stop_sequence";
    return stopped ? Json(choice(0).stop_string()) : Json(nullptr);
  }

  Json message(Json content, Json reason, Json sequence) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", context().service.model_name},
            {"content", std::move(content)},
            {"stop_reason", std::move(reason)},
            {"stop_sequence", std::move(sequence)},
            {"usage", usage_json()}};
  }

  // The block of a part: whole, or as it begins.
  Json block(const ChatPart& part, bool whole) const {
    switch (part.kind) {
      case Kind::reasoning:
        return {{"type", "thinking"},
                {"thinking", whole ? part.text : ""},
                {"signature", whole ? signature_of(part.text) : ""}};
      case Kind::content: return {{"type", "text"}, {"text", whole ? part.text : ""}};
      default: break;
    }
    Json input = Json::object();
    if (whole)
      if (auto parsed = parse_json(part.text); parsed.ok() && parsed->is_object()) input = std::move(*parsed);
    return {{"type", "tool_use"}, {"id", part.call_id}, {"name", part.name}, {"input", std::move(input)}};
  }

  bool send_start(size_t) override {
    const bool sent =
        events().send_event({{"type", "message_start"}, {"message", message(Json::array(), nullptr, nullptr)}});
    events().ping_with_events();
    return sent;
  }

  bool send_progress(size_t, const TokenEvent&) override { return events().ping_when_due(); }

  bool send_delta(const char* type, const char* member, std::string text) {
    return events().send_event({{"type", "content_block_delta"},
                                {"index", begun_ - 1},
                                {"delta", {{"type", type}, {member, std::move(text)}}}});
  }

  bool begin_block() {
    const ChatPart& part = choice(0).parts()[begun_];
    open_ = true;
    return events().send_event(
        {{"type", "content_block_start"}, {"index", begun_++}, {"content_block", block(part, false)}});
  }

  bool end_block() {
    if (!std::exchange(open_, false)) return true;
    const ChatPart& part = choice(0).parts()[begun_ - 1];
    if (part.kind == Kind::reasoning && !send_delta("signature_delta", "signature", signature_of(part.text)))
      return false;
    return events().send_event({{"type", "content_block_stop"}, {"index", begun_ - 1}});
  }

  bool send_piece(OutputPiece& piece) {
    const auto begins = [&](Kind kind) { return !open_ || choice(0).parts()[begun_ - 1].kind != kind; };
    switch (piece.kind) {
      case Kind::reasoning:
        if (begins(Kind::reasoning) && !(end_block() && begin_block())) return false;
        return send_delta("thinking_delta", "thinking", std::move(piece.text));
      case Kind::content:
        if (begins(Kind::content) && !(end_block() && begin_block())) return false;
        return send_delta("text_delta", "text", std::move(piece.text));
      case Kind::call_begin: return end_block() && begin_block();
      case Kind::call_arguments: return send_delta("input_json_delta", "partial_json", std::move(piece.text));
      case Kind::call_end: return end_block();
    }
    return true;
  }

  bool send_pieces(size_t, std::vector<OutputPiece>& pieces) override {
    return std::all_of(pieces.begin(), pieces.end(), [&](OutputPiece& piece) { return send_piece(piece); });
  }

  bool send_finish(size_t) override {
    return end_block() &&
           events().send_event({{"type", "message_delta"},
                                {"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}},
                                {"usage", usage_json()},
                                {"timings", timings_json(stats(0), choice(0).tokens())}});
  }

  bool send_end() override { return events().send_event({{"type", "message_stop"}}) && events().end(); }

  void send_whole() override {
    Json content = Json::array();
    for (const ChatPart& part : choice(0).parts())
      if (part.complete) content.push_back(block(part, true));  // A call that a limit cut is none (A10).
    Json body = message(std::move(content), stop_reason(), stop_sequence());
    body["timings"] = timings_json(stats(0), choice(0).tokens());
    context().response.send_json(200, body);
  }

  std::string id_;
  int64_t breakpoint_;
  size_t begun_ = 0;   // Blocks.
  bool open_ = false;  // The last of them.
};

// The body, read and accepted; else the refusal is answered.
std::optional<MessagesRequest> read_messages(const RunContext& context, const HttpRequest& http) {
  Json body;
  if (!read_json(http, context.response, &body)) return std::nullopt;
  MessagesRequest request;
  if (auto error = parse_messages(body, parse_context(context.service), &request)) {
    context.response.fail(*error);
    return std::nullopt;
  }
  if (!accept_fields(context, http, request.chat.common)) return std::nullopt;
  for (const std::string& name : request.ignored)
    if (context.state.first_time(name)) log_warning("ignored", {{"id", http.id}, {"what", name}});
  return request;
}

}  // namespace

void messages(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  RequestLog log(state, http, response, "messages");
  const std::shared_ptr<const Service> service = require_service(state, response);
  if (!service) return;
  const RunContext context{*service, state, response, log};
  auto request = read_messages(context, http);
  if (!request) return;
  if (request->prefill)
    return response.fail(unsupported_value(
        "messages", "messages: expected the last one of role user, found assistant (an answer cannot be continued)"));
  ChatRequest& chat = request->chat;
  chat_turn(context, http, chat, [&](const ChatPrompt& prompt, const OutputRules& rules) {
    return std::make_unique<MessagesRun>(context, chat, rules, deepest_breakpoint(chat, prompt.captures));
  });
}

void count_tokens(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  RequestLog log(state, http, response, "count-tokens");
  const std::shared_ptr<const Service> service = loaded_service(state, response);
  if (!service) return;
  const RunContext context{*service, state, response, log};
  auto request = read_messages(context, http);
  if (!request) return;
  const auto prompt = render_chat(context, http, request->chat, false);
  if (!prompt) return;
  const int64_t tokens = static_cast<int64_t>(prompt->tokens.size());
  log.start(tokens, false);
  response.send_json(200, {{"input_tokens", tokens}});
}

}  // namespace wp
