// POST /v1/responses and POST /v1/responses/input_tokens.
#include <map>
#include <memory>

#include "core/log.h"
#include "serve/chat_turn.h"
#include "serve/render_chat.h"
#include "serve/response_object.h"
#include "serve/response_output.h"
#include "serve/routes.h"

namespace wp {
namespace {

// What one request is made of, until its answer is out.
struct Asked {
  ResponsesRequest responses;
  ChatRequest chat;
  ResponseTurn::Ptr previous;  // The turn that it continues; null: none.
  std::string domain;
};

// Puts the answer where it may be asked for again, before the client can ask.
void keep(const RunContext& context, const HttpRequest& http, const Asked& asked, const ResponseObject& object,
          const Json& ended) {
  if (!asked.responses.store || context.state.responses.limits().bytes_max <= 0) return;
  if (!context.state.responses.put(asked.domain, object.entry(ended, asked.previous)))
    log_warning("response_not_stored", {{"id", http.id}, {"bytes_max", context.state.responses.limits().bytes_max}});
}

class ResponsesRun final : public ChatRun {
 public:
  ResponsesRun(const RunContext& run_context, const HttpRequest& http, const Asked& asked, const OutputRules& rules)
      : ChatRun(run_context, asked.chat, rules),
        http_(http),
        asked_(asked),
        object_(run_context.service, asked.responses, asked.chat),
        output_(asked.responses.tools, {.events = asked.chat.common.stream,
                                        .summary = asked.responses.summary,
                                        .encrypted = asked.responses.encrypted}) {}

 private:
  void said(size_t, const std::vector<OutputPiece>& pieces) override {
    for (const OutputPiece& piece : pieces) {
      Json logprobs = Json::array();
      if (asked_.responses.logprobs) logprobs = choice(0).take_new_logprobs();
      output_.push(piece, piece.call < 0 ? std::string() : choice(0).call_id(piece.call), std::move(logprobs));
    }
  }

  bool send_events() {
    for (const Json& event : output_.take_events())
      if (!events().send_event(event)) return false;
    return true;
  }

  bool send_state(const char* type, Json response) {
    return events().send_event(output_.event(type, {{"response", std::move(response)}}));
  }

  bool begin() {
    if (begun_) return true;
    begun_ = true;
    return send_state("response.created", object_.begun()) && send_state("response.in_progress", object_.begun());
  }

  // Clients with an idle timer count events, not comments.
  bool keep_alive() override {
    if (!events().ping_due()) return true;
    return begun_ ? send_state("response.in_progress", object_.begun()) : begin();
  }

  bool send_start(size_t) override { return begin(); }

  bool send_progress(size_t, const TokenEvent& event) override {
    Json fields = {{"response", object_.begun()},
                   {"prompt_progress", progress_json(event.stats, event.prompt_done, elapsed_ns())}};
    return begin() && events().send_event(output_.event("response.in_progress", std::move(fields)));
  }

  bool send_pieces(size_t, std::vector<OutputPiece>&) override { return send_events(); }
  bool send_finish(size_t) override { return send_events(); }

  bool is_cut() const { return std::string_view(choice(0).finish_reason()) == "length"; }

  Json end() {
    output_.finish(is_cut());
    Json ended = object_.ended(output_.items(), is_cut(), usage());
    ended["timings"] = timings_json(stats(0), choice(0).tokens());
    keep(context(), http_, asked_, object_, ended);
    return ended;
  }

  bool send_end() override {
    Json ended = end();
    return begin() && send_events() &&
           send_state(is_cut() ? "response.incomplete" : "response.completed", std::move(ended)) && events().end();
  }

  void send_whole() override { context().response.send_json(200, end()); }

  void failed(const ApiError& error) override {
    if (!begun_) return ChatRun::failed(error);  // A status can still say it.
    send_state("response.failed", object_.failed(error));
    context().response.break_stream();
  }

  const HttpRequest& http_;
  const Asked& asked_;
  ResponseObject object_;
  ResponseOutput output_;
  bool begun_ = false;
};

ApiError previous_not_found(const ServerState& state, const std::string& id) {
  const ResponseStoreLimits& limits = state.responses.limits();
  ApiError error = invalid_value(
      "previous_response_id",
      limits.bytes_max > 0
          ? cat("previous_response_id: expected a stored response not older than ", limits.seconds_max,
                " s, found none named ", id.substr(0, 64))
          : cat("previous_response_id: expected none, as this server stores no responses, found ", id.substr(0, 64)));
  error.code = "previous_response_not_found";
  return error;
}

// The item of a stored answer, for item_reference. Each answer is read once for a request.
class StoredItems {
 public:
  StoredItems(ServerState& state, const std::string& domain) : state_(state), domain_(domain) {}
  std::optional<Json> find(const std::string& id) {
    if (const auto known = known_.find(id); known != known_.end()) return known->second;
    const auto found = state_.responses.find_by_item(domain_, id);
    if (!found) return std::nullopt;
    if (auto items = parse_json(found->turn->output()); items.ok())
      for (Json& item : *items) known_[item["id"].get<std::string>()] = item;
    const auto known = known_.find(id);
    return known == known_.end() ? std::nullopt : std::optional<Json>(known->second);
  }

 private:
  ServerState& state_;
  const std::string& domain_;
  std::map<std::string, Json> known_;
};

// Reads the body and what it continues. False: the refusal has been answered.
bool read_request(const RunContext& context, const HttpRequest& http, Asked* asked) {
  Json body;
  if (!read_json(http, context.response, &body)) return false;
  ServerState& state = context.state;
  ResponsesRequest& responses = asked->responses;
  std::vector<Json> history;
  auto error = parse_responses(body, &responses);
  body = nullptr;
  asked->domain = response_domain(http, state);
  if (const std::string& id = responses.previous_response_id; !error && !id.empty()) {
    if (auto found = state.responses.find(asked->domain, id)) asked->previous = std::move(found->turn);
    else error = previous_not_found(state, id);
    if (asked->previous) {
      for (const ResponseTurn::Ptr& turn : asked->previous->path(asked->previous)) {
        for (const std::string* text : {&turn->input(), &turn->output()})
          if (auto list = parse_json(*text); list.ok()) history.push_back(std::move(*list));
      }
    }
  }
  StoredItems stored(state, asked->domain);
  const FindItem find_item = [&](const std::string& id) { return stored.find(id); };
  if (!error) error = lower_responses(responses, history, find_item, parse_context(context.service), &asked->chat);
  if (error) {
    context.response.fail(*error);
    return false;
  }
  if (!accept_fields(context, http, asked->chat.common)) return false;
  if (!responses.skipped.empty()) {
    std::string kinds;
    for (const std::string& one : responses.skipped)
      if (kinds.size() < 256) kinds += cat(kinds.empty() ? "" : ",", one);
    log_warning("skipped", {{"id", http.id}, {"kinds", kinds}});
  }
  return true;
}

// An empty input asks whether the route is there (D4).
void answer_probe(const RunContext& context, const HttpRequest& http, const Asked& asked) {
  context.log.start(0, asked.chat.common.stream);
  context.log.finish("stop");
  const ResponseObject object(context.service, asked.responses, asked.chat);
  const Json ended = object.ended(Json::array(), false, {});
  keep(context, http, asked, object, ended);
  if (!asked.chat.common.stream) return context.response.send_json(200, ended);
  const HttpLimits& limits = context.state.options.http;
  SseWriter events(context.response, context.state.clock, limits.first_byte_ms_max, limits.ping_ms);
  ResponseOutput output(asked.responses.tools, {});
  const auto send = [&](const char* type, const Json& response) {
    return events.send_event(output.event(type, {{"response", response}}));
  };
  if (!send("response.created", object.begun()) || !send("response.in_progress", object.begun()) ||
      !send("response.completed", ended) || !events.end())
    context.log.client_left();
}

}  // namespace

void responses(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  RequestLog log(state, http, response, "responses");
  const std::shared_ptr<const Service> service = require_service(state, response);
  if (!service) return;
  const RunContext context{*service, state, response, log};
  Asked asked;
  if (!read_request(context, http, &asked)) return;
  if (asked.responses.is_probe()) return answer_probe(context, http, asked);
  chat_turn(context, http, asked.chat, [&](const ChatPrompt&, const OutputRules& rules) {
    return std::make_unique<ResponsesRun>(context, http, asked, rules);
  });
}

void response_input_tokens(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  RequestLog log(state, http, response, "responses-input-tokens");
  const std::shared_ptr<const Service> service = loaded_service(state, response);
  if (!service) return;
  const RunContext context{*service, state, response, log};
  Asked asked;
  if (!read_request(context, http, &asked)) return;
  int64_t tokens = 0;
  if (!asked.responses.is_probe()) {
    const auto prompt = render_chat(context, http, asked.chat, false);
    if (!prompt) return;
    tokens = static_cast<int64_t>(prompt->tokens.size());
  }
  log.start(tokens, false);
  response.send_json(200, {{"object", "response.input_tokens"}, {"input_tokens", tokens}});
}

}  // namespace wp
