// The filters of templates. What Jinja gives as a generator is a list here.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_set>

#include "text/jinja/interpreter.h"
#include "text/jinja/python_text.h"

namespace wp::jinja {
namespace {

using In = Interpreter&;
using Values = std::vector<Value>;

Result<std::string> soft_text(In in, const Value& value) {
  WP_TRY(std::string text, in.text_of(value));
  WP_TRY(in.charge_bytes(text.size()));
  return text;
}

template <std::string (*kChange)(std::string_view)>
Result<Value> change_text(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(Bound::bind("filter", arguments, {}));
  WP_TRY(const std::string text, soft_text(in, input));
  return in.make_string(kChange(text));
}

std::string unchanged(std::string_view text) { return std::string(text); }

Result<Value> trim(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("trim", arguments, {"chars"}));
  WP_TRY(const std::string text, soft_text(in, input));
  if (!bound.find(0) || bound.find(0)->is(Kind::none))
    return in.make_string(std::string(python_strip_left(python_strip_right(text))));
  WP_TRY(const std::string characters, bound.string(0, ""));
  return in.make_string(std::string(strip_characters(text, characters, true, true)));
}

Result<Value> default_filter(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("default", arguments, {"default_value", "boolean"}));
  const bool any_false = bound.find(1) && in.truth(*bound.find(1));
  if (!input.is(Kind::undefined) && !(any_false && !in.truth(input))) return input;
  if (bound.find(0)) return *bound.find(0);
  return in.make_string("");
}

Result<Value> length(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(Bound::bind("length", arguments, {}));
  return in.length(input);
}

Result<Value> pairs_of(In in, const Dict& dict) {
  WP_TRY(in.charge(static_cast<int64_t>(dict.items.size())));
  Values out;
  for (const auto& [key, value] : dict.items) {
    WP_TRY(Value pair, in.make_list({key, value}, true));
    out.push_back(std::move(pair));
  }
  return in.make_list(std::move(out));
}

Result<Value> items(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(Bound::bind("items", arguments, {}));
  if (input.is(Kind::undefined)) return in.make_list({});
  if (!input.is(Kind::dict)) return in.fail(cat("items: expected a mapping, found ", kind_name(input)));
  return pairs_of(in, input.as_dict());
}

Result<Value> tojson(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ascii_only = bound.find(0) && in.truth(*bound.find(0));
  style.sort_keys = bound.find(3) && in.truth(*bound.find(3));
  if (const Value* indent = bound.find(1); indent && !indent->is(Kind::none)) {
    style.has_indent = true;
    style.item_separator = ",";
    if (indent->is(Kind::string)) {
      style.indent = indent->as_string();
    } else {
      WP_TRY(const int64_t width, bound.integer(1, 0));
      if (width > 64) return in.fail(cat("tojson: expected an indent of at most 64, found ", width));
      style.indent = std::string(std::max<int64_t>(0, width), ' ');
    }
  }
  if (const Value* separators = bound.find(2); separators && !separators->is(Kind::none)) {
    WP_TRY(const Values parts, in.iterate(*separators));
    if (parts.size() != 2 || !parts[0].is(Kind::string) || !parts[1].is(Kind::string))
      return in.fail("tojson: expected two strings as separators, found something else");
    style.item_separator = parts[0].as_string();
    style.key_separator = parts[1].as_string();
  }
  WP_TRY(std::string text, in.json_of(input, style));
  return in.make_string(std::move(text));
}

// Items by an attribute where one is named.
Result<Values> items_by(In in, const Value& input, const Value* attribute) {
  WP_TRY(Values out, in.iterate(input));
  if (!attribute || attribute->is(Kind::none)) return out;
  for (Value& item : out) {
    WP_TRY(item, in.path(item, *attribute));
  }
  return out;
}

Result<Value> join(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("join", arguments, {"d", "attribute"}));
  std::string separator;
  if (bound.find(0)) {
    WP_TRY(separator, in.text_of(*bound.find(0)));
  }
  WP_TRY(const Values parts, items_by(in, input, bound.find(1)));
  std::string out;
  for (const Value& part : parts) {
    WP_TRY(const std::string text, in.text_of(part));
    WP_TRY(in.charge_bytes(text.size() + separator.size()));
    if (&part != &parts.front()) out += separator;
    out += text;
  }
  return in.make_string(std::move(out));
}

Result<Value> first(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(Bound::bind("first", arguments, {}));
  WP_TRY(const Values values, in.iterate(input));
  return values.empty() ? Value::undefined("no first item, the sequence was empty") : values.front();
}

Result<Value> last(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(Bound::bind("last", arguments, {}));
  WP_TRY(const Values values, in.iterate(input));
  return values.empty() ? Value::undefined("no last item, the sequence was empty") : values.back();
}

Result<Value> list(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(Bound::bind("list", arguments, {}));
  WP_TRY(Values values, in.iterate(input));
  return in.make_list(std::move(values));
}

Result<Value> reverse(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(Bound::bind("reverse", arguments, {}));
  const Value step = Value::integer(-1);
  if (input.is(Kind::string)) return slice_of(in, input, nullptr, nullptr, &step);
  WP_TRY(Values values, in.iterate(input));
  std::reverse(values.begin(), values.end());
  return in.make_list(std::move(values));
}

Result<Value> replace_filter(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("replace", arguments, {"old", "new", "count"}));
  WP_TRY(bound.require(2));
  WP_TRY(const std::string text, soft_text(in, input));
  WP_TRY(const std::string from, in.text_of(*bound.find(0)));
  WP_TRY(const std::string to, in.text_of(*bound.find(1)));
  WP_TRY(const int64_t count, bound.integer(2, -1));
  // What it may grow to is paid for first.
  WP_TRY(in.charge_bytes(text.size() / std::max<size_t>(1, from.size()) * to.size()));
  return in.make_string(replace(text, from, to, count));
}

// map, select, reject and their attribute forms: a filter or test by name over items.
Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments out = arguments;
  out.positional.erase(out.positional.begin(), out.positional.begin() + count);
  return out;
}

Result<Value> map(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(Values values, in.iterate(input));
  if (arguments.positional.empty()) {
    WP_TRY(const Bound bound, Bound::bind("map", arguments, {"attribute", "default"}));
    WP_TRY(bound.require(1));
    for (Value& value : values) {
      WP_TRY(value, in.path(value, *bound.find(0), bound.find(1)));
    }
    return in.make_list(std::move(values));
  }
  const Value& name = arguments.positional[0];
  const Filter filter = name.is(Kind::string) ? find_filter(name.as_string()) : nullptr;
  if (!filter)
    return in.fail(cat("map: the filter ", name.is(Kind::string) ? name.as_string() : "?", " is not implemented"));
  const Arguments rest = without_first(arguments, 1);
  for (Value& value : values) {
    WP_TRY(in.charge(1));
    WP_TRY(value, filter(in, value, rest));
  }
  return in.make_list(std::move(values));
}

Result<Value> choose(In in, const Value& input, const Arguments& arguments, bool by_attribute, bool wanted) {
  const size_t test_at = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty()) return in.fail("selectattr: expected an attribute, found none");
  Test test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > test_at) {
    const Value& name = arguments.positional[test_at];
    test = name.is(Kind::string) ? find_test(name.as_string()) : nullptr;
    if (!test)
      return in.fail(cat("select: the test ", name.is(Kind::string) ? name.as_string() : "?", " is not implemented"));
    rest = without_first(arguments, test_at + 1);
  }
  WP_TRY(const Values values, in.iterate(input));
  Values chosen;
  for (const Value& value : values) {
    WP_TRY(in.charge(1));
    Value tested = value;
    if (by_attribute) {
      WP_TRY(tested, in.path(value, arguments.positional[0]));
    }
    bool holds = in.truth(tested);
    if (test) {
      WP_TRY(holds, test(in, tested, rest));
    }
    if (holds == wanted) chosen.push_back(value);
  }
  return in.make_list(std::move(chosen));
}

template <bool kByAttribute, bool kWanted>
Result<Value> choose_filter(In in, const Value& input, const Arguments& arguments) {
  return choose(in, input, arguments, kByAttribute, kWanted);
}

// Strings compare without regard to case unless asked to.
Result<Value> folded(In in, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is(Kind::string)) return value;
  return in.make_string(lower(value.as_string()));
}

// The order of `keys`, as indices, stable.
Result<std::vector<size_t>> order_of(In in, const Values& keys, bool descending) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  Result<int> fault = 0;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!fault.ok()) return false;
    const auto result = in.compare(keys[descending ? b : a], keys[descending ? a : b]);
    if (!result.ok()) fault = result;
    return result.ok() && *result < 0;
  });
  if (!fault.ok()) return std::move(fault).error();
  return order;
}

Result<Value> sort(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  const bool case_sensitive = bound.find(1) && in.truth(*bound.find(1));
  WP_TRY(const Values values, in.iterate(input));
  WP_TRY(Values keys, items_by(in, input, bound.find(2)));
  for (Value& key : keys) {
    WP_TRY(key, folded(in, key, case_sensitive));
  }
  WP_TRY(const std::vector<size_t> order, order_of(in, keys, bound.find(0) && in.truth(*bound.find(0))));
  Values out;
  for (const size_t index : order) out.push_back(values[index]);
  return in.make_list(std::move(out));
}

Result<Value> dictsort(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  if (!input.is(Kind::dict)) return in.fail(cat("dictsort: expected a mapping, found ", kind_name(input)));
  WP_TRY(const std::string by, bound.string(1, "key"));
  if (by != "key" && by != "value") return in.fail(cat("dictsort: expected by key or value, found ", by));
  const bool case_sensitive = bound.find(0) && in.truth(*bound.find(0));
  WP_TRY(const Value pairs, pairs_of(in, input.as_dict()));
  Values keys;
  for (const auto& [name, value] : input.as_dict().items) {
    WP_TRY(Value key, folded(in, by == "key" ? name : value, case_sensitive));
    keys.push_back(std::move(key));
  }
  WP_TRY(const std::vector<size_t> order, order_of(in, keys, bound.find(2) && in.truth(*bound.find(2))));
  Values out;
  for (const size_t index : order) out.push_back(pairs.as_list().items[index]);
  return in.make_list(std::move(out));
}

Result<Value> unique(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("unique", arguments, {"case_sensitive", "attribute"}));
  WP_TRY(const Values values, in.iterate(input));
  WP_TRY(const Values keys, items_by(in, input, bound.find(1)));
  Dict seen;
  Values out;
  for (size_t i = 0; i < values.size(); ++i) {
    WP_TRY(const Value key, folded(in, keys[i], bound.find(0) && in.truth(*bound.find(0))));
    if (seen.find(key)) continue;
    if (!seen.set(key, Value::none())) return in.fail(cat("unique: expected items that hash, found ", kind_name(key)));
    out.push_back(values[i]);
  }
  return in.make_list(std::move(out));
}

template <bool kLargest>
Result<Value> extreme(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind(kLargest ? "max" : "min", arguments, {"case_sensitive", "attribute"}));
  WP_TRY(const Values values, in.iterate(input));
  WP_TRY(Values keys, items_by(in, input, bound.find(1)));
  size_t best = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    WP_TRY(keys[i], folded(in, keys[i], bound.find(0) && in.truth(*bound.find(0))));
    if (i == 0) continue;
    WP_TRY(const int order, in.compare(keys[i], keys[best]));
    if (kLargest ? order > 0 : order < 0) best = i;
  }
  return values.empty() ? Value::undefined("no items, the sequence was empty") : values[best];
}

Result<Value> sum(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("sum", arguments, {"attribute", "start"}));
  WP_TRY(const Values values, items_by(in, input, bound.find(0)));
  Value total = bound.find(1) ? *bound.find(1) : Value::integer(0);
  if (total.is(Kind::string)) return in.fail("sum: expected numbers or lists, found str");
  for (const Value& value : values) {
    WP_TRY(total, in.arithmetic("+", total, value));
  }
  return total;
}

// "12", " 1_0 " in the base, as Python's int() reads it.
bool parse_whole(std::string_view text, int base, Integer& out) {
  text = python_strip_left(python_strip_right(text));
  const bool negative = text.starts_with("-");
  if (negative || text.starts_with("+")) text = text.substr(1);
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] != '_' || i == 0 || i + 1 == text.size() || text[i - 1] == '_') digits += text[i];
  if (base == 16 && (digits.starts_with("0x") || digits.starts_with("0X"))) digits = digits.substr(2);
  uint64_t value = 0;
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (digits.empty() || fault != std::errc() || end != digits.data() + digits.size()) return false;
  out = negative ? -Integer{value} : Integer{value};
  return true;
}

bool parse_real(std::string_view text, double& out) {
  text = python_strip_left(python_strip_right(text));
  if (text.starts_with("+") && !text.starts_with("+-")) text = text.substr(1);
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), out);
  return !text.empty() && fault == std::errc() && end == text.data() + text.size();
}

Result<Value> to_whole(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("int", arguments, {"default", "base"}));
  const Value otherwise = bound.find(0) ? *bound.find(0) : Value::integer(0);
  WP_TRY(const int64_t base, bound.integer(1, 10));
  if (base < 2 || base > 36) return in.fail(cat("int: expected a base from 2 to 36, found ", base));
  double real = 0;
  if (input.is_whole()) return Value::integer(input.as_integer());
  if (input.is(Kind::real)) {
    real = input.as_real();
  } else if (input.is(Kind::string)) {
    Integer whole = 0;
    if (parse_whole(input.as_string(), static_cast<int>(base), whole)) return Value::integer(whole);
    if (!parse_real(input.as_string(), real)) return otherwise;
  } else {
    return otherwise;
  }
  if (!std::isfinite(real) || std::fabs(real) >= 1.8e19) return otherwise;
  return Value::integer(static_cast<Integer>(real));
}

Result<Value> to_real(In, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("float", arguments, {"default"}));
  if (input.is_number()) return Value::real(input.as_real());
  double real = 0;
  if (input.is(Kind::string) && parse_real(input.as_string(), real)) return Value::real(real);
  return bound.find(0) ? *bound.find(0) : Value::real(0);
}

Result<Value> absolute(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(Bound::bind("abs", arguments, {}));
  if (input.is(Kind::real)) return Value::real(std::fabs(input.as_real()));
  if (!input.is_whole()) return in.fail(cat("abs: expected a number, found ", kind_name(input)));
  return Value::integer(input.as_integer() < 0 ? -input.as_integer() : input.as_integer());
}

Result<Value> round_filter(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("round", arguments, {"precision", "method"}));
  WP_TRY(const int64_t precision, bound.integer(0, 0));
  WP_TRY(const std::string method, bound.string(1, "common"));
  if (!input.is_number()) return in.fail(cat("round: expected a number, found ", kind_name(input)));
  if (precision < 0 || precision > 20)
    return in.fail(cat("round: expected a precision from 0 to 20, found ", precision));
  const double value = input.as_real();
  if (method == "common") {
    if (input.is_whole()) return Value::integer(input.as_integer());
    // Printing rounds the exact value, halves to even, as Python's round() does.
    return Value::real(std::stod(fmt::format("{:.{}f}", value, precision)));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value::real(std::ceil(value * scale) / scale);
  if (method == "floor") return Value::real(std::floor(value * scale) / scale);
  return in.fail(cat("round: expected common, ceil or floor, found ", method));
}

Result<Value> indent(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("indent", arguments, {"width", "first", "blank"}));
  std::string margin(4, ' ');
  if (bound.find(0) && bound.find(0)->is(Kind::string)) {
    margin = bound.find(0)->as_string();
  } else {
    WP_TRY(const int64_t width, bound.integer(0, 4));
    if (width > 1000) return in.fail(cat("indent: expected a width of at most 1000, found ", width));
    margin = std::string(std::max<int64_t>(0, width), ' ');
  }
  const bool first_too = bound.find(1) && in.truth(*bound.find(1)),
             blank_too = bound.find(2) && in.truth(*bound.find(2));
  WP_TRY(const std::string text, soft_text(in, input));
  const std::string closed = text + "\n";  // So that a newline at the end gives a line of its own.
  const auto lines = split_lines(closed);
  WP_TRY(in.charge_bytes(lines.size() * margin.size()));
  std::string out = first_too ? margin : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += "\n";
    if (i > 0 && (blank_too || !lines[i].empty())) out += margin;
    out += lines[i];
  }
  return in.make_string(std::move(out));
}

struct Named {
  std::string_view name;
  Filter filter;
};

constexpr Named kFilters[] = {{"abs", absolute},
                              {"capitalize", change_text<capitalize>},
                              {"count", length},
                              {"d", default_filter},
                              {"default", default_filter},
                              {"dictsort", dictsort},
                              {"e", change_text<escape_html>},
                              {"escape", change_text<escape_html>},
                              {"first", first},
                              {"float", to_real},
                              {"indent", indent},
                              {"int", to_whole},
                              {"items", items},
                              {"join", join},
                              {"last", last},
                              {"length", length},
                              {"list", list},
                              {"lower", change_text<lower>},
                              {"map", map},
                              {"max", extreme<true>},
                              {"min", extreme<false>},
                              {"reject", choose_filter<false, false>},
                              {"rejectattr", choose_filter<true, false>},
                              {"replace", replace_filter},
                              {"reverse", reverse},
                              {"round", round_filter},
                              {"safe", change_text<unchanged>},
                              {"select", choose_filter<false, true>},
                              {"selectattr", choose_filter<true, true>},
                              {"sort", sort},
                              {"string", change_text<unchanged>},
                              {"sum", sum},
                              {"title", change_text<title_filter>},
                              {"tojson", tojson},
                              {"trim", trim},
                              {"unique", unique},
                              {"upper", change_text<upper>}};

}  // namespace

Filter find_filter(std::string_view name) {
  for (const Named& known : kFilters)
    if (known.name == name) return known.filter;
  return nullptr;
}

}  // namespace wp::jinja
