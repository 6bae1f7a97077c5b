#include "text/jinja/expression_parser.h"

#include <charconv>

namespace wp::jinja {
namespace {

using Node = Expression::Kind;

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::text: return "text";
    case TokenKind::output_begin: return "{{";
    case TokenKind::output_end: return "}}";
    case TokenKind::block_begin: return "{%";
    case TokenKind::block_end: return "%}";
    case TokenKind::string: return "a string";
    case TokenKind::end: return "the end";
    default: return token.text;
  }
}

}  // namespace

Error ExpressionParser::fail(std::string_view what) const {
  return {ErrorCode::bad_file, cat("chat template line ", current().line, ": ", what)};
}

Error ExpressionParser::fail_expected(std::string_view what) const {
  return fail(cat("expected ", what, ", found ", describe(current())));
}

bool ExpressionParser::skip_symbol(std::string_view symbol) {
  if (!at_symbol(symbol)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

Result<void> ExpressionParser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) return fail_expected(symbol);
  return {};
}

Result<std::string> ExpressionParser::expect_name() {
  if (current().kind != TokenKind::name) return fail_expected("a name");
  return take().text;
}

int ExpressionParser::symbol(const std::string& name) {
  const auto [place, is_new] = symbol_numbers_.emplace(name, static_cast<int>(symbols_.size()));
  if (is_new) symbols_.push_back(name);
  return place->second;
}

ExpressionPtr ExpressionParser::make(Node kind) const {
  return std::make_unique<Expression>(Expression{.kind = kind, .line = current().line});
}

ExpressionPtr ExpressionParser::name_expression(const std::string& name) {
  ExpressionPtr out = make(Node::name);
  out->symbol = symbol(name);
  out->text = name;
  return out;
}

Result<void> ExpressionParser::check_depth() const {
  if (depth_ > depth_max_) return fail(cat("expected at most ", depth_max_, " levels of nesting, found more"));
  return {};
}

Result<void> ExpressionParser::link(int& links) const {
  if (++links > depth_max_) return fail(cat("expected at most ", depth_max_, " links in a chain, found more"));
  return {};
}

Result<ExpressionPtr> ExpressionParser::expression_or_tuple() {
  WP_TRY(ExpressionPtr first, expression());
  if (!at_symbol(",")) return first;
  ExpressionPtr tuple = make(Node::tuple);
  tuple->parts.push_back(std::move(first));
  while (skip_symbol(",")) {
    if (current().kind == TokenKind::block_end || current().kind == TokenKind::output_end) break;
    WP_TRY(ExpressionPtr next, expression());
    tuple->parts.push_back(std::move(next));
  }
  return tuple;
}

Result<ExpressionPtr> ExpressionParser::expression() {
  const Nesting nesting(depth_);
  WP_TRY(check_depth());
  WP_TRY(ExpressionPtr value, logic("or"));
  int links = 0;
  while (skip_name("if")) {
    WP_TRY(link(links));
    ExpressionPtr out = make(Node::conditional);
    WP_TRY(ExpressionPtr condition, logic("or"));
    out->parts.push_back(std::move(value));
    out->parts.push_back(std::move(condition));
    if (skip_name("else")) {
      WP_TRY(ExpressionPtr otherwise, expression());
      out->parts.push_back(std::move(otherwise));
    }
    value = std::move(out);
  }
  return value;
}

Result<ExpressionPtr> ExpressionParser::logic(std::string_view word) {
  const auto next = [&] { return word == "or" ? logic("and") : negation(); };
  WP_TRY(ExpressionPtr first, next());
  if (!at_name(word)) return first;
  ExpressionPtr out = make(word == "or" ? Node::any : Node::all);
  out->parts.push_back(std::move(first));
  while (skip_name(word)) {
    WP_TRY(ExpressionPtr part, next());
    out->parts.push_back(std::move(part));
  }
  return out;
}

Result<ExpressionPtr> ExpressionParser::negation() {
  if (!at_name("not")) return comparison();
  const Nesting nesting(depth_);
  WP_TRY(check_depth());
  ExpressionPtr out = make(Node::invert);
  take();
  WP_TRY(ExpressionPtr part, negation());
  out->parts.push_back(std::move(part));
  return out;
}

Result<ExpressionPtr> ExpressionParser::comparison() {
  WP_TRY(ExpressionPtr first, sum());
  ExpressionPtr out;
  while (true) {
    std::string op;
    for (const char* symbol : {"==", "!=", "<", "<=", ">", ">="})
      if (at_symbol(symbol)) op = symbol;
    if (at_name("in")) op = "in";
    if (at_name("not") && is(after_current(), TokenKind::name, "in")) {
      take();
      op = "not in";
    }
    if (op.empty()) break;
    if (!out) {
      out = make(Node::compare);
      out->parts.push_back(std::move(first));
    }
    take();
    WP_TRY(ExpressionPtr next, sum());
    out->operators.push_back(op);
    out->parts.push_back(std::move(next));
  }
  return out ? std::move(out) : std::move(first);
}

template <class Next>
Result<ExpressionPtr> ExpressionParser::chain(Node kind, std::initializer_list<std::string_view> symbols, Next next) {
  WP_TRY(ExpressionPtr first, next());
  ExpressionPtr out;
  while (true) {
    std::string op;
    for (const std::string_view symbol : symbols)
      if (at_symbol(symbol)) op = symbol;
    if (op.empty()) break;
    if (!out) {
      out = make(kind);
      out->parts.push_back(std::move(first));
    }
    take();
    WP_TRY(ExpressionPtr part, next());
    out->operators.push_back(op);
    out->parts.push_back(std::move(part));
  }
  return out ? std::move(out) : std::move(first);
}

Result<ExpressionPtr> ExpressionParser::sum() {
  return chain(Node::arithmetic, {"+", "-"}, [this] { return concatenation(); });
}
Result<ExpressionPtr> ExpressionParser::concatenation() {
  return chain(Node::concat, {"~"}, [this] { return product(); });
}
Result<ExpressionPtr> ExpressionParser::product() {
  return chain(Node::arithmetic, {"*", "/", "//", "%"}, [this] { return power(); });
}
Result<ExpressionPtr> ExpressionParser::power() {
  return chain(Node::arithmetic, {"**"}, [this] { return unary(true); });
}

Result<ExpressionPtr> ExpressionParser::unary(bool with_filters) {
  const Nesting nesting(depth_);
  WP_TRY(check_depth());
  ExpressionPtr out;
  if (at_symbol("-") || at_symbol("+")) {
    out = make(at_symbol("-") ? Node::minus : Node::plus);
    take();
    WP_TRY(ExpressionPtr part, unary(false));
    out->parts.push_back(std::move(part));
  } else {
    WP_TRY(ExpressionPtr base, primary());
    WP_TRY(out, postfix(std::move(base)));
  }
  if (!with_filters) return out;
  return filters(std::move(out), true);
}

Result<ExpressionPtr> ExpressionParser::primary() {
  const Token& token = current();
  if (token.kind == TokenKind::name) {
    const std::string name = take().text;
    ExpressionPtr out = make(Node::literal);
    if (name == "true" || name == "True") out->value = Value::boolean(true);
    else if (name == "false" || name == "False") out->value = Value::boolean(false);
    else if (name == "none" || name == "None") out->value = Value::none();
    else out = name_expression(name);
    return out;
  }
  if (token.kind == TokenKind::string) {
    ExpressionPtr out = make(Node::literal);
    std::string text;
    while (current().kind == TokenKind::string) text += take().text;  // Side by side: one string.
    out->value = Value::string(std::make_shared<Text>(std::move(text)));
    return out;
  }
  if (token.kind == TokenKind::integer || token.kind == TokenKind::real) return number();
  if (at_symbol("(")) return bracketed();
  if (at_symbol("[")) return list();
  if (at_symbol("{")) return dict();
  return fail_expected("an expression");
}

Result<ExpressionPtr> ExpressionParser::number() {
  ExpressionPtr out = make(Node::literal);
  const Token token = take();
  const char *begin = token.text.data(), *end = begin + token.text.size();
  if (token.kind == TokenKind::real) {
    double value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) return fail(cat("expected a float, found ", token.text));
    out->value = Value::real(value);
  } else {
    int64_t value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc())
      return fail(cat("expected an integer below 2^63, found ", token.text));
    out->value = Value::integer(value);
  }
  return out;
}

Result<ExpressionPtr> ExpressionParser::bracketed() {
  take();
  ExpressionPtr tuple = make(Node::tuple);
  while (!skip_symbol(")")) {
    WP_TRY(ExpressionPtr part, expression());
    if (tuple->parts.empty() && skip_symbol(")")) return part;
    tuple->parts.push_back(std::move(part));
    if (skip_symbol(")")) break;
    WP_TRY(expect_symbol(","));
  }
  return tuple;
}

Result<ExpressionPtr> ExpressionParser::list() {
  ExpressionPtr out = make(Node::list);
  take();
  while (!skip_symbol("]")) {
    if (!out->parts.empty()) {
      WP_TRY(expect_symbol(","));
      if (skip_symbol("]")) break;
    }
    WP_TRY(ExpressionPtr part, expression());
    out->parts.push_back(std::move(part));
  }
  return out;
}

Result<ExpressionPtr> ExpressionParser::dict() {
  ExpressionPtr out = make(Node::dict);
  take();
  while (!skip_symbol("}")) {
    if (!out->parts.empty()) {
      WP_TRY(expect_symbol(","));
      if (skip_symbol("}")) break;
    }
    WP_TRY(ExpressionPtr key, expression());
    WP_TRY(expect_symbol(":"));
    WP_TRY(ExpressionPtr value, expression());
    out->parts.push_back(std::move(key));
    out->parts.push_back(std::move(value));
  }
  return out;
}

Result<ExpressionPtr> ExpressionParser::postfix(ExpressionPtr base) {
  for (int links = 0;;) {
    ExpressionPtr out;
    if (at_symbol(".")) {
      take();
      if (current().kind == TokenKind::integer) {
        out = make(Node::item);
        WP_TRY(ExpressionPtr index, number());
        out->parts.push_back(std::move(base));
        out->parts.push_back(std::move(index));
      } else {
        out = make(Node::attribute);
        WP_TRY(out->text, expect_name());
        out->parts.push_back(std::move(base));
      }
    } else if (at_symbol("[")) {
      WP_TRY(out, subscript(std::move(base)));
    } else if (at_symbol("(")) {
      out = make(Node::call);
      WP_TRY(arguments(out->arguments));
      out->parts.push_back(std::move(base));
    } else {
      return base;
    }
    base = std::move(out);
    WP_TRY(link(links));
  }
}

Result<ExpressionPtr> ExpressionParser::subscript(ExpressionPtr base) {
  ExpressionPtr out = make(Node::item);
  take();
  std::vector<ExpressionPtr> bounds;
  bool is_slice = false;
  ExpressionPtr bound;
  while (!skip_symbol("]")) {
    if (skip_symbol(":")) {
      is_slice = true;
      bounds.push_back(std::move(bound));
      if (bounds.size() > 2) return fail("expected at most two : in a slice, found more");
    } else if (bound) {
      return fail_expected("]");
    } else {
      WP_TRY(bound, expression());
    }
  }
  if (!is_slice && !bound) return fail("expected an index, found []");
  bounds.push_back(std::move(bound));
  if (is_slice) out->kind = Node::slice;
  out->parts.push_back(std::move(base));
  for (ExpressionPtr& part : bounds) out->parts.push_back(std::move(part));
  if (is_slice) out->parts.resize(4);
  return out;
}

Result<ExpressionPtr> ExpressionParser::filters(ExpressionPtr input, bool tests) {
  for (int links = 0;;) {
    WP_TRY(link(links));
    if (skip_symbol("|")) {
      ExpressionPtr out = make(Node::filter);
      WP_TRY(out->text, expect_name());
      out->filter = find_filter(out->text);
      if (!out->filter) return fail(cat("the filter ", out->text, " is not implemented"));
      if (at_symbol("(")) WP_TRY(arguments(out->arguments));
      out->parts.push_back(std::move(input));
      input = std::move(out);
    } else if (tests && at_name("is")) {
      WP_TRY(input, test(std::move(input)));
    } else if (tests && at_symbol("(")) {  // As Jinja does: a call of what a filter gave.
      ExpressionPtr out = make(Node::call);
      WP_TRY(arguments(out->arguments));
      out->parts.push_back(std::move(input));
      input = std::move(out);
    } else {
      return input;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::test(ExpressionPtr input) {
  ExpressionPtr out = make(Node::test);
  take();
  out->negated = skip_name("not");
  WP_TRY(out->text, expect_name());
  out->test = find_test(out->text);
  if (!out->test) return fail(cat("the test ", out->text, " is not implemented"));
  out->parts.push_back(std::move(input));
  if (at_symbol("(")) {
    WP_TRY(arguments(out->arguments));
    return out;
  }
  // One argument may follow without brackets: x is divisibleby 3.
  const Token& token = current();
  bool follows = token.kind == TokenKind::string || token.kind == TokenKind::integer || token.kind == TokenKind::real ||
                 at_symbol("[") || at_symbol("{");
  if (token.kind == TokenKind::name) {
    follows = true;
    for (const char* word : {"else", "or", "and", "if", "is", "not", "in"}) follows &= token.text != word;
  }
  if (follows) {
    WP_TRY(ExpressionPtr base, primary());
    WP_TRY(ExpressionPtr argument, postfix(std::move(base)));
    out->arguments.push_back({"", std::move(argument)});
  }
  return out;
}

Result<void> ExpressionParser::arguments(std::vector<Argument>& out) {
  take();
  bool first = true, named = false;
  while (!skip_symbol(")")) {
    if (!first) {
      WP_TRY(expect_symbol(","));
      if (skip_symbol(")")) break;
    }
    first = false;
    if (at_symbol("*") || at_symbol("**")) return fail("arguments by * or ** are not implemented");
    Argument argument;
    if (current().kind == TokenKind::name && is(after_current(), TokenKind::symbol, "=")) {
      argument.name = take().text;
      take();
      named = true;
    } else if (named) {
      return fail_expected("a named argument");
    }
    WP_TRY(argument.value, expression());
    out.push_back(std::move(argument));
  }
  return {};
}

}  // namespace wp::jinja
