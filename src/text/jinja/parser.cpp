#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/expression_parser.h"

namespace wp::jinja {
namespace {

using Tag = Statement::Kind;
using Words = std::initializer_list<std::string_view>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Program> run() {
    WP_ASSERT(symbol(std::string(kBodyText)) == kBodySymbol && symbol("loop") == kLoopSymbol);
    Program program;
    WP_TRY(block(program.body, {}));
    program.symbols = std::move(symbols_);
    return program;
  }

 private:
  // Statements up to a tag named in `enders` (left to the caller, at its name) or, without enders, the template's end.
  Result<void> block(Block& out, Words enders) {
    const Nesting nesting(depth_);
    WP_TRY(check_depth());
    while (current().kind != TokenKind::end) {
      if (current().kind == TokenKind::text) {
        out.push_back(make_statement(Tag::text));
        out.back()->text = take().text;
      } else if (current().kind == TokenKind::output_begin) {
        take();
        out.push_back(make_statement(Tag::output));
        WP_TRY(out.back()->expression, expression_or_tuple());
        if (current().kind != TokenKind::output_end) return fail_expected("}}");
        take();
      } else {
        take();  // {%
        if (current().kind != TokenKind::name) return fail_expected("the name of a tag");
        if (std::find(enders.begin(), enders.end(), current().text) != enders.end()) return {};
        WP_TRY(statement(out));
      }
    }
    if (enders.size() > 0) return fail(cat("expected {% ", *(enders.end() - 1), " %}, found the end"));
    return {};
  }

  Result<void> statement(Block& out) {
    const std::string tag = current().text;
    std::unique_ptr<Statement> made = make_statement(Tag::text);
    take();
    if (tag == "if") WP_TRY(branch(*made));
    else if (tag == "for") WP_TRY(loop(*made));
    else if (tag == "set") WP_TRY(set(*made));
    else if (tag == "macro") WP_TRY(macro(*made));
    else if (tag == "filter") WP_TRY(filter_block(*made));
    else if (tag == "with") WP_TRY(with(*made));
    else if (tag == "generation") WP_TRY(generation(*made));
    else if (tag == "break" || tag == "continue") WP_TRY(leave(*made, tag));
    else return fail(cat("the tag ", tag, " is not implemented or not allowed here"));
    out.push_back(std::move(made));
    return {};
  }

  std::unique_ptr<Statement> make_statement(Tag kind) const {
    return std::make_unique<Statement>(Statement{.kind = kind, .line = current().line});
  }

  Result<void> end_tag() {
    if (current().kind != TokenKind::block_end) return fail_expected("%}");
    take();
    return {};
  }

  Result<void> end_tag_named() {
    take();
    return end_tag();
  }

  // A body in which break and continue have no loop to leave.
  Result<void> closed_block(Block& out, Words enders) {
    const int loops = std::exchange(loops_, 0);
    WP_TRY(block(out, enders));
    loops_ = loops;
    return end_tag_named();
  }

  Result<void> branch(Statement& out) {
    out.kind = Tag::branch;
    while (true) {
      Branch made;
      WP_TRY(made.condition, expression_or_tuple());
      WP_TRY(end_tag());
      WP_TRY(block(made.body, {"elif", "else", "endif"}));
      out.branches.push_back(std::move(made));
      if (!skip_name("elif")) break;
    }
    if (skip_name("else")) {
      WP_TRY(end_tag());
      WP_TRY(block(out.otherwise, {"endif"}));
    }
    return end_tag_named();
  }

  Result<void> loop(Statement& out) {
    out.kind = Tag::loop;
    WP_TRY(out.target, targets());
    if (!skip_name("in")) return fail_expected("in");
    WP_TRY(out.expression, iterated());
    if (skip_name("if")) {
      WP_TRY(out.condition, expression());
    }
    if (at_name("recursive")) return fail("a recursive loop is not implemented");
    WP_TRY(end_tag());
    ++loops_;
    WP_TRY(block(out.body, {"else", "endfor"}));
    --loops_;
    if (skip_name("else")) {
      WP_TRY(end_tag());
      WP_TRY(block(out.otherwise, {"endfor"}));
    }
    return end_tag_named();
  }

  // What a loop runs over: no inline if, as `if` begins the loop's filter.
  Result<ExpressionPtr> iterated() {
    WP_TRY(ExpressionPtr first, disjunction());
    if (!at_symbol(",")) return first;
    ExpressionPtr tuple = make(Expression::Kind::tuple);
    tuple->parts.push_back(std::move(first));
    while (skip_symbol(",")) {
      WP_TRY(ExpressionPtr next, disjunction());
      tuple->parts.push_back(std::move(next));
    }
    return tuple;
  }

  Result<void> set(Statement& out) {
    out.kind = Tag::set;
    WP_TRY(out.target, targets());
    if (skip_symbol("=")) {
      WP_TRY(out.expression, expression_or_tuple());
      return end_tag();
    }
    if (!out.target.several.empty()) return fail_expected("=");
    out.kind = Tag::set_block;
    if (at_symbol("|")) {
      WP_TRY(out.expression, filters(body_text(), false));
    }
    WP_TRY(end_tag());
    return closed_block(out.body, {"endset"});
  }

  ExpressionPtr body_text() { return name_expression(std::string(kBodyText)); }

  Result<void> macro(Statement& out) {
    out.kind = Tag::macro;
    WP_TRY(out.text, expect_name());
    out.target.symbol = symbol(out.text);
    WP_TRY(expect_symbol("("));
    while (!skip_symbol(")")) {
      if (!out.parameters.empty()) WP_TRY(expect_symbol(","));
      Parameter parameter;
      WP_TRY(parameter.name, expect_name());
      parameter.symbol = symbol(parameter.name);
      if (skip_symbol("=")) {
        WP_TRY(parameter.otherwise, expression());
      } else if (!out.parameters.empty() && out.parameters.back().otherwise) {
        return fail(cat("parameter ", parameter.name, ": expected a default after one with a default, found none"));
      }
      out.parameters.push_back(std::move(parameter));
    }
    WP_TRY(end_tag());
    return closed_block(out.body, {"endmacro"});
  }

  Result<void> filter_block(Statement& out) {
    out.kind = Tag::filter;
    // The first filter has no | before it: `{% filter upper | trim %}`.
    WP_TRY(out.expression, first_filter());
    WP_TRY(out.expression, filters(std::move(out.expression), false));
    WP_TRY(end_tag());
    return closed_block(out.body, {"endfilter"});
  }

  Result<ExpressionPtr> first_filter() {
    ExpressionPtr out = make(Expression::Kind::filter);
    WP_TRY(out->text, expect_name());
    out->filter = find_filter(out->text);
    if (!out->filter) return fail(cat("the filter ", out->text, " is not implemented"));
    if (at_symbol("(")) WP_TRY(arguments(out->arguments));
    out->parts.push_back(body_text());
    return out;
  }

  Result<void> with(Statement& out) {
    out.kind = Tag::with;
    while (current().kind != TokenKind::block_end) {
      if (!out.assignments.empty()) WP_TRY(expect_symbol(","));
      WP_TRY(Target target, one_target());
      WP_TRY(expect_symbol("="));
      WP_TRY(ExpressionPtr value, expression());
      out.assignments.emplace_back(std::move(target), std::move(value));
    }
    WP_TRY(end_tag());
    return closed_block(out.body, {"endwith"});
  }

  // Marks for training what the assistant says; here it changes nothing but the scope of what is set inside.
  Result<void> generation(Statement& out) {
    out.kind = Tag::with;
    WP_TRY(end_tag());
    return closed_block(out.body, {"endgeneration"});
  }

  Result<void> leave(Statement& out, std::string_view tag) {
    if (loops_ == 0) return fail(cat("expected ", tag, " inside a for, found it outside"));
    out.kind = tag == "break" ? Tag::break_loop : Tag::continue_loop;
    return end_tag();
  }

  Result<Target> one_target() {
    const Nesting nesting(depth_);
    WP_TRY(check_depth());
    if (skip_symbol("(")) {
      WP_TRY(Target inner, targets());
      WP_TRY(expect_symbol(")"));
      return inner;
    }
    WP_TRY(const std::string name, expect_name());
    for (const char* word : {"true", "false", "none", "True", "False", "None"})
      if (name == word) return fail(cat("expected a name to set, found ", name));
    Target out;
    out.symbol = symbol(name);
    if (skip_symbol(".")) {
      WP_TRY(out.member, expect_name());
    }
    return out;
  }

  Result<Target> targets() {
    WP_TRY(Target first, one_target());
    if (!at_symbol(",")) return first;
    Target out;
    out.several.push_back(std::move(first));
    while (skip_symbol(",")) {
      if (at_symbol("=") || at_symbol(")") || at_name("in")) break;
      WP_TRY(Target next, one_target());
      out.several.push_back(std::move(next));
    }
    return out;
  }

  int loops_ = 0;
};

}  // namespace

Result<Program> parse_program(std::string_view source, int depth_max) {
  WP_TRY(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens), depth_max).run();
}

}  // namespace wp::jinja
