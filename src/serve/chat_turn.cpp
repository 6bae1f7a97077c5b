#include "serve/chat_turn.h"

#include <algorithm>
#include <string_view>

#include "core/log.h"
#include "serve/render_chat.h"

namespace wp {

ChatRun::ChatRun(const RunContext& run_context, const ChatRequest& request, const OutputRules& rules)
    : GenerationRun(run_context, request.common.stream, static_cast<size_t>(request.common.n)),
      request_(request),
      schemas_(request.tools) {
  choices_.reserve(static_cast<size_t>(request.common.n));
  for (int64_t i = 0; i < request.common.n; ++i) choices_.emplace_back(run_context.service, request, rules, schemas_);
}

void ChatRun::answer() {
  int64_t generated = 0;
  for (const ChatChoice& one : choices_) {
    generated += one.tokens();
    for (const std::string& kind : one.repairs()) {
      log_warning("tool_parse_repair", {{"kind", kind}});
      context().state.metrics.count_repair(kind);
    }
    context().state.metrics.count_finish(one.finish_reason());
  }
  context().log.generated(generated);
  context().log.finish(choices_[0].finish_reason());
  if (!is_streamed()) return send_whole();
  if (!send_end()) context().log.client_left();
}

bool ChatRun::called() const {
  return std::any_of(choices_.begin(), choices_.end(),
                     [](const ChatChoice& one) { return std::string_view(one.finish_reason()) == "tool_calls"; });
}

Usage ChatRun::usage() const {
  Usage total;
  for (size_t i = 0; i < choices_.size(); ++i)
    total.add({.prompt_tokens = stats(i).prompt_tokens,
               .cached_tokens = stats(i).cached_tokens,
               .completion_tokens = choices_[i].tokens(),
               .reasoning_tokens = choices_[i].reasoning_tokens()},
              i > 0);
  return total;
}

bool ChatRun::started(size_t index, TokenEvent&) { return !is_streamed() || send_start(index); }

bool ChatRun::progress(size_t index, const TokenEvent& event) {
  return !is_streamed() || !request_.common.return_progress || send_progress(index, event);
}

bool ChatRun::token(size_t index, TokenEvent& event) {
  std::vector<OutputPiece> pieces;
  if (choices_[index].push(event, &pieces)) stop_choice(index);
  said(index, pieces);
  return !is_streamed() || send(index, pieces);
}

bool ChatRun::finished(size_t index, FinishReason reason) {
  std::vector<OutputPiece> pieces;
  choices_[index].finish(reason, stats(index).generated_tokens, &pieces);
  said(index, pieces);
  return !is_streamed() || (send(index, pieces) && send_finish(index));
}

bool ChatRun::send(size_t index, std::vector<OutputPiece>& pieces) {
  return pieces.empty() ? keep_alive() : send_pieces(index, pieces);
}

namespace {

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

void chat_turn(const RunContext& context, const HttpRequest& http, ChatRequest& request, const MakeChatRun& make_run) {
  const Service& service = context.service;
  auto rendered = render_chat(context, http, request, request.common.cache_prompt);
  if (!rendered) return;
  const ChatPrompt& prompt = *rendered;
  int64_t max_tokens = 0;
  const int64_t prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
  if (auto error = fit_context(service, request.common, prompt_tokens, request.input_name, &max_tokens))
    return context.response.fail(*error);
  context.log.start(prompt_tokens, request.common.stream);

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
      .start = start_of(prompt.text), .tools = request.calls_allowed, .call_in_thinking = service.call_in_thinking};
  const std::unique_ptr<ChatRun> run = make_run(prompt, rules);
  if (!run->run(std::move(requests))) return;
  run->answer();
  // The tool's result will continue this conversation soon.
  if (!hints.conversation.empty() && run->called()) service.engine->hold_conversation(hints.conversation);
  // Of several choices nobody knows which will be continued.
  if (request.common.n == 1) consolidate_turn(service, request, run->first_message(), hints, run->first_stats());
}

}  // namespace wp
