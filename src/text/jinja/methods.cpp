// Methods of strings, lists and dicts.
#include <unicode/uchar.h>

#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/python_text.h"
#include "text/utf8.h"

namespace wp::jinja {
namespace {

using In = Interpreter&;
using Values = std::vector<Value>;
using Method_ = Result<Value> (*)(In, const Value& self, const Arguments& arguments);

template <std::string (*kChange)(std::string_view)>
Result<Value> change(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(Bound::bind("method", arguments, {}));
  return in.make_string(kChange(self.as_string()));
}

template <bool kLeft, bool kRight>
Result<Value> strip(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("strip", arguments, {"chars"}));
  std::string_view text = self.as_string();
  WP_TRY(in.charge_bytes(text.size()));
  if (bound.find(0) && !bound.find(0)->is(Kind::none)) {
    WP_TRY(const std::string characters, bound.string(0, ""));
    return in.make_string(std::string(strip_characters(text, characters, kLeft, kRight)));
  }
  if (kLeft) text = python_strip_left(text);
  if (kRight) text = python_strip_right(text);
  return in.make_string(std::string(text));
}

template <bool kStart>
Result<Value> has_affix(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind(kStart ? "startswith" : "endswith", arguments, {"affix"}));
  WP_TRY(bound.require(1));
  const Value& given = *bound.find(0);
  Values affixes{given};
  if (given.is(Kind::list) && given.as_list().is_tuple) affixes = given.as_list().items;
  for (const Value& affix : affixes) {
    if (affix.is(Kind::undefined)) return in.fail(affix.what_is_undefined());
    if (!affix.is(Kind::string)) return in.fail(cat("startswith: expected a string, found ", kind_name(affix)));
    const std::string_view text = self.as_string();
    if (kStart ? text.starts_with(affix.as_string()) : text.ends_with(affix.as_string())) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool kPrefix>
Result<Value> remove_affix(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("removeprefix", arguments, {"affix"}));
  WP_TRY(bound.require(1));
  WP_TRY(const std::string affix, bound.string(0, ""));
  std::string_view text = self.as_string();
  if (kPrefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kPrefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return in.make_string(std::string(text));
}

Result<Value> list_of(In in, const std::vector<std::string_view>& parts) {
  Values out;
  for (const std::string_view part : parts) {
    WP_TRY(Value value, in.make_string(std::string(part)));
    out.push_back(std::move(value));
  }
  return in.make_list(std::move(out));
}

std::vector<std::string_view> split_spaces(std::string_view text, int64_t count) {
  std::vector<std::string_view> out;
  text = python_strip_left(text);
  while (!text.empty()) {
    if (count-- == 0) {
      out.push_back(python_strip_right(text));
      break;
    }
    size_t end = 0;
    while (end < text.size() && python_space_end(text, end) == end) end += utf8_step(text, end).length;
    out.push_back(text.substr(0, end));
    text = python_strip_left(text.substr(end));
  }
  return out;
}

Result<Value> split(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("split", arguments, {"sep", "maxsplit"}));
  WP_TRY(int64_t count, bound.integer(1, -1));
  WP_TRY(const std::string separator, bound.string(0, ""));
  std::string_view text = self.as_string();
  WP_TRY(in.charge_bytes(text.size()));
  if (!bound.find(0) || bound.find(0)->is(Kind::none)) return list_of(in, split_spaces(text, count));
  if (separator.empty()) return in.fail("split: expected a separator, found an empty one");
  std::vector<std::string_view> parts;
  for (size_t found; count != 0 && (found = text.find(separator)) != std::string_view::npos; --count) {
    parts.push_back(text.substr(0, found));
    text = text.substr(found + separator.size());
  }
  parts.push_back(text);
  return list_of(in, parts);
}

Result<Value> rsplit(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("rsplit", arguments, {"sep", "maxsplit"}));
  WP_TRY(bound.require(1));
  WP_TRY(int64_t count, bound.integer(1, -1));
  WP_TRY(const std::string separator, bound.string(0, ""));
  std::string_view text = self.as_string();
  WP_TRY(in.charge_bytes(text.size()));
  if (separator.empty()) return in.fail("rsplit: expected a separator, found an empty one");
  std::vector<std::string_view> parts;
  for (size_t found; count != 0 && (found = text.rfind(separator)) != std::string_view::npos; --count) {
    parts.push_back(text.substr(found + separator.size()));
    text = text.substr(0, found);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return list_of(in, parts);
}

Result<Value> splitlines(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(Bound::bind("splitlines", arguments, {}));
  WP_TRY(in.charge_bytes(self.as_string().size()));
  return list_of(in, split_lines(self.as_string()));
}

Result<Value> replace_method(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("replace", arguments, {"old", "new", "count"}));
  WP_TRY(bound.require(2));
  WP_TRY(const std::string from, bound.string(0, ""));
  WP_TRY(const std::string to, bound.string(1, ""));
  WP_TRY(const int64_t count, bound.integer(2, -1));
  WP_TRY(in.charge_bytes(self.as_string().size() / std::max<size_t>(1, from.size()) * to.size()));
  return in.make_string(replace(self.as_string(), from, to, count));
}

// find, rfind and index count characters.
template <bool kLast, bool kMustBeThere>
Result<Value> find_text(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("find", arguments, {"sub"}));
  WP_TRY(bound.require(1));
  WP_TRY(const std::string part, bound.string(0, ""));
  const std::string_view text = self.as_string();
  WP_TRY(in.charge_bytes(text.size()));
  const size_t found = kLast ? text.rfind(part) : text.find(part);
  if (found != std::string_view::npos) return Value::integer(utf8_count(text.substr(0, found)));
  if (kMustBeThere) return in.fail("index: expected the text to be there, found it absent");
  return Value::integer(-1);
}

Result<Value> count_text(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("count", arguments, {"sub"}));
  WP_TRY(bound.require(1));
  WP_TRY(const std::string part, bound.string(0, ""));
  const std::string_view text = self.as_string();
  WP_TRY(in.charge_bytes(text.size()));
  if (part.empty()) return Value::integer(utf8_count(text) + 1);
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return Value::integer(count);
}

Result<Value> join_method(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("join", arguments, {"parts"}));
  WP_TRY(bound.require(1));
  WP_TRY(const Values parts, in.iterate(*bound.find(0)));
  std::string out;
  for (const Value& part : parts) {
    if (!part.is(Kind::string)) return in.fail(cat("join: expected strings, found ", kind_name(part)));
    WP_TRY(in.charge_bytes(part.as_string().size() + self.as_string().size()));
    if (&part != &parts.front()) out += self.as_string();
    out += part.as_string();
  }
  return in.make_string(std::move(out));
}

// Whether there are characters, and each is of the kind.
template <bool (*kHolds)(UChar32)>
Result<Value> all_are(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(Bound::bind("method", arguments, {}));
  const std::string_view text = self.as_string();
  WP_TRY(in.charge_bytes(text.size()));
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (step.kind != Utf8Kind::valid || !kHolds(static_cast<UChar32>(step.character))) return Value::boolean(false);
    at += step.length;
  }
  return Value::boolean(!text.empty());
}

bool is_letter(UChar32 c) { return (U_GET_GC_MASK(c) & U_GC_L_MASK) != 0; }
bool is_digit(UChar32 c) {
  const int32_t type = u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}
bool is_letter_or_number(UChar32 c) {
  return is_letter(c) || u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}
bool is_space(UChar32 c) { return is_python_space(static_cast<uint32_t>(c)); }

template <std::string (*kCase)(std::string_view), std::string (*kOther)(std::string_view)>
Result<Value> has_case(In, const Value& self, const Arguments& arguments) {
  WP_TRY(Bound::bind("method", arguments, {}));
  return Value::boolean(kCase(self.as_string()) == self.as_string() && kOther(self.as_string()) != self.as_string());
}

Result<Value> dict_items(In in, const Value& self, const Arguments& arguments) {
  return find_filter("items")(in, self, arguments);
}

template <bool kKeys>
Result<Value> dict_side(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(Bound::bind("method", arguments, {}));
  Values out;
  for (const auto& [key, value] : self.as_dict().items) out.push_back(kKeys ? key : value);
  return in.make_list(std::move(out));
}

Result<Value> dict_get(In, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("get", arguments, {"key", "default"}));
  WP_TRY(bound.require(1));
  if (const Value* found = self.as_dict().find(*bound.find(0))) return *found;
  return bound.find(1) ? *bound.find(1) : Value::none();
}

Result<Value> dict_copy(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(Bound::bind("copy", arguments, {}));
  WP_TRY(in.charge(static_cast<int64_t>(self.as_dict().items.size())));
  const Value out = in.make_dict();
  for (const auto& [key, value] : self.as_dict().items) out.as_dict().set(key, value);
  return out;
}

Result<Value> list_copy(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(Bound::bind("copy", arguments, {}));
  WP_TRY(Values items, in.iterate(self));
  return in.make_list(std::move(items));
}

Result<Value> list_append(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("append", arguments, {"item"}));
  WP_TRY(bound.require(1));
  WP_TRY(in.charge(1));
  self.as_list().items.push_back(*bound.find(0));
  return Value::none();
}

Result<Value> list_count(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("count", arguments, {"item"}));
  WP_TRY(bound.require(1));
  int64_t count = 0;
  for (const Value& item : self.as_list().items) {
    WP_TRY(const bool equal, in.equals(item, *bound.find(0)));
    count += equal;
  }
  return Value::integer(count);
}

Result<Value> list_index(In in, const Value& self, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind("index", arguments, {"item"}));
  WP_TRY(bound.require(1));
  const Values& items = self.as_list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    WP_TRY(const bool equal, in.equals(items[i], *bound.find(0)));
    if (equal) return Value::integer(static_cast<int64_t>(i));
  }
  return in.fail("index: expected the item to be there, found it absent");
}

Result<Value> loop_cycle(In in, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) return in.fail("cycle: expected items, found none");
  return arguments.positional[self.as_loop().index % arguments.positional.size()];
}

struct Named {
  Kind kind;
  std::string_view name;
  Method_ method;
};

constexpr Named kMethods[] = {{Kind::string, "startswith", has_affix<true>},
                              {Kind::string, "endswith", has_affix<false>},
                              {Kind::string, "strip", strip<true, true>},
                              {Kind::string, "lstrip", strip<true, false>},
                              {Kind::string, "rstrip", strip<false, true>},
                              {Kind::string, "split", split},
                              {Kind::string, "rsplit", rsplit},
                              {Kind::string, "splitlines", splitlines},
                              {Kind::string, "replace", replace_method},
                              {Kind::string, "upper", change<upper>},
                              {Kind::string, "lower", change<lower>},
                              {Kind::string, "title", change<title>},
                              {Kind::string, "capitalize", change<capitalize>},
                              {Kind::string, "find", find_text<false, false>},
                              {Kind::string, "rfind", find_text<true, false>},
                              {Kind::string, "index", find_text<false, true>},
                              {Kind::string, "count", count_text},
                              {Kind::string, "join", join_method},
                              {Kind::string, "removeprefix", remove_affix<true>},
                              {Kind::string, "removesuffix", remove_affix<false>},
                              {Kind::string, "isalpha", all_are<is_letter>},
                              {Kind::string, "isdigit", all_are<is_digit>},
                              {Kind::string, "isalnum", all_are<is_letter_or_number>},
                              {Kind::string, "isspace", all_are<is_space>},
                              {Kind::string, "islower", has_case<lower, upper>},
                              {Kind::string, "isupper", has_case<upper, lower>},
                              {Kind::dict, "items", dict_items},
                              {Kind::dict, "keys", dict_side<true>},
                              {Kind::dict, "values", dict_side<false>},
                              {Kind::dict, "get", dict_get},
                              {Kind::dict, "copy", dict_copy},
                              {Kind::list, "append", list_append},
                              {Kind::list, "copy", list_copy},
                              {Kind::list, "count", list_count},
                              {Kind::list, "index", list_index},
                              {Kind::loop, "cycle", loop_cycle}};

const Named* find_method(const Value& receiver, std::string_view name) {
  for (const Named& known : kMethods)
    if (known.kind == receiver.kind() && known.name == name) return &known;
  return nullptr;
}

}  // namespace

bool has_method(const Value& receiver, std::string_view name) { return find_method(receiver, name) != nullptr; }

bool is_forbidden_method(const Value& receiver, std::string_view name) {
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update", "fromkeys"};
  static constexpr std::string_view kList[] = {"clear", "pop", "extend", "insert", "remove", "reverse", "sort"};
  static constexpr std::string_view kString[] = {"format", "format_map", "encode"};
  const auto among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (receiver.is(Kind::string)) return among(kString);
  return receiver.is(Kind::dict) ? among(kDict) : receiver.is(Kind::list) && among(kList);
}

Result<Value> call_method(Interpreter& interpreter, const Value& receiver, const std::string& name,
                          const Arguments& arguments) {
  const Named* found = find_method(receiver, name);
  WP_ASSERT(found);  // Methods are made for known names only.
  return found->method(interpreter, receiver, arguments);
}

}  // namespace wp::jinja
