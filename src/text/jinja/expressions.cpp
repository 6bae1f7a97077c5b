// Expressions of a template.
#include <algorithm>
#include <ctime>

#include "text/jinja/interpreter.h"
#include "text/jinja/python_text.h"
#include "text/utf8.h"

namespace wp::jinja {
namespace {

constexpr int64_t kRangeMax = 100'000;  // As Jinja's sandbox has it.

}  // namespace

Result<Value> Interpreter::evaluate(const Expression& expression, Scope& scope) {
  using Node = Expression::Kind;
  const Level level(*this);
  ++eighths_;
  WP_TRY(level.check());
  WP_TRY(check_steps());
  switch (expression.kind) {
    case Node::literal: return expression.value;
    case Node::name: return evaluate_name(expression, scope);
    case Node::list:
    case Node::tuple: {
      WP_TRY(std::vector<Value> items, evaluate_parts(expression, scope));
      return make_list(std::move(items), expression.kind == Node::tuple);
    }
    case Node::dict: return evaluate_literal_dict(expression, scope);
    case Node::attribute:
    case Node::item:
    case Node::slice:
    case Node::call:
    case Node::filter:
    case Node::test: return evaluate_access(expression, scope);
    default: return evaluate_operator(expression, scope);
  }
}

Result<Value> Interpreter::evaluate_operator(const Expression& expression, Scope& scope) {
  using Node = Expression::Kind;
  switch (expression.kind) {
    case Node::arithmetic: return evaluate_chain(expression, scope);
    case Node::compare: return evaluate_compare(expression, scope);
    case Node::concat: {
      std::string text;
      for (const ExpressionPtr& part : expression.parts) {
        WP_TRY(const Value value, evaluate(*part, scope));
        WP_TRY(const std::string piece, text_of(value));
        WP_TRY(append(text, piece));
      }
      return make_string(std::move(text));
    }
    case Node::all:
    case Node::any: {
      Value value;
      for (const ExpressionPtr& part : expression.parts) {
        WP_TRY(value, evaluate(*part, scope));
        if (truth(value) == (expression.kind == Node::any)) break;
      }
      return value;
    }
    case Node::conditional: {
      WP_TRY(const Value condition, evaluate(*expression.parts[1], scope));
      if (truth(condition)) return evaluate(*expression.parts[0], scope);
      if (expression.parts.size() > 2) return evaluate(*expression.parts[2], scope);
      return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
    }
    default: break;
  }
  WP_TRY(const Value value, evaluate(*expression.parts[0], scope));
  if (expression.kind == Node::invert) return Value::boolean(!truth(value));
  const bool minus = expression.kind == Node::minus;
  if (value.is(Kind::real)) return Value::real(minus ? -value.as_real() : value.as_real());
  if (value.is_whole()) return Value::integer(minus ? -value.as_integer() : value.as_integer());
  if (value.is(Kind::undefined)) return fail(value.what_is_undefined());
  return fail(cat("expected a number behind the sign, found ", kind_name(value)));
}

Result<Value> Interpreter::evaluate_access(const Expression& expression, Scope& scope) {
  using Node = Expression::Kind;
  if (expression.kind == Node::call) return evaluate_call(expression, scope);
  WP_TRY(const Value base, evaluate(*expression.parts[0], scope));
  switch (expression.kind) {
    case Node::attribute: return attribute(base, expression.text);
    case Node::item: {
      WP_TRY(const Value key, evaluate(*expression.parts[1], scope));
      return item(base, key);
    }
    case Node::slice: {
      Value bounds[3];
      const Value* given[3] = {};
      for (int i = 0; i < 3; ++i) {
        const ExpressionPtr& part = expression.parts[i + 1];
        if (!part) continue;
        WP_TRY(bounds[i], evaluate(*part, scope));
        if (!bounds[i].is(Kind::none)) given[i] = &bounds[i];
      }
      return slice_of(*this, base, given[0], given[1], given[2]);
    }
    case Node::filter: {
      WP_TRY(const Arguments arguments, evaluate_arguments(expression, scope));
      WP_TRY(charge(1));
      return expression.filter(*this, base, arguments);
    }
    default: {
      WP_TRY(const Arguments arguments, evaluate_arguments(expression, scope));
      WP_TRY(charge(1));
      WP_TRY(const bool holds, expression.test(*this, base, arguments));
      return Value::boolean(holds != expression.negated);
    }
  }
}

Result<Value> Interpreter::evaluate_name(const Expression& expression, Scope& scope) {
  if (const Value* found = scope.find(expression.symbol)) return *found;
  const Value& builtin = builtins_[expression.symbol];
  if (!builtin.is(Kind::undefined)) return builtin;
  return Value::undefined(cat("'", expression.text, "' is undefined"));
}

Result<std::vector<Value>> Interpreter::evaluate_parts(const Expression& expression, Scope& scope) {
  std::vector<Value> out;
  for (const ExpressionPtr& part : expression.parts) {
    WP_TRY(Value value, evaluate(*part, scope));
    out.push_back(std::move(value));
  }
  return out;
}

Result<Value> Interpreter::evaluate_literal_dict(const Expression& expression, Scope& scope) {
  WP_TRY(std::vector<Value> parts, evaluate_parts(expression, scope));
  const Value out = make_dict();
  for (size_t i = 0; i < parts.size(); i += 2)
    if (!out.as_dict().set(parts[i], std::move(parts[i + 1])))
      return fail(cat("expected a key that can be hashed, found ", kind_name(parts[i])));
  return out;
}

Result<Value> Interpreter::evaluate_compare(const Expression& expression, Scope& scope) {
  WP_TRY(Value left, evaluate(*expression.parts[0], scope));
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    WP_TRY(Value right, evaluate(*expression.parts[i + 1], scope));
    const std::string& op = expression.operators[i];
    bool holds = false;
    if (op == "==" || op == "!=") {
      WP_TRY(const bool equal, equals(left, right));
      holds = equal == (op == "==");
    } else if (op == "in" || op == "not in") {
      WP_TRY(const bool inside, contains(right, left));
      holds = inside == (op == "in");
    } else {
      WP_TRY(const int order, compare(left, right));
      holds = op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
    }
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::evaluate_chain(const Expression& expression, Scope& scope) {
  WP_TRY(Value left, evaluate(*expression.parts[0], scope));
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    WP_TRY(const Value right, evaluate(*expression.parts[i + 1], scope));
    WP_TRY(left, arithmetic(expression.operators[i], left, right));
  }
  return left;
}

Result<Arguments> Interpreter::evaluate_arguments(const Expression& expression, Scope& scope) {
  Arguments out;
  for (const Argument& argument : expression.arguments) {
    WP_TRY(Value value, evaluate(*argument.value, scope));
    if (argument.name.empty()) out.positional.push_back(std::move(value));
    else out.named.emplace_back(argument.name, std::move(value));
  }
  return out;
}

Result<Value> Interpreter::evaluate_call(const Expression& expression, Scope& scope) {
  WP_TRY(const Value callee, evaluate(*expression.parts[0], scope));
  WP_TRY(const Arguments arguments, evaluate_arguments(expression, scope));
  WP_TRY(charge(1));
  return call(callee, arguments);
}

Result<Value> Interpreter::call(const Value& callee, const Arguments& arguments) {
  switch (callee.kind()) {
    case Kind::macro: return call_macro(callee.as_macro(), arguments);
    case Kind::function: return call_function(callee.as_function(), arguments);
    case Kind::method: {
      const Method& method = callee.as_method();
      return call_method(*this, method.receiver, method.name, arguments);
    }
    case Kind::undefined: return fail(callee.what_is_undefined());
    default: return fail(cat("expected something to call, found ", kind_name(callee)));
  }
}

Result<Value> Interpreter::call_function(Function function, const Arguments& arguments) {
  if (function == Function::dict || function == Function::name_space) {
    heap_.dicts.emplace_back();
    const Value out(&heap_.dicts.back(), function == Function::dict ? Kind::dict : Kind::name_space);
    if (arguments.positional.size() > 1) return fail("dict: expected at most one argument without a name, found more");
    if (!arguments.positional.empty()) {
      const Value& from = arguments.positional[0];
      if (!from.is(Kind::dict)) return fail(cat("dict: expected a dict to copy, found ", kind_name(from)));
      WP_TRY(charge(static_cast<int64_t>(from.as_dict().items.size())));
      for (const auto& [key, value] : from.as_dict().items) out.as_dict().set(key, value);
    }
    for (const auto& [name, value] : arguments.named) {
      WP_TRY(const Value key, make_string(name));
      out.as_dict().set(key, value);
    }
    return out;
  }
  if (function == Function::raise_exception) {
    WP_TRY(const Bound bound, Bound::bind("raise_exception", arguments, {"message"}));
    WP_TRY(bound.require(1));
    WP_TRY(const std::string message, text_of(*bound.find(0)));
    raised_ = true;
    return fail(message);
  }
  if (function == Function::strftime_now) {
    WP_TRY(const Bound bound, Bound::bind("strftime_now", arguments, {"format"}));
    WP_TRY(bound.require(1));
    WP_TRY(const std::string format, bound.string(0, ""));
    if (format.size() > 256) return fail(cat("strftime_now: expected at most 256 bytes, found ", format.size()));
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    localtime_r(&now, &parts);
    char buffer[4096];
    const size_t length = std::strftime(buffer, sizeof buffer, format.c_str(), &parts);
    return make_string(std::string(buffer, length));
  }
  int64_t bounds[3] = {0, 0, 1};
  const size_t count = arguments.positional.size();
  if (!arguments.named.empty() || count < 1 || count > 3) return fail("range: expected one to three integers");
  for (size_t i = 0; i < count; ++i) {
    const Value& value = arguments.positional[i];
    if (!value.is_whole()) return fail(cat("range: expected integers, found ", kind_name(value)));
    const Integer limit = Integer{1} << 62;
    if (value.as_integer() > limit || value.as_integer() < -limit) return fail("range: expected integers below 2^62");
    bounds[count == 1 ? 1 : i] = static_cast<int64_t>(value.as_integer());
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) return fail("range: expected a step other than 0, found 0");
  const Integer span = step > 0 ? Integer{end} - begin : Integer{begin} - end;
  const Integer magnitude = step > 0 ? Integer{step} : -Integer{step};
  const Integer length = span <= 0 ? 0 : (span + magnitude - 1) / magnitude;
  if (length > kRangeMax) return fail(cat("range: expected at most ", kRangeMax, " items, found more"));
  std::vector<Value> items;
  for (int64_t i = 0; i < static_cast<int64_t>(length); ++i) items.push_back(Value::integer(begin + Integer{i} * step));
  return make_list(std::move(items));
}

Result<Value> Interpreter::loop_attribute(const Loop& loop, const std::string& name) {
  const auto count = static_cast<int64_t>(loop.items.size()), index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(count - index);
  if (name == "revindex0") return Value::integer(count - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == count);
  if (name == "length") return Value::integer(count);
  if (name == "depth") return Value::integer(1);  // No loop is recursive.
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem")
    return index > 0 && index <= count ? loop.items[index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem") return index + 1 < count ? loop.items[index + 1] : Value::undefined("there is no next item");
  if (name == "changed") return fail("loop.changed is not implemented");
  return Value::undefined(cat("'loop' has no attribute '", name, "'"));
}

Result<Value> Interpreter::attribute(const Value& value, const std::string& name) {
  if (value.is(Kind::undefined)) return fail(value.what_is_undefined());
  // Python's insides: no way from a value to the objects of a host, even if there were any.
  if (name.starts_with("__"))
    return fail(cat("access to attribute '", name, "' of '", kind_name(value), "' is not allowed"));
  if (value.is(Kind::loop) && name != "cycle") return loop_attribute(value.as_loop(), name);
  if (value.is(Kind::name_space)) {
    if (const Value* found = value.as_dict().find(name)) return *found;
  } else {
    if (is_forbidden_method(value, name))
      return fail(cat("access to attribute '", name, "' of '", kind_name(value), "' is not allowed"));
    if (has_method(value, name)) {
      heap_.methods.push_back({value, name});
      return Value(&heap_.methods.back());
    }
    if (value.is(Kind::dict))
      if (const Value* found = value.as_dict().find(name)) return *found;
  }
  return Value::undefined(cat("'", kind_name(value), "' has no attribute '", name, "'"));
}

Result<Value> Interpreter::item(const Value& value, const Value& key) {
  if (value.is(Kind::undefined)) return fail(value.what_is_undefined());
  if (value.is(Kind::dict)) {
    if (const Value* found = value.as_dict().find(key)) return *found;
  } else if (key.is_whole() && (value.is(Kind::list) || value.is(Kind::string))) {
    std::vector<std::string_view> characters;
    if (value.is(Kind::string)) {
      WP_TRY(charge_bytes(value.as_string().size()));
      characters = characters_of(value.as_string());
    }
    const auto count = static_cast<int64_t>(value.is(Kind::list) ? value.as_list().items.size() : characters.size());
    const Integer index = key.as_integer() < 0 ? key.as_integer() + count : key.as_integer();
    if (index >= 0 && index < count) {
      const auto at = static_cast<size_t>(index);
      if (value.is(Kind::list)) return value.as_list().items[at];
      return make_string(std::string(characters[at]));
    }
    return Value::undefined(cat("'", kind_name(value), "' has no element ", static_cast<int64_t>(key.as_integer())));
  }
  if (key.is(Kind::string)) return attribute(value, key.as_string());
  return Value::undefined(cat("'", kind_name(value), "' has no such element"));
}

}  // namespace wp::jinja
