#include "serve/output_parser.h"

#include <algorithm>

namespace wp {
namespace {

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";
constexpr std::string_view kCall = "<tool_call>", kCallEnd = "</tool_call>";
constexpr int kAttemptsMax = 256;  // Calls tried inside one thought; what follows stays thought.

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_newline(char c) { return c == '\n' || c == '\r'; }

// Length of the longest end of `text` that is a proper beginning of `tag`.
size_t begun_tag(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n)
    if (text.substr(text.size() - n) == tag.substr(0, n)) return n;
  return 0;
}

}  // namespace

// Holds back the white space at the end: what follows decides whether it was text. Reasoning keeps only newlines back.
void OutputParser::put_text(OutputPiece::Kind kind, std::string_view text, std::vector<OutputPiece>* out) {
  const bool reasoning = kind == OutputPiece::Kind::reasoning;
  if (trim_) {
    while (!text.empty() && is_newline(text[0])) text.remove_prefix(1);
    if (text.empty()) return;
    trim_ = false;
  }
  size_t end = text.size();
  while (end > 0 && (reasoning ? is_newline(text[end - 1]) : is_space(text[end - 1]))) --end;
  if (end > 0) {
    std::string made = std::move(held_);
    made += text.substr(0, end);
    held_.clear();
    if (!out->empty() && out->back().kind == kind) out->back().text += made;
    else out->push_back({kind, std::move(made), -1});
    content_ |= !reasoning;
  }
  held_ += text.substr(end);
}

void OutputParser::push(std::string_view text, std::vector<OutputPiece>* out) {
  pending_ += text;
  while (!pending_.empty() && step(out)) {
  }
}

bool OutputParser::step(std::vector<OutputPiece>* out) {
  switch (phase_) {
    case Phase::opening: return step_opening();
    case Phase::thinking: return step_thinking(out);
    case Phase::call_in_thought: return step_call_in_thought(out);
    case Phase::answer: return step_answer(out);
    case Phase::call: return step_call(out);
    case Phase::call_tail: return step_call_tail();
  }
  return false;
}

bool OutputParser::step_opening() {
  size_t at = 0;
  while (at < pending_.size() && is_space(pending_[at])) ++at;
  const std::string_view rest = std::string_view(pending_).substr(at);
  if (rest.size() < kThink.size() && kThink.substr(0, rest.size()) == rest) return false;
  if (rest.substr(0, kThink.size()) == kThink) {
    pending_.erase(0, at + kThink.size());
    phase_ = Phase::thinking;
    trim_ = true;
  } else {
    phase_ = Phase::answer;
  }
  return true;
}

void OutputParser::begin_answer() {
  phase_ = Phase::answer;
  held_.clear();
  trim_ = true;
}

bool OutputParser::step_thinking(std::vector<OutputPiece>* out) {
  const bool calls = rules_.tools && rules_.call_in_thinking && attempts_ < kAttemptsMax;
  const size_t close = pending_.find(kThinkEnd);
  const size_t call = calls ? pending_.find(kCall) : std::string::npos;
  const size_t at = std::min(close, call);
  if (at == std::string::npos) {
    size_t kept = begun_tag(pending_, kThinkEnd);
    if (calls) kept = std::max(kept, begun_tag(pending_, kCall));
    put_text(OutputPiece::Kind::reasoning, std::string_view(pending_).substr(0, pending_.size() - kept), out);
    pending_.erase(0, pending_.size() - kept);
    return false;
  }
  put_text(OutputPiece::Kind::reasoning, std::string_view(pending_).substr(0, at), out);
  if (at == close) {
    pending_.erase(0, at + kThinkEnd.size());
    begin_answer();
    return true;
  }
  pending_.erase(0, at + kCall.size());
  ++attempts_;
  call_repairs_.clear();
  call_pieces_.clear();
  call_ = std::make_unique<QwenXmlCall>(*schemas_, calls_, call_repairs_);
  fed_ = 0;
  phase_ = Phase::call_in_thought;
  return true;
}

// A complete call ends the thought (A1). Until it is complete nothing of it is shown: it may be a mention only.
bool OutputParser::step_call_in_thought(std::vector<OutputPiece>* out) {
  const size_t close = pending_.find(kThinkEnd);
  const size_t end = close != std::string::npos ? close : pending_.size() - begun_tag(pending_, kThinkEnd);
  QwenXmlCall::State state = QwenXmlCall::State::more;
  if (end > fed_) state = call_->push(std::string_view(pending_).substr(fed_, end - fed_), &call_pieces_);
  fed_ = std::max(fed_, end);
  if (state == QwenXmlCall::State::done) {
    begin_answer();
    thought_open_ = true;
    for (OutputPiece& piece : call_pieces_) out->push_back(std::move(piece));
    repairs_.insert(repairs_.end(), call_repairs_.begin(), call_repairs_.end());
    pending_ = std::string(call_->rest()) + pending_.substr(fed_);
    end_call();
    return true;
  }
  if (state == QwenXmlCall::State::more && close == std::string::npos) return false;
  call_.reset();
  phase_ = Phase::thinking;
  put_text(OutputPiece::Kind::reasoning, kCall, out);
  return true;
}

void OutputParser::end_call() {
  call_.reset();
  ++calls_;
  phase_ = Phase::call_tail;
}

bool OutputParser::step_call_tail() {
  size_t at = 0;
  while (at < pending_.size() && is_space(pending_[at])) ++at;
  const std::string_view rest = std::string_view(pending_).substr(at);
  if (rest.size() < kCallEnd.size() && kCallEnd.substr(0, rest.size()) == rest) return false;
  if (rest.substr(0, kCallEnd.size()) == kCallEnd) pending_.erase(0, at + kCallEnd.size());
  else repairs_.push_back("missing_call_close");
  phase_ = Phase::answer;
  trim_ = !content_;
  return true;
}

bool OutputParser::step_answer(std::vector<OutputPiece>* out) {
  const size_t call = rules_.tools ? pending_.find(kCall) : std::string::npos;
  const size_t late = thought_open_ ? pending_.find(kThinkEnd) : std::string::npos;
  const size_t at = std::min(call, late);
  if (at == std::string::npos) {
    size_t kept = rules_.tools ? begun_tag(pending_, kCall) : 0;
    if (thought_open_) kept = std::max(kept, begun_tag(pending_, kThinkEnd));
    put_text(OutputPiece::Kind::content, std::string_view(pending_).substr(0, pending_.size() - kept), out);
    pending_.erase(0, pending_.size() - kept);
    return false;
  }
  put_text(OutputPiece::Kind::content, std::string_view(pending_).substr(0, at), out);
  if (at == late) {
    pending_.erase(0, at + kThinkEnd.size());
    thought_open_ = false;
    trim_ = !content_;
    if (!content_) held_.clear();
    return true;
  }
  pending_.erase(0, at + kCall.size());
  call_ = std::make_unique<QwenXmlCall>(*schemas_, calls_, repairs_);
  phase_ = Phase::call;
  return true;
}

bool OutputParser::step_call(std::vector<OutputPiece>* out) {
  const bool begun = call_->begun();
  const std::string text = std::move(pending_);
  pending_.clear();
  const QwenXmlCall::State state = call_->push(text, out);
  if (!begun && call_->begun()) {  // White space before a call is no content (A24).
    held_.clear();
    trim_ = trim_ || !content_;
  }
  if (state == QwenXmlCall::State::more) return false;
  if (state == QwenXmlCall::State::done) {
    pending_ = std::string(call_->rest());
    end_call();
    return !pending_.empty();
  }
  pending_ = call_->raw();
  call_.reset();
  repairs_.push_back("not_a_call");
  phase_ = Phase::answer;
  trim_ = false;
  put_text(OutputPiece::Kind::content, kCall, out);
  return !pending_.empty();
}

void OutputParser::finish(bool complete, std::vector<OutputPiece>* out) {
  if (phase_ == Phase::call_in_thought) {
    if (complete && pending_.size() > fed_)
      call_->push(std::string_view(pending_).substr(fed_), &call_pieces_);  // A begun "</think>" that never came.
    if (complete && call_->finish(&call_pieces_) == QwenXmlCall::State::done) {
      for (OutputPiece& piece : call_pieces_) out->push_back(std::move(piece));
      repairs_.insert(repairs_.end(), call_repairs_.begin(), call_repairs_.end());
      ++calls_;
      call_.reset();
      return;
    }
    phase_ = Phase::thinking;
    attempts_ = kAttemptsMax;  // The rest is thought, whatever it holds.
    pending_.insert(0, kCall);
    call_.reset();
    step_thinking(out);
  }
  if (phase_ == Phase::call) {
    const QwenXmlCall::State state = complete ? call_->finish(out) : QwenXmlCall::State::more;
    if (state == QwenXmlCall::State::done) {
      ++calls_;
    } else if (complete) {  // Text stays text.
      repairs_.push_back("unfinished_call");
      trim_ = false;
      put_text(OutputPiece::Kind::content, cat(kCall, call_->raw()), out);
      phase_ = Phase::answer;
    }
    call_.reset();
  }
  const bool reasoning = phase_ == Phase::thinking;
  if (phase_ == Phase::opening) phase_ = Phase::answer;
  if (phase_ == Phase::call_tail) {  // What is pending is white space and perhaps a begun </tool_call>.
    if (complete) repairs_.push_back("missing_call_close");
    pending_.clear();
    phase_ = Phase::answer;
  }
  if (reasoning) {
    put_text(OutputPiece::Kind::reasoning, pending_, out);
  } else if (phase_ == Phase::answer) {
    put_text(OutputPiece::Kind::content, pending_, out);
    // White space at the very end is the answer's own, unless calls are all there is or it follows one.
    if (calls_ == 0 && !held_.empty() && content_) {
      if (!out->empty() && out->back().kind == OutputPiece::Kind::content) out->back().text += held_;
      else out->push_back({OutputPiece::Kind::content, held_, -1});
    }
  }
  held_.clear();
  pending_.clear();
}

}  // namespace wp
