// Statements of a template, and the variables and limits of a rendering.
#include <algorithm>

#include "text/jinja/interpreter.h"

namespace wp::jinja {
namespace {

constexpr int kJsonDepthMax = 256;
// Levels of evaluation for each level that the template may nest: a macro that calls itself passes some at each call.
constexpr int kLevelsPerDepth = 4;

}  // namespace

Result<void> Interpreter::Level::check() const {
  const int levels_max = owner_.limits_.depth_max * kLevelsPerDepth;
  if (owner_.depth_ <= levels_max) return {};
  return owner_.fail(
      cat("expected at most ", levels_max, " levels of evaluation, found more (a macro that calls itself?)"));
}

Result<void> Interpreter::charge(int64_t units) {
  eighths_ += 8 * units;
  return check_steps();
}

Result<void> Interpreter::check_steps() const {
  if (eighths_ / 8 > limits_.steps_max) return fail(cat("expected at most ", limits_.steps_max, " steps, found more"));
  return {};
}

Result<Value> Interpreter::make_string(std::string text) {
  if (static_cast<int64_t>(text.size()) > limits_.output_bytes_max)
    return fail(cat("expected strings of at most ", limits_.output_bytes_max, " bytes, found ", text.size()));
  if (live_bytes_ > 2 * limits_.output_bytes_max)
    return fail(cat("expected at most ", 2 * limits_.output_bytes_max, " bytes of strings at once, found more"));
  WP_TRY(charge_bytes(text.size()));
  return Value::string(std::make_shared<Text>(std::move(text), &live_bytes_));
}

Result<Value> Interpreter::make_list(std::vector<Value> items, bool is_tuple) {
  WP_TRY(charge(1 + static_cast<int64_t>(items.size() / 4)));
  heap_.lists.push_back({std::move(items), is_tuple});
  return Value(&heap_.lists.back());
}

Value Interpreter::make_dict() {
  heap_.dicts.emplace_back();
  return Value(&heap_.dicts.back());
}

Result<Value> Interpreter::from_json(const Json& json, int depth) {
  if (depth > kJsonDepthMax) return fail(cat("variables: expected at most ", kJsonDepthMax, " levels, found more"));
  switch (json.type()) {
    case Json::value_t::boolean: return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer: return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned: return Value::integer(json.get<uint64_t>());
    case Json::value_t::number_float: return Value::real(json.get<double>());
    case Json::value_t::string: return Value::string(std::make_shared<Text>(json.get_ref<const std::string&>()));
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& part : json) {
        WP_TRY(Value value, from_json(part, depth + 1));
        items.push_back(std::move(value));
      }
      heap_.lists.push_back({std::move(items), false});
      return Value(&heap_.lists.back());
    }
    case Json::value_t::object: {
      const Value out = make_dict();
      for (const auto& [key, part] : json.items()) {
        WP_TRY(Value value, from_json(part, depth + 1));
        out.as_dict().set(Value::string(std::make_shared<Text>(key)), std::move(value));
      }
      return out;
    }
    default: return Value::none();
  }
}

Result<std::string> Interpreter::run(const Json& variables) {
  if (!variables.is_object()) return fail(cat("variables: expected an object, found ", variables.type_name()));
  Scope globals(nullptr);
  builtins_.resize(program_.symbols.size());
  for (size_t symbol = 0; symbol < program_.symbols.size(); ++symbol) {
    const std::string& name = program_.symbols[symbol];
    if (name == "range") builtins_[symbol] = Value::function(Function::range);
    if (name == "dict") builtins_[symbol] = Value::function(Function::dict);
    if (name == "namespace") builtins_[symbol] = Value::function(Function::name_space);
    if (name == "raise_exception") builtins_[symbol] = Value::function(Function::raise_exception);
    if (name == "strftime_now") builtins_[symbol] = Value::function(Function::strftime_now);
    const auto given = variables.find(name);
    if (given == variables.end()) continue;
    WP_TRY(Value value, from_json(*given, 0));
    globals.set(static_cast<int>(symbol), std::move(value));
  }
  Scope top(&globals);
  std::string out;
  WP_TRY(run_block(program_.body, top, out));
  return out;
}

Result<void> Interpreter::append(std::string& out, std::string_view text) {
  if (static_cast<int64_t>(out.size() + text.size()) > limits_.output_bytes_max)
    return fail(cat("expected at most ", limits_.output_bytes_max, " bytes of output, found more"));
  WP_TRY(charge(static_cast<int64_t>(text.size() / 512)));
  out += text;
  return {};
}

Result<Interpreter::Flow> Interpreter::run_block(const Block& block, Scope& scope, std::string& out) {
  const Level level(*this);
  WP_TRY(level.check());
  for (const auto& statement : block) {
    auto flow = run_statement(*statement, scope, out);
    if (!flow.ok()) {
      // The innermost statement knows the line; what the template raises stands as it is.
      const std::string& message = flow.error().message;
      if (raised_ || message.starts_with("chat template line ")) return flow;
      return std::move(flow).error().within(cat("chat template line ", statement->line));
    }
    if (*flow != Flow::normal) return *flow;
  }
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::run_statement(const Statement& statement, Scope& scope, std::string& out) {
  using Tag = Statement::Kind;
  WP_TRY(charge(1));
  switch (statement.kind) {
    case Tag::text: WP_TRY(append(out, statement.text)); break;
    case Tag::output: {
      WP_TRY(const Value value, evaluate(*statement.expression, scope));
      if (value.is(Kind::string)) {
        WP_TRY(append(out, value.as_string()));
      } else {
        WP_TRY(const std::string text, text_of(value));
        WP_TRY(append(out, text));
      }
      break;
    }
    case Tag::branch: return run_branch(statement, scope, out);
    case Tag::loop: return run_loop(statement, scope, out);
    case Tag::set: WP_TRY(run_set(statement, scope)); break;
    case Tag::set_block: {
      WP_TRY(std::string text, run_captured(statement, scope));
      WP_TRY(Value value, make_string(std::move(text)));
      WP_TRY(assign(statement.target, std::move(value), scope));
      break;
    }
    case Tag::macro: define_macro(statement, scope); break;
    case Tag::filter: {
      WP_TRY(const std::string text, run_captured(statement, scope));
      WP_TRY(append(out, text));
      break;
    }
    case Tag::with: WP_TRY(run_with(statement, scope, out)); break;
    case Tag::break_loop: return Flow::break_loop;
    case Tag::continue_loop: return Flow::continue_loop;
  }
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::run_branch(const Statement& statement, Scope& scope, std::string& out) {
  for (const Branch& branch : statement.branches) {
    WP_TRY(const Value condition, evaluate(*branch.condition, scope));
    if (truth(condition)) return run_block(branch.body, scope, out);
  }
  return run_block(statement.otherwise, scope, out);
}

// A scope that a macro was defined in lives as long as the rendering.
void Interpreter::keep_if_captured(std::unique_ptr<Scope> scope) {
  if (scope->captured) heap_.scopes.push_back(std::move(scope));
}

Result<std::vector<Value>> Interpreter::loop_items(const Statement& statement, Scope& scope) {
  WP_TRY(const Value source, evaluate(*statement.expression, scope));
  WP_TRY(std::vector<Value> items, iterate(source));
  if (!statement.condition) return items;
  std::vector<Value> chosen;
  for (Value& item : items) {
    Scope inner(&scope);
    WP_TRY(assign(statement.target, item, inner));
    WP_TRY(const Value condition, evaluate(*statement.condition, inner));
    if (truth(condition)) chosen.push_back(std::move(item));
  }
  return chosen;
}

Result<Interpreter::Flow> Interpreter::run_loop(const Statement& statement, Scope& scope, std::string& out) {
  WP_TRY(std::vector<Value> items, loop_items(statement, scope));
  if (items.empty()) {
    auto inner = std::make_unique<Scope>(&scope);
    auto flow = run_block(statement.otherwise, *inner, out);
    keep_if_captured(std::move(inner));
    return flow;
  }
  // On the heap, as a template may keep `loop`; its items go when it ends.
  heap_.loops.push_back({.items = std::move(items)});
  Loop& loop = heap_.loops.back();
  auto flow = run_iterations(statement, loop, scope, out);
  loop.items = {};
  return flow;
}

Result<Interpreter::Flow> Interpreter::run_iterations(const Statement& statement, Loop& loop, Scope& scope,
                                                      std::string& out) {
  for (; loop.index < loop.items.size(); ++loop.index) {
    WP_TRY(charge(1));
    auto inner = std::make_unique<Scope>(&scope);
    inner->set(kLoopSymbol, Value(&loop));
    WP_TRY(assign(statement.target, loop.items[loop.index], *inner));
    auto flow = run_block(statement.body, *inner, out);
    keep_if_captured(std::move(inner));
    if (!flow.ok()) return flow;
    if (*flow == Flow::break_loop) break;
  }
  return Flow::normal;
}

Result<void> Interpreter::assign(const Target& target, Value value, Scope& scope) {
  if (!target.several.empty()) {
    WP_TRY(std::vector<Value> items, iterate(value));
    if (items.size() != target.several.size())
      return fail(cat("expected ", target.several.size(), " values to unpack, found ", items.size()));
    for (size_t i = 0; i < items.size(); ++i) WP_TRY(assign(target.several[i], std::move(items[i]), scope));
    return {};
  }
  if (target.member.empty()) {
    scope.set(target.symbol, std::move(value));
    return {};
  }
  const Value* space = scope.find(target.symbol);
  if (!space || !space->is(Kind::name_space))
    return fail(cat(program_.symbols[target.symbol], ": expected a namespace to set ", target.member, " of, found ",
                    space ? kind_name(*space) : "undefined"));
  WP_TRY(const Value key, make_string(target.member));
  space->as_dict().set(key, std::move(value));
  return {};
}

Result<void> Interpreter::run_set(const Statement& statement, Scope& scope) {
  WP_TRY(Value value, evaluate(*statement.expression, scope));
  return assign(statement.target, std::move(value), scope);
}

Result<std::string> Interpreter::run_captured(const Statement& statement, Scope& scope) {
  auto inner = std::make_unique<Scope>(&scope);
  std::string text;
  auto flow = run_block(statement.body, *inner, text);
  Scope& body_scope = *inner;
  if (flow.ok() && statement.expression) {
    auto made = make_string(std::move(text));
    if (!made.ok()) return std::move(made).error();
    body_scope.set(kBodySymbol, std::move(made).value());
    auto filtered = evaluate(*statement.expression, body_scope);
    if (!filtered.ok()) return std::move(filtered).error();
    WP_TRY(text, text_of(*filtered));
  }
  keep_if_captured(std::move(inner));
  if (!flow.ok()) return std::move(flow).error();
  return text;
}

Result<void> Interpreter::run_with(const Statement& statement, Scope& scope, std::string& out) {
  auto inner = std::make_unique<Scope>(&scope);
  for (const auto& [target, expression] : statement.assignments) {
    WP_TRY(Value value, evaluate(*expression, scope));
    WP_TRY(assign(target, std::move(value), *inner));
  }
  auto flow = run_block(statement.body, *inner, out);
  keep_if_captured(std::move(inner));
  if (!flow.ok()) return std::move(flow).error();
  return {};
}

void Interpreter::define_macro(const Statement& statement, Scope& scope) {
  heap_.macros.push_back({&statement, &scope});
  for (Scope* at = &scope; at; at = at->parent) at->captured = true;
  scope.set(statement.target.symbol, Value(&heap_.macros.back()));
}

Result<Value> Interpreter::call_macro(const MacroValue& macro, const Arguments& arguments) {
  const Level level(*this);
  WP_TRY(level.check());
  const Statement& definition = *macro.definition;
  std::vector<std::string_view> names;
  for (const Parameter& parameter : definition.parameters) names.push_back(parameter.name);
  WP_TRY(const Bound bound, Bound::bind(definition.text, arguments, std::move(names)));
  auto inner = std::make_unique<Scope>(macro.scope);
  for (size_t i = 0; i < definition.parameters.size(); ++i) {
    const Parameter& parameter = definition.parameters[i];
    Value value = Value::undefined(cat("parameter '", parameter.name, "' was not provided"));
    if (const Value* given = bound.find(i)) {
      value = *given;
    } else if (parameter.otherwise) {
      WP_TRY(value, evaluate(*parameter.otherwise, *inner));
    }
    inner->set(parameter.symbol, std::move(value));
  }
  std::string out;
  auto flow = run_block(definition.body, *inner, out);
  keep_if_captured(std::move(inner));
  if (!flow.ok()) return std::move(flow).error();
  return make_string(std::move(out));
}

}  // namespace wp::jinja
