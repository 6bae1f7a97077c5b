// Runs a Program over the variables of one rendering. Every step, byte and level is counted; what goes beyond the
// limits is an error. One rendering, one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/chat_template.h"
#include "text/jinja/ast.h"

namespace wp::jinja {

class Interpreter {
 public:
  Interpreter(const Program& program, const TemplateLimits& limits) : program_(program), limits_(limits) {}

  Result<std::string> run(const Json& variables);

  // --- For filters, tests and methods. ---
  // Pays for work of `units`; an error once nothing is left.
  Result<void> charge(int64_t units);
  Result<void> charge_bytes(size_t bytes) { return charge(1 + static_cast<int64_t>(bytes / 512)); }
  Result<Value> make_string(std::string text);
  Result<Value> make_list(std::vector<Value> items, bool is_tuple = false);
  Value make_dict();  // Empty; fill by as_dict().set().
  Error fail(std::string_view what) const { return {ErrorCode::bad_request, std::string(what)}; }

  bool truth(const Value& value) const;
  Result<std::string> text_of(const Value& value);  // str(): what printing gives.
  Result<std::string> json_of(const Value& value, const struct JsonStyle& style);
  Result<bool> equals(const Value& a, const Value& b);
  Result<int> compare(const Value& a, const Value& b);  // Below, equal, above: -1, 0, 1.
  Result<bool> contains(const Value& container, const Value& item);
  // The items of a list, the keys of a dict, the characters of a string; nothing of undefined.
  Result<std::vector<Value>> iterate(const Value& value);
  Result<Value> length(const Value& value);
  Result<Value> attribute(const Value& value, const std::string& name);  // value.name
  Result<Value> item(const Value& value, const Value& key);              // value[key]
  // "a.b.0", as filters take it. `otherwise`, if any, stands in for each part that is undefined.
  Result<Value> path(const Value& value, const Value& attribute_path, const Value* otherwise = nullptr);
  Result<Value> arithmetic(const std::string& op, const Value& a, const Value& b);

 private:
  enum class Flow { normal, break_loop, continue_loop };
  // Counts how deep the evaluation stands.
  class Level {
   public:
    explicit Level(Interpreter& owner) : owner_(owner) { ++owner_.depth_; }
    ~Level() { --owner_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Result<void> check() const;

   private:
    Interpreter& owner_;
  };

  Result<void> check_steps() const;
  Result<Value> from_json(const Json& json, int depth);
  Result<void> append(std::string& out, std::string_view text);
  Result<void> append_repr(std::string& out, const Value& value, int depth);
  Result<void> append_json(std::string& out, const Value& value, const JsonStyle& style, int depth);
  Result<void> append_json_items(std::string& out, const Value& value, const JsonStyle& style, int depth);

  Result<Flow> run_block(const Block& block, Scope& scope, std::string& out);
  Result<Flow> run_statement(const Statement& statement, Scope& scope, std::string& out);
  Result<Flow> run_branch(const Statement& statement, Scope& scope, std::string& out);
  Result<Flow> run_iterations(const Statement& statement, Loop& loop, Scope& scope, std::string& out);
  Result<Flow> run_loop(const Statement& statement, Scope& scope, std::string& out);
  Result<std::vector<Value>> loop_items(const Statement& statement, Scope& scope);
  Result<void> run_set(const Statement& statement, Scope& scope);
  Result<void> run_with(const Statement& statement, Scope& scope, std::string& out);
  Result<std::string> run_captured(const Statement& statement, Scope& scope);
  Result<void> assign(const Target& target, Value value, Scope& scope);
  void define_macro(const Statement& statement, Scope& scope);
  void keep_if_captured(std::unique_ptr<Scope> scope);

  Result<Value> evaluate(const Expression& expression, Scope& scope);
  Result<Value> evaluate_operator(const Expression& expression, Scope& scope);
  Result<Value> evaluate_access(const Expression& expression, Scope& scope);
  Result<Value> evaluate_name(const Expression& expression, Scope& scope);
  Result<Value> evaluate_literal_dict(const Expression& expression, Scope& scope);
  Result<Value> evaluate_compare(const Expression& expression, Scope& scope);
  Result<Value> evaluate_chain(const Expression& expression, Scope& scope);
  Result<Value> evaluate_slice(const Expression& expression, Scope& scope);
  Result<Value> evaluate_call(const Expression& expression, Scope& scope);
  Result<Arguments> evaluate_arguments(const Expression& expression, Scope& scope);
  Result<std::vector<Value>> evaluate_parts(const Expression& expression, Scope& scope);
  Result<Value> call(const Value& callee, const Arguments& arguments);
  Result<Value> call_macro(const MacroValue& macro, const Arguments& arguments);
  Result<Value> call_function(Function function, const Arguments& arguments);
  Result<Value> loop_attribute(const Loop& loop, const std::string& name);

  const Program& program_;
  const TemplateLimits limits_;
  int64_t eighths_ = 0;  // Of steps: a statement is a step, a node of an expression an eighth.
  int depth_ = 0;
  bool raised_ = false;     // By the template itself: its words are the whole message.
  int64_t live_bytes_ = 0;  // Of strings made while rendering. Declared before the values that count in it.
  Heap heap_;
  std::vector<Value> builtins_;  // By symbol; undefined where it is none.
};

struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;  // Of one level.
  std::string item_separator = ", ", key_separator = ": ";
};

// Arguments by position or by name, as a filter declares them. Absent ones are null.
class Bound {
 public:
  static Result<Bound> bind(std::string_view what, const Arguments& arguments, std::vector<std::string_view> names);

  const Value* find(size_t index) const { return values_[index]; }
  Result<int64_t> integer(size_t index, int64_t otherwise) const;
  Result<std::string> string(size_t index, std::string_view otherwise) const;
  Result<void> require(size_t count) const;  // The first `count` must be there.

 private:
  std::string what_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

// A method of str, list, dict or namespace.
bool has_method(const Value& receiver, std::string_view name);
bool is_forbidden_method(const Value& receiver, std::string_view name);  // It would change what it is called on.
Result<Value> call_method(Interpreter& interpreter, const Value& receiver, const std::string& name,
                          const Arguments& arguments);
// Where a Python index or slice bound lands in `count` items.
Result<Value> slice_of(Interpreter& interpreter, const Value& value, const Value* begin, const Value* end,
                       const Value* step);

}  // namespace wp::jinja
