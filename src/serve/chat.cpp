// POST /v1/chat/completions.
#include <algorithm>
#include <memory>

#include "core/log.h"
#include "serve/chat_choice.h"
#include "serve/generation_run.h"
#include "serve/render_chat.h"
#include "serve/routes.h"

namespace wp {
namespace {

class ChatRun final : public GenerationRun {
 public:
  ChatRun(const RunContext& run_context, const ChatRequest& request, const OutputRules& rules)
      : GenerationRun(run_context, request.common.stream, static_cast<size_t>(request.common.n)),
        request_(request),
        schemas_(request.tools),
        id_(make_id("chatcmpl-")),
        created_(unix_time_s()) {
    choices_.reserve(static_cast<size_t>(request.common.n));
    for (int64_t i = 0; i < request.common.n; ++i) choices_.emplace_back(run_context.service, request, rules, schemas_);
  }

  void answer() {
    Usage total;
    for (size_t i = 0; i < choices_.size(); ++i) total.add(usage(i), i > 0);
    int64_t generated = 0;
    for (const ChatChoice& choice : choices_) {
      generated += choice.tokens();
      for (const std::string& kind : choice.repairs()) {
        log_warning("tool_parse_repair", {{"kind", kind}});
        context().state.metrics.count_repair(kind);
      }
      context().state.metrics.count_finish(choice.finish_reason());
    }
    context().log.generated(generated);
    context().log.finish(choices_[0].finish_reason());
    if (is_streamed()) return finish_stream(total);
    Json body = envelope("chat.completion");
    for (size_t i = 0; i < choices_.size(); ++i) {
      const bool logprobs = request_.common.sampling.top_logprobs >= 0;
      body["choices"].push_back({{"index", i},
                                 {"message", choices_[i].message()},
                                 {"logprobs", logprobs ? logprobs_json(choices_[i].all_logprobs()) : Json(nullptr)},
                                 {"finish_reason", choices_[i].finish_reason()}});
    }
    body["usage"] = usage_json(total);
    body["timings"] = timings_json(stats(0), choices_[0].tokens());
    context().response.send_json(200, body);
  }

  const RequestStats& first_stats() const { return stats(0); }
  Json first_message() const { return choices_[0].message(); }

  bool called() const {
    for (const ChatChoice& choice : choices_)
      if (std::string_view(choice.finish_reason()) == "tool_calls") return true;
    return false;
  }

 private:
  Usage usage(size_t choice) const {
    return {.prompt_tokens = stats(choice).prompt_tokens,
            .cached_tokens = stats(choice).cached_tokens,
            .completion_tokens = choices_[choice].tokens(),
            .reasoning_tokens = choices_[choice].reasoning_tokens()};
  }

  Json envelope(const char* object) const {
    return {{"id", id_},
            {"object", object},
            {"created", created_},
            {"model", context().service.model_name},
            {"system_fingerprint", context().service.build},
            {"choices", Json::array()}};
  }

  static Json logprobs_json(Json list) { return {{"content", std::move(list)}, {"refusal", nullptr}}; }

  Json chunk(size_t choice, Json delta, Json finish_reason) {
    Json made = envelope("chat.completion.chunk");
    Json logprobs = nullptr;
    if (request_.common.sampling.top_logprobs >= 0)
      if (Json fresh = choices_[choice].take_new_logprobs(); !fresh.empty()) logprobs = logprobs_json(std::move(fresh));
    made["choices"].push_back({{"index", choice},
                               {"delta", std::move(delta)},
                               {"logprobs", std::move(logprobs)},
                               {"finish_reason", std::move(finish_reason)}});
    if (request_.common.include_usage) made["usage"] = nullptr;
    if (request_.common.timings_per_token) made["timings"] = timings_json(stats(choice), choices_[choice].tokens());
    return made;
  }

  Json delta(size_t choice, OutputPiece& piece) const {
    switch (piece.kind) {
      case OutputPiece::Kind::reasoning: {
        Json made = {{"reasoning_content", piece.text}};
        if (context().service.reasoning_both) made["reasoning"] = piece.text;
        return made;
      }
      case OutputPiece::Kind::content: return {{"content", std::move(piece.text)}};
      case OutputPiece::Kind::call_begin: {
        Json call = {{"index", piece.call},
                     {"id", choices_[choice].call_id(piece.call)},
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

  bool send(size_t choice, std::vector<OutputPiece>& pieces) {
    for (OutputPiece& piece : pieces) {
      if (piece.kind == OutputPiece::Kind::call_end) continue;
      if (!events().send(chunk(choice, delta(choice, piece), nullptr))) return false;
    }
    return pieces.empty() ? events().ping_when_due() : true;
  }

  bool started(size_t choice, TokenEvent&) override {
    if (!is_streamed()) return true;
    return events().send(chunk(choice, {{"role", "assistant"}, {"content", ""}}, nullptr));
  }

  bool progress(size_t choice, const TokenEvent& event) override {
    if (!is_streamed() || !request_.common.return_progress) return true;
    Json made = chunk(choice, Json::object(), nullptr);
    made["prompt_progress"] = progress_json(event.stats, event.prompt_done, elapsed_ns());
    return events().send(made);
  }

  bool token(size_t choice, TokenEvent& event) override {
    std::vector<OutputPiece> pieces;
    if (choices_[choice].push(event, &pieces)) stop_choice(choice);
    return !is_streamed() || send(choice, pieces);
  }

  bool finished(size_t choice, FinishReason reason) override {
    std::vector<OutputPiece> pieces;
    choices_[choice].finish(reason, stats(choice).generated_tokens, &pieces);
    if (!is_streamed()) return true;
    return send(choice, pieces) && events().send(chunk(choice, Json::object(), choices_[choice].finish_reason()));
  }

  void finish_stream(const Usage& total) {
    if (request_.common.include_usage) {
      Json last = envelope("chat.completion.chunk");
      last["usage"] = usage_json(total);
      last["timings"] = timings_json(stats(0), choices_[0].tokens());
      if (!events().send(last)) return context().log.client_left();
    }
    if (!events().done()) context().log.client_left();
  }

  const ChatRequest& request_;
  ToolSchemas schemas_;
  std::string id_;
  int64_t created_;
  std::vector<ChatChoice> choices_;
};

std::vector<CapturePoint> capture_points(const CapturePositions& positions, const ChatRequest& request) {
  std::vector<CapturePoint> points;
  const auto add = [&](int64_t position, CaptureClass capture_class, int64_t pin_s = 0) {
    if (position <= 0) return;
    for (const CapturePoint& point : points)
      if (point.position == position) return;
    points.push_back({position, capture_class, pin_s * 1'000'000'000});
  };
  for (const int64_t position : positions.breakpoints) add(position, CaptureClass::system, request.history.pin_s);
  if (request.tools_pin_s > 0) add(positions.system_end, CaptureClass::system, request.tools_pin_s);
  add(positions.system_end, CaptureClass::system);
  add(positions.stable_end, CaptureClass::tail);
  add(positions.user_start, CaptureClass::user);
  std::sort(points.begin(), points.end(),
            [](const CapturePoint& a, const CapturePoint& b) { return a.position < b.position; });
  return points;
}

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

  auto rendered = render_chat(context, http, request, request.common.cache_prompt);
  if (!rendered) return;
  ChatPrompt& prompt = *rendered;
  int64_t max_tokens = 0;
  const int64_t prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
  if (auto error = fit_context(*service, request.common, prompt_tokens, "messages", &max_tokens))
    return response.fail(*error);
  log.start(prompt_tokens, request.common.stream);

  const uint64_t seed = request_seed(context, request.common);
  std::vector<GenerateRequest> requests;
  CacheHints hints;
  for (int64_t i = 0; i < request.common.n; ++i) {
    GenerateRequest made = make_request(context, http, request.common, prompt.tokens, seed, i, request.common.n);
    made.max_tokens = max_tokens;
    made.cache.continues = prompt.continues;
    made.cache.captures = capture_points(prompt.captures, request);
    hints = made.cache;
    requests.push_back(std::move(made));
  }
  const OutputRules rules{
      .start = start_of(prompt.text), .tools = request.calls_allowed, .call_in_thinking = service->call_in_thinking};
  ChatRun run(context, request, rules);
  if (!run.run(std::move(requests))) return;
  run.answer();
  // The tool's result will continue this conversation soon.
  if (!hints.conversation.empty() && run.called()) service->engine->hold_conversation(hints.conversation);
  // Of several choices nobody knows which will be continued.
  if (request.common.n == 1) consolidate_turn(*service, request, run.first_message(), hints, run.first_stats());
}

}  // namespace wp
