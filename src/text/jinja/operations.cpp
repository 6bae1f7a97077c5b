// What Python does with values: truth, order, membership, arithmetic, slices, text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/python_text.h"
#include "text/utf8.h"

namespace wp::jinja {
namespace {

constexpr int kPrintDepthMax = 256;
// Integers beyond this are an error; sums of two below it fit in 128 bits.
constexpr Integer kIntegerMax = Integer{1} << 100;

Value checked(Integer value, bool& fits) {
  fits = value <= kIntegerMax && value >= -kIntegerMax;
  return Value::integer(value);
}

Integer floor_divide(Integer a, Integer b) {
  const Integer quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double floor_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace

bool Interpreter::truth(const Value& value) const {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean: return value.as_boolean();
    case Kind::integer: return value.as_integer() != 0;
    case Kind::real: return value.as_real() != 0;
    case Kind::string: return !value.as_string().empty();
    case Kind::list: return !value.as_list().items.empty();
    case Kind::dict: return !value.as_dict().items.empty();
    default: return true;
  }
}

Result<std::string> Interpreter::text_of(const Value& value) {
  if (value.is(Kind::string)) return value.as_string();
  std::string out;
  if (!value.is(Kind::undefined)) WP_TRY(append_repr(out, value, 0));
  return out;
}

Result<void> Interpreter::append_repr(std::string& out, const Value& value, int depth) {
  if (depth > kPrintDepthMax) return fail(cat("expected at most ", kPrintDepthMax, " levels to print, found more"));
  ++eighths_;
  WP_TRY(check_steps());
  switch (value.kind()) {
    case Kind::undefined: return append(out, "Undefined");
    case Kind::none: return append(out, "None");
    case Kind::boolean: return append(out, value.as_boolean() ? "True" : "False");
    case Kind::integer: return append(out, fmt::format("{}", value.as_integer()));
    case Kind::real: return append(out, repr(value.as_real()));
    case Kind::string: return append(out, repr(value.as_string()));
    case Kind::list: {
      const List& list = value.as_list();
      WP_TRY(append(out, list.is_tuple ? "(" : "["));
      for (size_t i = 0; i < list.items.size(); ++i) {
        if (i > 0) WP_TRY(append(out, ", "));
        WP_TRY(append_repr(out, list.items[i], depth + 1));
      }
      return append(out, !list.is_tuple ? "]" : list.items.size() == 1 ? ",)" : ")");
    }
    case Kind::name_space: return append(out, "<Namespace>");
    case Kind::dict: {
      WP_TRY(append(out, "{"));
      bool first = true;
      for (const auto& [key, part] : value.as_dict().items) {
        if (!std::exchange(first, false)) WP_TRY(append(out, ", "));
        WP_TRY(append_repr(out, key, depth + 1));
        WP_TRY(append(out, ": "));
        WP_TRY(append_repr(out, part, depth + 1));
      }
      return append(out, "}");
    }
    default: return append(out, cat("<", kind_name(value), ">"));
  }
}

Result<std::string> Interpreter::json_of(const Value& value, const JsonStyle& style) {
  std::string out;
  WP_TRY(append_json(out, value, style, 0));
  return out;
}

Result<void> Interpreter::append_json(std::string& out, const Value& value, const JsonStyle& style, int depth) {
  if (depth > kPrintDepthMax) return fail(cat("tojson: expected at most ", kPrintDepthMax, " levels, found more"));
  ++eighths_;
  WP_TRY(check_steps());
  switch (value.kind()) {
    case Kind::none: return append(out, "null");
    case Kind::boolean: return append(out, value.as_boolean() ? "true" : "false");
    case Kind::real:
      if (std::isnan(value.as_real())) return append(out, "NaN");
      if (std::isinf(value.as_real())) return append(out, value.as_real() < 0 ? "-Infinity" : "Infinity");
      return append(out, repr(value.as_real()));
    case Kind::integer: return append_repr(out, value, depth);
    case Kind::string: {
      std::string quoted;
      append_json_string(quoted, value.as_string(), style.ascii_only);
      return append(out, quoted);
    }
    case Kind::list:
    case Kind::dict: return append_json_items(out, value, style, depth);
    default: return fail(cat("tojson: expected a value of JSON, found ", kind_name(value)));
  }
}

Result<void> Interpreter::append_json_items(std::string& out, const Value& value, const JsonStyle& style, int depth) {
  const bool is_dict = value.is(Kind::dict);
  std::vector<std::pair<Value, Value>> members;
  if (is_dict) members = value.as_dict().items;
  else
    for (const Value& item : value.as_list().items) members.emplace_back(Value(), item);
  if (members.empty()) return append(out, is_dict ? "{}" : "[]");
  WP_TRY(charge(static_cast<int64_t>(members.size() / 4)));
  for (auto& member : members) {
    if (!is_dict || member.first.is(Kind::string)) continue;
    WP_TRY(std::string name, json_of(member.first, style));  // {1: 2} is {"1": 2}.
    WP_TRY(member.first, make_string(std::move(name)));
  }
  if (is_dict && style.sort_keys)
    std::stable_sort(members.begin(), members.end(),
                     [](const auto& a, const auto& b) { return a.first.as_string() < b.first.as_string(); });
  const auto new_line = [&](int level) -> Result<void> {
    if (!style.has_indent) return {};
    WP_TRY(append(out, "\n"));
    for (int i = 0; i < level; ++i) WP_TRY(append(out, style.indent));
    return {};
  };
  WP_TRY(append(out, is_dict ? "{" : "["));
  for (size_t i = 0; i < members.size(); ++i) {
    if (i > 0) WP_TRY(append(out, style.item_separator));
    WP_TRY(new_line(depth + 1));
    if (is_dict) {
      WP_TRY(append_json(out, members[i].first, style, depth + 1));
      WP_TRY(append(out, style.key_separator));
    }
    WP_TRY(append_json(out, members[i].second, style, depth + 1));
  }
  WP_TRY(new_line(depth));
  return append(out, is_dict ? "}" : "]");
}

Result<bool> Interpreter::equals(const Value& a, const Value& b) {
  const Level level(*this);
  WP_TRY(level.check());
  ++eighths_;
  WP_TRY(check_steps());
  if (a.is_whole() && b.is_whole()) return a.as_integer() == b.as_integer();
  if (a.is_number() && b.is_number()) return a.as_real() == b.as_real();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string: return a.as_string() == b.as_string();
    case Kind::list: {
      const auto &left = a.as_list().items, &right = b.as_list().items;
      if (left.size() != right.size() || a.as_list().is_tuple != b.as_list().is_tuple) return false;
      for (size_t i = 0; i < left.size(); ++i) {
        WP_TRY(const bool equal, equals(left[i], right[i]));
        if (!equal) return false;
      }
      return true;
    }
    case Kind::dict: {
      if (a.as_dict().items.size() != b.as_dict().items.size()) return false;
      for (const auto& [key, value] : a.as_dict().items) {
        const Value* other = b.as_dict().find(key);
        if (!other) return false;
        WP_TRY(const bool equal, equals(value, *other));
        if (!equal) return false;
      }
      return true;
    }
    case Kind::name_space: return &a.as_dict() == &b.as_dict();
    case Kind::loop: return &a.as_loop() == &b.as_loop();
    case Kind::macro: return &a.as_macro() == &b.as_macro();
    case Kind::function: return a.as_function() == b.as_function();
    default: return false;
  }
}

Result<int> Interpreter::compare(const Value& a, const Value& b) {
  const Level level(*this);
  WP_TRY(level.check());
  ++eighths_;
  WP_TRY(check_steps());
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.is_whole() && b.is_whole()) return order(a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return order(a.as_real(), b.as_real());
  if (a.is(Kind::string) && b.is(Kind::string)) return order(a.as_string().compare(b.as_string()), 0);
  if (a.is(Kind::list) && b.is(Kind::list)) {
    const auto &left = a.as_list().items, &right = b.as_list().items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      WP_TRY(const bool equal, equals(left[i], right[i]));
      if (!equal) return compare(left[i], right[i]);
    }
    return order(left.size(), right.size());
  }
  for (const Value* value : {&a, &b})
    if (value->is(Kind::undefined)) return fail(value->what_is_undefined());
  return fail(cat("expected two values that have an order, found ", kind_name(a), " and ", kind_name(b)));
}

Result<bool> Interpreter::contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::undefined: return false;
    case Kind::string:
      if (!item.is(Kind::string)) return fail(cat("in: expected a string to look for, found ", kind_name(item)));
      WP_TRY(charge_bytes(container.as_string().size()));
      return container.as_string().find(item.as_string()) != std::string::npos;
    case Kind::dict: return container.as_dict().find(item) != nullptr;
    case Kind::list: {
      const std::vector<Value>& items = container.as_list().items;
      WP_TRY(charge(1 + static_cast<int64_t>(items.size() / 16)));
      for (const Value& member : items) {
        WP_TRY(const bool equal, equals(member, item));
        if (equal) return true;
      }
      return false;
    }
    default: return fail(cat("in: expected something to look in, found ", kind_name(container)));
  }
}

Result<std::vector<Value>> Interpreter::iterate(const Value& value) {
  std::vector<Value> out;
  switch (value.kind()) {
    case Kind::undefined: return out;
    case Kind::list:
      WP_TRY(charge(1 + static_cast<int64_t>(value.as_list().items.size() / 4)));
      return value.as_list().items;
    case Kind::dict:
      WP_TRY(charge(1 + static_cast<int64_t>(value.as_dict().items.size() / 4)));
      for (const auto& member : value.as_dict().items) out.push_back(member.first);
      return out;
    case Kind::string:
      WP_TRY(charge(1 + static_cast<int64_t>(value.as_string().size() / 4)));
      for (const std::string_view character : characters_of(value.as_string())) {
        WP_TRY(Value made, make_string(std::string(character)));
        out.push_back(std::move(made));
      }
      return out;
    default: return fail(cat("expected something to iterate over, found ", kind_name(value)));
  }
}

Result<Value> Interpreter::length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return Value::integer(0);
    case Kind::string:
      WP_TRY(charge_bytes(value.as_string().size()));
      return Value::integer(utf8_count(value.as_string()));
    case Kind::list: return Value::integer(static_cast<int64_t>(value.as_list().items.size()));
    case Kind::dict: return Value::integer(static_cast<int64_t>(value.as_dict().items.size()));
    case Kind::loop: return Value::integer(static_cast<int64_t>(value.as_loop().items.size()));
    default: return fail(cat("expected something that has a length, found ", kind_name(value)));
  }
}

Result<Value> Interpreter::path(const Value& value, const Value& attribute_path, const Value* otherwise) {
  if (attribute_path.is_whole()) return item(value, attribute_path);
  if (!attribute_path.is(Kind::string))
    return fail(cat("attribute: expected a name, found ", kind_name(attribute_path)));
  Value at = value;
  std::string_view rest = attribute_path.as_string();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string name(rest.substr(0, dot));
    const bool is_index =
        !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    WP_TRY(const Value key, make_string(name));
    WP_TRY(at, item(at, is_index ? Value::integer(std::stoll(name)) : key));
    if (otherwise && at.is(Kind::undefined)) at = *otherwise;
    if (dot == std::string_view::npos) return at;
    rest = rest.substr(dot + 1);
  }
}

namespace {

Result<Value> real_arithmetic(const Interpreter& interpreter, const std::string& op, double a, double b) {
  if (op == "+") return Value::real(a + b);
  if (op == "-") return Value::real(a - b);
  if (op == "*") return Value::real(a * b);
  if (op == "**") {
    const double power = std::pow(a, b);
    if (a < 0 && b != std::floor(b)) return interpreter.fail("**: expected a real result, found a complex one");
    if (a == 0 && b < 0) return interpreter.fail("**: expected a power of 0 that is not negative, found one");
    if (std::isinf(power) && std::isfinite(a) && std::isfinite(b))
      return interpreter.fail("**: the result is too large");
    return Value::real(power);
  }
  if (b == 0) return interpreter.fail(cat(op, ": expected a divisor other than 0, found 0"));
  if (op == "/") return Value::real(a / b);
  if (op == "//") return Value::real(std::floor(a / b));
  return Value::real(floor_modulo(a, b));
}

Result<Value> whole_arithmetic(const Interpreter& interpreter, const std::string& op, Integer a, Integer b) {
  bool fits = true;
  Value out;
  if (op == "+") out = checked(a + b, fits);
  else if (op == "-") out = checked(a - b, fits);
  else if (op == "*") {
    Integer product = 0;
    fits = !__builtin_mul_overflow(a, b, &product);
    if (fits) out = checked(product, fits);
  } else if (op == "**" && b >= 0) {
    Integer power = 1;
    for (Integer i = 0; i < b && fits && a != 1 && power != 0; ++i) {
      if (a == -1) {
        power = b % 2 == 0 ? 1 : -1;
        break;
      }
      fits = !__builtin_mul_overflow(power, a, &power);
      if (fits) checked(power, fits);
    }
    out = Value::integer(power);
  } else if (op == "/" || op == "**") {
    return real_arithmetic(interpreter, op, static_cast<double>(a), static_cast<double>(b));
  } else {
    if (b == 0) return interpreter.fail(cat(op, ": expected a divisor other than 0, found 0"));
    const Integer quotient = floor_divide(a, b);
    out = Value::integer(op == "//" ? quotient : a - quotient * b);
  }
  if (!fits) return interpreter.fail(cat(op, ": expected an integer below 2^100, found a larger one"));
  return out;
}

}  // namespace

Result<Value> Interpreter::arithmetic(const std::string& op, const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return whole_arithmetic(*this, op, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return real_arithmetic(*this, op, a.as_real(), b.as_real());
  for (const Value* value : {&a, &b})
    if (value->is(Kind::undefined)) return fail(value->what_is_undefined());
  if (op == "+" && a.is(Kind::string) && b.is(Kind::string)) {
    std::string text;
    WP_TRY(append(text, a.as_string()));
    WP_TRY(append(text, b.as_string()));
    return make_string(std::move(text));
  }
  if (op == "+" && a.is(Kind::list) && b.is(Kind::list) && a.as_list().is_tuple == b.as_list().is_tuple) {
    const std::vector<Value>& more = b.as_list().items;
    WP_TRY(charge(static_cast<int64_t>((a.as_list().items.size() + more.size()) / 4)));
    std::vector<Value> items = a.as_list().items;
    items.insert(items.end(), more.begin(), more.end());
    return make_list(std::move(items), a.as_list().is_tuple);
  }
  if (op == "*" && (a.is_whole() || b.is_whole())) {
    const Value& repeated = a.is_whole() ? b : a;
    const Integer times = std::max<Integer>(0, a.is_whole() ? a.as_integer() : b.as_integer());
    const bool is_string = repeated.is(Kind::string);
    if (is_string || repeated.is(Kind::list)) {
      const Integer size = is_string ? repeated.as_string().size() : repeated.as_list().items.size();
      if (size > 0 && times > limits_.output_bytes_max / size)
        return fail(cat("*: expected at most ", limits_.output_bytes_max, " bytes, found more"));
      const auto total = static_cast<int64_t>(size * times);
      WP_TRY(charge(is_string ? total / 512 : total / 4));
      std::string text;
      std::vector<Value> items;
      for (int64_t i = size == 0 ? 0 : static_cast<int64_t>(times); i > 0; --i) {
        if (is_string) text += repeated.as_string();
        else items.insert(items.end(), repeated.as_list().items.begin(), repeated.as_list().items.end());
      }
      if (is_string) return make_string(std::move(text));
      return make_list(std::move(items), repeated.as_list().is_tuple);
    }
  }
  return fail(cat(op, ": expected operands that fit, found ", kind_name(a), " and ", kind_name(b)));
}

}  // namespace wp::jinja
