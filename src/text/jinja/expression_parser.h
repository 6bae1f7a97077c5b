// The expressions of a template: one token of look-ahead, one function per precedence. Base of the statement parser.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace wp::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, int depth_max) : tokens_(std::move(tokens)), depth_max_(depth_max) {}

 protected:
  Result<ExpressionPtr> expression();  // An inline if, or what is below it.
  // Several expressions with commas make a tuple, without brackets, up to the tag's end.
  Result<ExpressionPtr> expression_or_tuple();
  Result<ExpressionPtr> disjunction() { return logic("or"); }
  // | name(arguments) after `input`; `is` tests too where `tests`.
  Result<ExpressionPtr> filters(ExpressionPtr input, bool tests);

  Result<void> arguments(std::vector<Argument>& out);  // In brackets.

  const Token& current() const { return tokens_[at_]; }
  const Token& after_current() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool at_symbol(std::string_view symbol) const { return is(current(), TokenKind::symbol, symbol); }
  bool at_name(std::string_view name) const { return is(current(), TokenKind::name, name); }
  static bool is(const Token& token, TokenKind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  Result<void> expect_symbol(std::string_view symbol);
  Result<std::string> expect_name();
  Error fail(std::string_view what) const;
  Error fail_expected(std::string_view what) const;  // "expected WHAT, found the current token".
  int symbol(const std::string& name);
  ExpressionPtr make(Expression::Kind kind) const;
  ExpressionPtr name_expression(const std::string& name);

  // Counts how deep the parser stands; an error beyond the limit.
  class Nesting {
   public:
    explicit Nesting(int& depth) : depth_(++depth) {}
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    int& depth_;
  };
  Result<void> check_depth() const;

  int depth_ = 0;
  std::vector<std::string> symbols_;

 private:
  Result<ExpressionPtr> logic(std::string_view word);
  Result<ExpressionPtr> negation();
  Result<ExpressionPtr> comparison();
  Result<ExpressionPtr> sum();
  Result<ExpressionPtr> concatenation();
  Result<ExpressionPtr> product();
  Result<ExpressionPtr> power();
  Result<ExpressionPtr> unary(bool with_filters);
  Result<ExpressionPtr> primary();
  Result<ExpressionPtr> number();
  Result<ExpressionPtr> bracketed();
  Result<ExpressionPtr> list();
  Result<ExpressionPtr> dict();
  Result<ExpressionPtr> postfix(ExpressionPtr base);
  Result<ExpressionPtr> subscript(ExpressionPtr base);
  Result<ExpressionPtr> test(ExpressionPtr input);
  Result<void> link(int& links) const;  // One more postfix on the same primary.

  template <class Next>
  Result<ExpressionPtr> chain(Expression::Kind kind, std::initializer_list<std::string_view> symbols, Next next);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  const int depth_max_;
  std::unordered_map<std::string, int> symbol_numbers_;
};

}  // namespace wp::jinja
