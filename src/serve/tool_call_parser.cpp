#include "serve/tool_call_parser.h"

#include <algorithm>

namespace wp {
namespace {

constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
constexpr std::string_view kCallEnd = "</tool_call>";
constexpr size_t kNameBytesMax = 256;
constexpr size_t kSpaceMax = 64;  // White space between tags; more of it is text.

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

enum class Begins { yes, no, cut };  // cut: the text ends inside.

Begins begins(std::string_view text, std::string_view with) {
  if (text.size() >= with.size()) return text.substr(0, with.size()) == with ? Begins::yes : Begins::no;
  return with.substr(0, text.size()) == text ? Begins::cut : Begins::no;
}

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[c >> 4];
          out += kHex[c & 15];
        } else {
          out += c;
        }
    }
  }
}

size_t QwenXmlCall::skip_space(size_t at) const {
  while (at < raw_.size() && is_space(raw_[at])) ++at;
  return at;
}

void QwenXmlCall::put(std::string_view json, std::vector<OutputPiece>* out) {
  if (json.empty()) return;
  if (!out->empty() && out->back().kind == OutputPiece::Kind::call_arguments && out->back().call == index_)
    out->back().text += json;
  else out->push_back({OutputPiece::Kind::call_arguments, std::string(json), index_});
}

QwenXmlCall::State QwenXmlCall::push(std::string_view text, std::vector<OutputPiece>* out) {
  raw_ += text;
  while (phase_ != Phase::done && phase_ != Phase::not_a_call && step(out)) {
  }
  if (phase_ == Phase::done) return State::done;
  return phase_ == Phase::not_a_call ? State::not_a_call : State::more;
}

bool QwenXmlCall::step(std::vector<OutputPiece>* out) {
  switch (phase_) {
    case Phase::open: return step_open();
    case Phase::name: return step_name(out);
    case Phase::between: return step_between(out);
    case Phase::key: return step_key(out);
    case Phase::value: return step_value(out);
    default: return false;
  }
}

bool QwenXmlCall::step_open() {
  const size_t at = skip_space(0);
  switch (begins(std::string_view(raw_).substr(at), kFunction)) {
    case Begins::cut:
      if (at > kSpaceMax) phase_ = Phase::not_a_call;
      return false;
    case Begins::no: phase_ = Phase::not_a_call; return false;
    case Begins::yes: break;
  }
  at_ = at + kFunction.size();
  phase_ = Phase::name;
  return true;
}

bool QwenXmlCall::step_name(std::vector<OutputPiece>* out) {
  const size_t end = raw_.find_first_of(">\n<", at_);
  if (end == std::string::npos) {
    if (raw_.size() - at_ > kNameBytesMax) phase_ = Phase::not_a_call;
    return false;
  }
  if (raw_[end] != '>' || end == at_ || end - at_ > kNameBytesMax) {
    phase_ = Phase::not_a_call;
    return false;
  }
  name_ = raw_.substr(at_, end - at_);
  at_ = end + 1;
  begun_ = true;
  out->push_back({OutputPiece::Kind::call_begin, name_, index_});
  phase_ = Phase::between;
  return true;
}

bool QwenXmlCall::step_between(std::vector<OutputPiece>* out) {
  at_ = skip_space(at_);
  const std::string_view rest = std::string_view(raw_).substr(at_);
  if (rest.empty()) return false;
  bool cut = false;
  const auto meets = [&](std::string_view tag) {
    const Begins b = begins(rest, tag);
    cut |= b == Begins::cut;
    return b == Begins::yes;
  };
  if (meets(kParameter)) {
    at_ += kParameter.size();
    phase_ = Phase::key;
    return true;
  }
  if (meets(kFunctionEnd)) {
    at_ += kFunctionEnd.size();
    close_call(out);
    return false;
  }
  if (meets(kParameterEnd)) {
    at_ += kParameterEnd.size();
    repair("stray_close");
    return true;
  }
  if (meets(kCallEnd)) {  // The parent reads it.
    repair("missing_function_close");
    close_call(out);
    return false;
  }
  if (cut) return false;
  if (!junk_) repair("stray_text");
  junk_ = true;
  const size_t next = raw_.find('<', at_ + 1);
  at_ = next == std::string::npos ? raw_.size() : next;
  return true;
}

bool QwenXmlCall::step_key(std::vector<OutputPiece>* out) {
  const size_t end = raw_.find_first_of(">\n", at_);
  if (end == std::string::npos) return false;
  if (raw_[end] == '\n') repair("missing_bracket");
  const std::string key = raw_.substr(at_, end - at_);
  std::string json = keys_.empty() ? "{\"" : ",\"";
  append_json_escaped(json, key);
  json += "\":";
  keys_.push_back(key);
  string_ = schemas_->allows_string(name_, key);
  if (string_) json += '"';
  put(json, out);
  value_.clear();
  // A '\n' in place of '>' is also the newline that the form puts before a value.
  first_newline_ = raw_[end] == '>';
  at_ = scan_ = end + 1;
  phase_ = Phase::value;
  return true;
}

// Finds the close of a value, putting out what certainly belongs to it.
bool QwenXmlCall::step_value(std::vector<OutputPiece>* out) {
  if (first_newline_) {
    if (at_ == raw_.size()) return false;
    if (raw_[at_] == '\n') ++at_;
    first_newline_ = false;
    scan_ = at_;
  }
  for (size_t p = raw_.find('<', scan_); p != std::string::npos; p = raw_.find('<', p + 1)) {
    const std::string_view rest = std::string_view(raw_).substr(p);
    const Begins parameter = begins(rest, kParameterEnd), function = begins(rest, kFunctionEnd);
    Close close = Close::no;
    if (parameter == Begins::yes) close = classify(p);
    else if (function == Begins::yes) close = ends_answer(p + kFunctionEnd.size()) ? Close::open : Close::no;
    else if (parameter == Begins::cut || function == Begins::cut) close = Close::open;
    scan_ = p;
    if (close == Close::no) continue;
    if (close == Close::open) {
      take_value(p, false, out);
      return false;
    }
    close_value(p, out);
    at_ = p + kParameterEnd.size();
    if (close == Close::stray) {
      repair("stray_close");
      at_ = skip_space(at_) + kParameterEnd.size();
    }
    return true;
  }
  scan_ = raw_.size();
  take_value(raw_.size(), false, out);
  return false;
}

QwenXmlCall::Close QwenXmlCall::classify(size_t at) const { return follower(at + kParameterEnd.size(), true); }

QwenXmlCall::Close QwenXmlCall::follower(size_t begin, bool stray_allowed) const {
  const size_t at = skip_space(begin);
  if (at - begin > kSpaceMax) return Close::no;
  if (ends_answer(begin)) return Close::open;
  const std::string_view rest = std::string_view(raw_).substr(at);
  const Begins function = begins(rest, kFunctionEnd);
  if (function == Begins::yes) return Close::yes;
  const Begins parameter = begins(rest, kParameter);
  if (parameter == Begins::yes) {
    const size_t name = at + kParameter.size(), end = raw_.find_first_of(">\n", name);
    if (end == std::string::npos) return raw_.size() - name > kNameBytesMax ? Close::no : Close::open;
    // An argument is given once: a second one of the same name is text.
    const std::string key = raw_.substr(name, end - name);
    const bool fresh = !key.empty() && key.size() <= kNameBytesMax && key.find('<') == std::string::npos &&
                       std::find(keys_.begin(), keys_.end(), key) == keys_.end();
    return fresh ? Close::yes : Close::no;
  }
  const Begins stray = stray_allowed ? begins(rest, kParameterEnd) : Begins::no;
  if (stray == Begins::yes) {
    const Close after = follower(at + kParameterEnd.size(), false);
    return after == Close::yes ? Close::stray : after;
  }
  if (function == Begins::cut || parameter == Begins::cut || stray == Begins::cut) return Close::open;
  return Close::no;
}

bool QwenXmlCall::ends_answer(size_t begin) const {
  const size_t at = skip_space(begin);
  if (at - begin > kSpaceMax) return false;
  const std::string_view rest = std::string_view(raw_).substr(at);
  const Begins call = begins(rest, kCallEnd);
  if (call != Begins::yes) return call == Begins::cut;
  const size_t end = skip_space(at + kCallEnd.size());
  return end == raw_.size() && end - at - kCallEnd.size() <= kSpaceMax;
}

// Everything before `end` belongs to the value; a newline right before may still be the form's own.
void QwenXmlCall::take_value(size_t end, bool last, std::vector<OutputPiece>* out) {
  if (end > at_ && raw_[end - 1] == '\n') --end;
  if (!last && end <= at_) return;
  const std::string_view text = std::string_view(raw_).substr(at_, end - at_);
  if (string_) {
    std::string json;
    append_json_escaped(json, text);
    put(json, out);
  } else {
    value_ += text;
  }
  at_ = end;
}

void QwenXmlCall::close_value(size_t end, std::vector<OutputPiece>* out) {
  take_value(end, true, out);
  phase_ = Phase::between;
  junk_ = false;
  if (string_) return put("\"", out);
  // Numbers and structures keep the digits and the order in which they were written.
  size_t first = 0, after = value_.size();
  while (first < after && is_space(value_[first])) ++first;
  while (after > first && is_space(value_[after - 1])) --after;
  const std::string_view trimmed = std::string_view(value_).substr(first, after - first);
  if (parse_json(trimmed).ok()) return put(trimmed, out);
  std::string json = "\"";
  append_json_escaped(json, value_);
  put(json + "\"", out);
}

void QwenXmlCall::close_call(std::vector<OutputPiece>* out) {
  put(keys_.empty() ? "{}" : "}", out);
  out->push_back({OutputPiece::Kind::call_end, "", index_});
  phase_ = Phase::done;
}

QwenXmlCall::State QwenXmlCall::finish(std::vector<OutputPiece>* out) {
  if (phase_ == Phase::done) return State::done;
  if (phase_ == Phase::value) {
    // step_value() left scan_ at a tag with which the answer may end.
    const std::string_view rest = std::string_view(raw_).substr(std::min(scan_, raw_.size()));
    const bool parameter = begins(rest, kParameterEnd) == Begins::yes,
               function = begins(rest, kFunctionEnd) == Begins::yes;
    if (!parameter && !function) return State::more;
    if (!ends_answer(scan_ + (parameter ? kParameterEnd : kFunctionEnd).size())) return State::more;
    close_value(scan_, out);
    at_ = scan_ + (parameter ? kParameterEnd : kFunctionEnd).size();
    repair(parameter ? "missing_function_close" : "missing_parameter_close");
    close_call(out);
    return State::done;
  }
  if (phase_ != Phase::between || skip_space(at_) != raw_.size()) return State::more;
  at_ = raw_.size();
  repair("missing_function_close");
  close_call(out);
  return State::done;
}

}  // namespace wp
