// POST /v1/chat/completions.
#include <memory>

#include "serve/chat_turn.h"
#include "serve/routes.h"

namespace wp {
namespace {

class CompletionsRun final : public ChatRun {
 public:
  CompletionsRun(const RunContext& run_context, const ChatRequest& request, const OutputRules& rules)
      : ChatRun(run_context, request, rules), id_(make_id("chatcmpl-")), created_(unix_time_s()) {}

 private:
  bool logprobs() const { return request().common.sampling.top_logprobs >= 0; }

  Json envelope(const char* object) const {
    return {{"id", id_},
            {"object", object},
            {"created", created_},
            {"model", context().service.model_name},
            {"system_fingerprint", context().service.build},
            {"choices", Json::array()}};
  }

  static Json logprobs_json(Json list) { return {{"content", std::move(list)}, {"refusal", nullptr}}; }

  Json chunk(size_t index, Json delta, Json finish_reason) {
    Json made = envelope("chat.completion.chunk");
    Json fresh = nullptr;
    if (logprobs())
      if (Json list = choice(index).take_new_logprobs(); !list.empty()) fresh = logprobs_json(std::move(list));
    made["choices"].push_back({{"index", index},
                               {"delta", std::move(delta)},
                               {"logprobs", std::move(fresh)},
                               {"finish_reason", std::move(finish_reason)}});
    if (request().common.include_usage) made["usage"] = nullptr;
    if (request().common.timings_per_token) made["timings"] = timings_json(stats(index), choice(index).tokens());
    return made;
  }

  Json delta(size_t index, OutputPiece& piece) const {
    switch (piece.kind) {
      case OutputPiece::Kind::reasoning: {
        Json made = {{"reasoning_content", piece.text}};
        if (context().service.reasoning_both) made["reasoning"] = piece.text;
        return made;
      }
      case OutputPiece::Kind::content: return {{"content", std::move(piece.text)}};
      case OutputPiece::Kind::call_begin: {
        Json call = {{"index", piece.call},
                     {"id", choice(index).call_id(piece.call)},
                     {"type", "function"},
                     {"function", {{"name", std::move(piece.text)}, {"arguments", ""}}}};
        return {{"tool_calls", Json::array({std::move(call)})}};
      }
      default: {
        Json call = {{"index", piece.call}, {"function", {{"arguments", std::move(piece.text)}}}};
        return {{"tool_calls", Json::array({std::move(call)})}};
      }
    }
  }

  bool send_start(size_t index) override {
    return events().send(chunk(index, {{"role", "assistant"}, {"content", ""}}, nullptr));
  }

  bool send_progress(size_t index, const TokenEvent& event) override {
    Json made = chunk(index, Json::object(), nullptr);
    made["prompt_progress"] = progress_json(event.stats, event.prompt_done, elapsed_ns());
    return events().send(made);
  }

  bool send_pieces(size_t index, std::vector<OutputPiece>& pieces) override {
    for (OutputPiece& piece : pieces) {
      if (piece.kind == OutputPiece::Kind::call_end) continue;
      if (!events().send(chunk(index, delta(index, piece), nullptr))) return false;
    }
    return true;
  }

  bool send_finish(size_t index) override {
    return events().send(chunk(index, Json::object(), choice(index).finish_reason()));
  }

  bool send_end() override {
    if (request().common.include_usage) {
      Json last = envelope("chat.completion.chunk");
      last["usage"] = usage_json(usage());
      last["timings"] = timings_json(stats(0), choice(0).tokens());
      if (!events().send(last)) return false;
    }
    return events().done();
  }

  void send_whole() override {
    Json body = envelope("chat.completion");
    for (size_t i = 0; i < choices(); ++i)
      body["choices"].push_back({{"index", i},
                                 {"message", choice(i).message()},
                                 {"logprobs", logprobs() ? logprobs_json(choice(i).all_logprobs()) : Json(nullptr)},
                                 {"finish_reason", choice(i).finish_reason()}});
    body["usage"] = usage_json(usage());
    body["timings"] = timings_json(stats(0), choice(0).tokens());
    context().response.send_json(200, body);
  }

  std::string id_;
  int64_t created_;
};

}  // namespace

void chat_completions(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  RequestLog log(state, http, response, "chat");
  const std::shared_ptr<const Service> service = require_service(state, response);
  if (!service) return;
  const RunContext context{*service, state, response, log};
  Json body;
  if (!read_json(http, response, &body)) return;
  ChatRequest request;
  if (auto error = parse_chat(body, parse_context(*service), &request)) return response.fail(*error);
  if (!accept_fields(context, http, request.common)) return;
  body = nullptr;
  chat_turn(context, http, request, [&](const ChatPrompt&, const OutputRules& rules) {
    return std::make_unique<CompletionsRun>(context, request, rules);
  });
}

}  // namespace wp
