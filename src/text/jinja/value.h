// Values of a template: what Python's would be, without its objects. A Value is copied freely; strings are counted and
// immutable, containers belong to the Heap of one rendering (so that a list may hold itself without leaking). One
// rendering, one thread; values of a parsed template (literals) are shared by all and never written.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace wp::jinja {

using Integer = __int128;  // Holds every integer that JSON text may carry; what goes beyond is an error.

struct List;
struct Dict;
struct Loop;
struct Method;
struct MacroValue;
struct Statement;
struct Scope;

// Text of a string value. `live_bytes` counts what one rendering holds, so that it can be limited.
struct Text {
  explicit Text(std::string value, int64_t* live = nullptr) : text(std::move(value)), live_bytes(live) {
    if (live_bytes) *live_bytes += static_cast<int64_t>(text.size());
  }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  ~Text() {
    if (live_bytes) *live_bytes -= static_cast<int64_t>(text.size());
  }
  const std::string text;
  int64_t* const live_bytes;
};

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  dict,
  name_space,
  loop,
  macro,
  function,
  method
};

enum class Function : uint8_t { range, dict, name_space, raise_exception, strftime_now };

class Value {
 public:
  Value() = default;
  static Value none() { return Value(Kind::none); }
  static Value boolean(bool value) {
    Value out(Kind::boolean);
    out.data_.boolean = value;
    return out;
  }
  static Value integer(Integer value) {
    Value out(Kind::integer);
    out.data_.integer = value;
    return out;
  }
  static Value real(double value) {
    Value out(Kind::real);
    out.data_.real = value;
    return out;
  }
  static Value string(std::shared_ptr<const Text> text) {
    Value out(Kind::string);
    out.text_ = std::move(text);
    return out;
  }
  // `what` says in an error what it was that is not defined.
  static Value undefined(std::string what) {
    Value out;
    out.text_ = std::make_shared<Text>(std::move(what));
    return out;
  }
  static Value function(Function value) {
    Value out(Kind::function);
    out.data_.function = value;
    return out;
  }
  explicit Value(List* list) : kind_(Kind::list) { data_.list = list; }
  explicit Value(Dict* dict, Kind kind = Kind::dict) : kind_(kind) { data_.dict = dict; }
  explicit Value(Loop* loop) : kind_(Kind::loop) { data_.loop = loop; }
  explicit Value(MacroValue* macro) : kind_(Kind::macro) { data_.macro = macro; }
  explicit Value(Method* method) : kind_(Kind::method) { data_.method = method; }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return is(Kind::integer) || is(Kind::real) || is(Kind::boolean); }
  bool is_whole() const { return is(Kind::integer) || is(Kind::boolean); }  // True is 1, as in Python.

  bool as_boolean() const { return data_.boolean; }
  Integer as_integer() const { return is(Kind::boolean) ? Integer{data_.boolean} : data_.integer; }
  double as_real() const { return is(Kind::real) ? data_.real : static_cast<double>(as_integer()); }
  const std::string& as_string() const { return text_->text; }
  List& as_list() const { return *data_.list; }
  Dict& as_dict() const { return *data_.dict; }
  Loop& as_loop() const { return *data_.loop; }
  MacroValue& as_macro() const { return *data_.macro; }
  Method& as_method() const { return *data_.method; }
  Function as_function() const { return data_.function; }
  std::string what_is_undefined() const { return text_ ? text_->text : "a value is undefined"; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::undefined;
  union {
    bool boolean;
    Integer integer;
    double real;
    List* list;
    Dict* dict;
    Loop* loop;
    MacroValue* macro;
    Method* method;
    Function function;
  } data_ = {};
  std::shared_ptr<const Text> text_;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
};

// Keeps the order of insertion. Keys are strings, numbers or none; True and 1 are one key, as in Python.
struct Dict {
  std::vector<std::pair<Value, Value>> items;

  // Null where absent, or where the key is of a kind that no dict holds.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // False where the key is of a kind that no dict holds.
  bool set(const Value& key, Value value);

 private:
  static bool encode(const Value& key, std::string& out);
  size_t find_encoded(const std::string& key) const;

  std::unordered_map<std::string, size_t> index_;
};

// What `loop` is inside a for.
struct Loop {
  std::vector<Value> items;
  size_t index = 0;
};

struct MacroValue {
  const Statement* definition = nullptr;
  Scope* scope = nullptr;  // Where it was defined.
};

// A method that was named and not yet called.
struct Method {
  Value receiver;
  std::string name;
};

// Names of one block. A child sees its parent's; what it sets stays in it.
struct Scope {
  explicit Scope(Scope* parent_scope) : parent(parent_scope) {}
  Scope* parent;
  bool captured = false;  // A macro defined inside keeps it.
  std::vector<std::pair<int, Value>> names;

  Value* find_here(int symbol);
  const Value* find(int symbol) const;
  void set(int symbol, Value value);
};

// Owns the containers of one rendering.
struct Heap {
  std::deque<List> lists;
  std::deque<Dict> dicts;
  std::deque<Loop> loops;
  std::deque<MacroValue> macros;
  std::deque<Method> methods;
  std::deque<std::unique_ptr<Scope>> scopes;
};

std::string_view kind_name(const Value& value);  // As Python names the type: str, int, list.

}  // namespace wp::jinja
