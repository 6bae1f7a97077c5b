#include "text/jinja/lexer.h"

#include <array>

#include "text/jinja/python_text.h"
#include "text/utf8.h"

namespace wp::jinja {
namespace {

// \r\n and \r become \n, and one newline at the end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) WP_TRY(outside());
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  Error fail(std::string_view what) const {
    return {ErrorCode::bad_file, cat("chat template line ", line_, ": ", what)};
  }
  bool follows(std::string_view text) const { return std::string_view(source_).substr(at_).starts_with(text); }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(size_t count) {
    for (; count > 0; --count) line_ += source_[at_++] == '\n';
  }
  void skip_space() { advance(python_space_end(source_, at_) - at_); }

  // Text up to the next tag, then the tag.
  Result<void> outside() {
    size_t tag = at_;
    while (tag < source_.size() && !(source_[tag] == '{' && tag + 1 < source_.size() &&
                                     (source_[tag + 1] == '{' || source_[tag + 1] == '%' || source_[tag + 1] == '#')))
      ++tag;
    tag = std::min(tag, source_.size());
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (tag == source_.size()) {
      if (!text.empty()) add(TokenKind::text, std::string(text));
      advance(tag - at_);
      return {};
    }
    const char opener = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (sign == '-') {
      text = python_strip_right(text);
    } else if (sign != '+' && opener != '{') {
      text = without_indent(text);
    }
    if (!text.empty()) add(TokenKind::text, std::string(text));
    advance(tag - at_ + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    line_starting_ = false;
    if (opener == '#') return comment();
    return opener == '{' ? inside("}}", TokenKind::output_begin, TokenKind::output_end) : block();
  }

  // lstrip_blocks: white space between the line's start and the tag goes.
  std::string_view without_indent(std::string_view text) const {
    const size_t newline = text.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !line_starting_) return text;
    return python_space_end(text, begin) == text.size() ? text.substr(0, begin) : text;
  }

  // Past "-%}" and the space behind it, "+%}", or "%}" and, by trim_blocks, one newline. False if none of them stands
  // here.
  bool tag_end(std::string_view closer, bool trims_newline) {
    if (follows(cat("-", closer))) {
      advance(closer.size() + 1);
      const size_t begin = at_;
      skip_space();
      line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
      return true;
    }
    if (trims_newline && follows(cat("+", closer))) {
      advance(closer.size() + 1);
      line_starting_ = false;
      return true;
    }
    if (!follows(closer)) return false;
    advance(closer.size());
    line_starting_ = trims_newline && follows("\n");
    if (line_starting_) advance(1);
    return true;
  }

  Result<void> comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return fail("expected #} after {#, found the end");
    const size_t sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+') ? 1 : 0;
    advance(end - sign - at_);
    tag_end("#}", true);
    return {};
  }

  Result<void> block() {
    const size_t word = python_space_end(source_, at_);
    if (std::string_view(source_).substr(word, 3) == "raw") {
      const size_t after = python_space_end(source_, word + 3);
      const bool strips = std::string_view(source_).substr(after, 3) == "-%}";
      if (strips || std::string_view(source_).substr(after, 2) == "%}") {
        advance(after - at_ + (strips ? 3 : 2));
        if (strips) skip_space();
        return raw();
      }
    }
    return inside("%}", TokenKind::block_begin, TokenKind::block_end);
  }

  Result<void> raw() {
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      size_t word = tag + 2;
      const char sign = word < source_.size() ? source_[word] : ' ';
      if (sign == '-' || sign == '+') ++word;
      word = python_space_end(source_, word);
      if (std::string_view(source_).substr(word, 6) != "endraw") continue;
      const size_t after = python_space_end(source_, word + 6);
      const std::string_view rest = std::string_view(source_).substr(after);
      if (!rest.starts_with("%}") && !rest.starts_with("-%}") && !rest.starts_with("+%}")) continue;
      std::string_view text = std::string_view(source_).substr(at_, tag - at_);
      if (sign == '-') text = python_strip_right(text);
      else if (sign != '+') text = without_indent(text);
      if (!text.empty()) add(TokenKind::text, std::string(text));
      advance(after - at_);
      tag_end("%}", true);
      return {};
    }
    return fail("expected {% endraw %}, found the end");
  }

  Result<void> inside(std::string_view closer, TokenKind begin, TokenKind end) {
    add(begin, "");
    std::string brackets;
    while (true) {
      skip_space();
      if (brackets.empty() && tag_end(closer, end == TokenKind::block_end)) break;
      if (at_ >= source_.size()) return fail(cat("expected ", closer, ", found the end"));
      WP_TRY(token(brackets));
    }
    add(end, "");
    return {};
  }

  Result<void> token(std::string& brackets) {
    const char c = source_[at_];
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
      take(TokenKind::name, end - at_);
      return {};
    }
    if (is_digit(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    static constexpr std::array<std::string_view, 6> kLong = {"**", "//", "==", "!=", "<=", ">="};
    for (const std::string_view symbol : kLong)
      if (follows(symbol)) {
        take(TokenKind::symbol, 2);
        return {};
      }
    static constexpr std::string_view kShort = "+-*/%~<>=.,:|()[]{}";
    if (kShort.find(c) == std::string_view::npos)
      return fail(cat("expected an expression, found ", source_.substr(at_, utf8_step(source_, at_).length)));
    WP_TRY(balance(c, brackets));
    take(TokenKind::symbol, 1);
    return {};
  }

  Result<void> balance(char c, std::string& brackets) const {
    if (c == '(') brackets += ')';
    if (c == '[') brackets += ']';
    if (c == '{') brackets += '}';
    if (c != ')' && c != ']' && c != '}') return {};
    if (brackets.empty() || brackets.back() != c)
      return fail(cat("expected ", brackets.empty() ? "no bracket" : brackets.substr(brackets.size() - 1), ", found ",
                      std::string(1, c)));
    brackets.pop_back();
    return {};
  }

  void take(TokenKind kind, size_t count) {
    add(kind, source_.substr(at_, count));
    advance(count);
  }

  // 12, 1_000, 0.5, 1e3, 1.5e-3. (Not 0x10: templates have no use for it.)
  Result<void> number() {
    size_t end = at_;
    const auto digits = [&] {
      const size_t begin = end;
      while (end < source_.size() && (is_digit(source_[end]) || (source_[end] == '_' && end > begin))) ++end;
      return end > begin;
    };
    digits();
    TokenKind kind = TokenKind::integer;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      ++end;
      digits();
      kind = TokenKind::real;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t before = end++;
      if (end < source_.size() && (source_[end] == '+' || source_[end] == '-')) ++end;
      if (digits()) kind = TokenKind::real;
      else end = before;
    }
    if (end < source_.size() && is_name_start(source_[end])) return fail("expected a number, found a name in it");
    std::string text;
    for (const char c : source_.substr(at_, end - at_))
      if (c != '_') text += c;
    add(kind, std::move(text));
    advance(end - at_);
    return {};
  }

  Result<void> string(char quote) {
    const int line = line_;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return fail("expected the end of a string, found the end of the template");
    const std::string_view body = std::string_view(source_).substr(at_ + 1, end - at_ - 1);
    auto value = resolve_escapes(body);
    if (!value.ok()) return fail(value.error().message);
    advance(end + 1 - at_);
    tokens_.push_back({TokenKind::string, std::move(value).value(), line});
    return {};
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace wp::jinja
