// What a template is once parsed. Built by the parser, then const and shared by all renderings.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "text/jinja/value.h"

namespace wp::jinja {

class Interpreter;
struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

using Filter = Result<Value> (*)(Interpreter&, const Value& input, const Arguments&);
using Test = Result<bool> (*)(Interpreter&, const Value& input, const Arguments&);
Filter find_filter(std::string_view name);  // Null where there is none.
Test find_test(std::string_view name);

struct Argument {
  std::string name;  // "" for one by position.
  ExpressionPtr value;
};

// Chains of one precedence are one node, so that a long one is no deep tree.
struct Expression {
  enum class Kind {
    literal,  // value
    name,     // symbol
    list,
    tuple,       // parts
    dict,        // parts: key, value, key, value ...
    arithmetic,  // parts[0] operators[0] parts[1] ..., from the left: + - or * / // % or **
    concat,      // parts joined as text: ~
    all,
    any,     // and, or
    invert,  // not parts[0]
    minus,
    plus,         // parts[0]
    compare,      // parts[0] operators[0] parts[1] ...
    conditional,  // parts[0] if parts[1] else parts[2], which may be absent
    attribute,    // parts[0].text
    item,         // parts[0][parts[1]]
    slice,        // parts[0][parts[1]:parts[2]:parts[3]], null where left out
    call,         // parts[0](arguments)
    filter,       // parts[0] | text(arguments)
    test          // parts[0] is [not] text(arguments)
  };
  Kind kind;
  int line;
  Value value{};
  int symbol = -1;
  std::string text{};
  bool negated = false;
  Filter filter = nullptr;
  Test test = nullptr;
  std::vector<ExpressionPtr> parts{};
  std::vector<std::string> operators{};
  std::vector<Argument> arguments{};
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

// Where `for` and `set` put a value: a name, a member of a namespace, or several names that unpack it.
struct Target {
  int symbol = -1;
  std::string member;  // Of the namespace in `symbol`, if any.
  std::vector<Target> several;
};

struct Branch {
  ExpressionPtr condition;
  Block body;
};

struct Parameter {
  int symbol;
  std::string name;
  ExpressionPtr otherwise;  // The default, if any.
};

struct Statement {
  enum class Kind {
    text,
    output,
    branch,     // if, elif: `branches`; else: `otherwise`
    loop,       // for `target` in `expression` [if `condition`]: `body`, else: `otherwise`
    set,        // `target` = `expression`
    set_block,  // `target` = the text of `body` through `filters`
    macro,      // `target`, `parameters`, `body`
    filter,     // The text of `body` through `filters`
    with,       // Names of `assignments` inside `body`; generation is one without names
    break_loop,
    continue_loop
  };
  Kind kind;
  int line;
  std::string text{};
  ExpressionPtr expression{}, condition{};  // A filter chain starts from a literal that stands for the body's text.
  Target target{};
  std::vector<Branch> branches{};
  std::vector<std::pair<Target, ExpressionPtr>> assignments{};
  std::vector<Parameter> parameters{};
  Block body{}, otherwise{};
};

// The name, which no template can write, of a block's text where it goes through filters.
constexpr std::string_view kBodyText = "(body)";
constexpr int kBodySymbol = 0, kLoopSymbol = 1;

struct Program {
  Block body;
  std::vector<std::string> symbols;  // Names by their numbers.
};

}  // namespace wp::jinja
