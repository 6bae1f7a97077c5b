#include "serve/chat_choice.h"

#include "serve/generation_run.h"

namespace wp {

ChatChoice::ChatChoice(const Service& service, const ChatRequest& request, const OutputRules& rules,
                       const ToolSchemas& schemas)
    : service_(service),
      request_(request),
      detokenizer_(*service.tokenizer, request.common.stops, false),
      parser_(rules, schemas) {}

bool ChatChoice::push(const TokenEvent& event, std::vector<OutputPiece>* out) {
  if (ended_) return true;
  ++tokens_;
  const bool reasoning = parser_.in_reasoning();
  reasoning_tokens_ += reasoning;
  if (is_silent(service_, request_.common, event.token)) return false;
  if (request_.common.sampling.top_logprobs >= 0 && !reasoning)
    logprobs_.push_back(logprob_json(*service_.tokenizer, event));
  const size_t before = out->size();
  detokenizer_.ignore_stops(reasoning && !request_.stop_in_reasoning);
  parser_.push(detokenizer_.push(event.token), out);
  collect(*out, before);
  const bool one_call = !request_.parallel_calls && parser_.calls() > 0;
  ended_ = detokenizer_.stopped() || one_call;
  return ended_;
}

void ChatChoice::finish(FinishReason reason, int64_t generated, std::vector<OutputPiece>* out) {
  if (!ended_ && generated > tokens_) {  // Else what came after the stop string is not the client's.
    if (parser_.in_reasoning()) reasoning_tokens_ += generated - tokens_;
    tokens_ = generated;
  }
  const size_t before = out->size();
  const bool one_call = !request_.parallel_calls && parser_.calls() > 0;
  if (!one_call) {
    if (!detokenizer_.stopped()) parser_.push(detokenizer_.finish(), out);
    parser_.finish(!was_cut(reason), out);
  }
  collect(*out, before);
  ended_ = true;
  if (was_cut(reason)) finish_reason_ = "length";
  else if (parser_.calls() > 0) finish_reason_ = "tool_calls";
}

void ChatChoice::collect(const std::vector<OutputPiece>& pieces, size_t from) {
  for (size_t i = from; i < pieces.size(); ++i) {
    const OutputPiece& piece = pieces[i];
    switch (piece.kind) {
      case OutputPiece::Kind::reasoning:
      case OutputPiece::Kind::content:
        if (parts_.empty() || parts_.back().kind != piece.kind) parts_.push_back({.kind = piece.kind});
        parts_.back().text += piece.text;
        break;
      case OutputPiece::Kind::call_begin:
        calls_.push_back(parts_.size());
        parts_.push_back(
            {.kind = piece.kind, .call_id = make_id(request_.call_id_prefix), .name = piece.text, .complete = false});
        break;
      case OutputPiece::Kind::call_arguments: call(piece).text += piece.text; break;
      case OutputPiece::Kind::call_end: call(piece).complete = true; break;
    }
  }
}

Json ChatChoice::message() const {
  std::string reasoning, content;
  Json calls = Json::array();
  for (const ChatPart& part : parts_) {
    if (part.kind == OutputPiece::Kind::reasoning) reasoning += part.text;
    else if (part.kind == OutputPiece::Kind::content) content += part.text;
    else if (part.complete)  // Else cut by a limit: no guessed value is returned (A10).
      calls.push_back(
          {{"id", part.call_id}, {"type", "function"}, {"function", {{"name", part.name}, {"arguments", part.text}}}});
  }
  Json message = {{"role", "assistant"}};
  message["content"] = content.empty() && !calls.empty() ? Json(nullptr) : Json(content);
  message["refusal"] = nullptr;
  if (!reasoning.empty()) {
    message["reasoning_content"] = reasoning;
    if (service_.reasoning_both) message["reasoning"] = reasoning;
  }
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

Json ChatChoice::take_new_logprobs() {
  Json fresh = Json::array();
  for (; logprobs_taken_ < logprobs_.size(); ++logprobs_taken_) fresh.push_back(logprobs_[logprobs_taken_]);
  return fresh;
}

OutputRules::Start start_of(std::string_view prompt) {
  // Only the last turn counts: what history says of thoughts is past.
  const size_t turn = prompt.rfind("<|im_start|>");
  if (turn != std::string_view::npos) prompt = prompt.substr(turn);
  const size_t open = prompt.rfind("<think>"), close = prompt.rfind("</think>");
  if (open == std::string_view::npos) return OutputRules::Start::either;
  if (close == std::string_view::npos || open > close) return OutputRules::Start::thinking;
  return OutputRules::Start::answer;
}

}  // namespace wp
