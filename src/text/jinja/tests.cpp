// The tests of templates: `x is NAME`.
#include "text/jinja/interpreter.h"
#include "text/jinja/python_text.h"

namespace wp::jinja {
namespace {

using In = Interpreter&;

Result<Value> only_argument(std::string_view what, const Arguments& arguments) {
  WP_TRY(const Bound bound, Bound::bind(what, arguments, {"other"}));
  WP_TRY(bound.require(1));
  return *bound.find(0);
}

template <bool (*kHolds)(const Value&)>
Result<bool> plain(In, const Value& input, const Arguments& arguments) {
  WP_TRY(Bound::bind("test", arguments, {}));
  return kHolds(input);
}

bool is_defined(const Value& value) { return !value.is(Kind::undefined); }
bool is_undefined(const Value& value) { return value.is(Kind::undefined); }
bool is_none(const Value& value) { return value.is(Kind::none); }
bool is_string(const Value& value) { return value.is(Kind::string); }
bool is_mapping(const Value& value) { return value.is(Kind::dict); }
bool is_sequence(const Value& value) {
  return value.is(Kind::string) || value.is(Kind::list) || value.is(Kind::dict) || value.is(Kind::undefined);
}
bool is_iterable(const Value& value) { return is_sequence(value) || value.is(Kind::loop); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_integer(const Value& value) { return value.is(Kind::integer); }
bool is_float(const Value& value) { return value.is(Kind::real); }
bool is_boolean(const Value& value) { return value.is(Kind::boolean); }
bool is_true(const Value& value) { return value.is(Kind::boolean) && value.as_boolean(); }
bool is_false(const Value& value) { return value.is(Kind::boolean) && !value.as_boolean(); }
bool is_callable(const Value& value) {
  // Jinja's undefined can be called too: it then says what is undefined.
  return value.is(Kind::macro) || value.is(Kind::function) || value.is(Kind::method) || value.is(Kind::undefined);
}

Result<bool> is_lower(In in, const Value& input, const Arguments&) {
  WP_TRY(const std::string text, in.text_of(input));
  return lower(text) == text && upper(text) != text;
}

Result<bool> is_upper(In in, const Value& input, const Arguments&) {
  WP_TRY(const std::string text, in.text_of(input));
  return upper(text) == text && lower(text) != text;
}

Result<bool> remainder_is(In in, const Value& input, Integer divisor, Integer rest) {
  WP_TRY(const Value found, in.arithmetic("%", input, Value::integer(divisor)));
  return in.equals(found, Value::integer(rest));
}
Result<bool> is_even(In in, const Value& input, const Arguments&) { return remainder_is(in, input, 2, 0); }
Result<bool> is_odd(In in, const Value& input, const Arguments&) { return remainder_is(in, input, 2, 1); }

Result<bool> is_divisible(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Value divisor, only_argument("divisibleby", arguments));
  WP_TRY(const Value found, in.arithmetic("%", input, divisor));
  return in.equals(found, Value::integer(0));
}

Result<bool> is_equal(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Value other, only_argument("equalto", arguments));
  return in.equals(input, other);
}

Result<bool> is_unequal(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const bool equal, is_equal(in, input, arguments));
  return !equal;
}

template <bool kBelow, bool kEqual>
Result<bool> ordered(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Value other, only_argument("comparison", arguments));
  WP_TRY(const int order, in.compare(input, other));
  return order == 0 ? kEqual : (order < 0) == kBelow;
}

Result<bool> is_in(In in, const Value& input, const Arguments& arguments) {
  WP_TRY(const Value container, only_argument("in", arguments));
  return in.contains(container, input);
}

// Identity: the same container, or a singleton.
Result<bool> is_same(In, const Value& input, const Arguments& arguments) {
  WP_TRY(const Value other, only_argument("sameas", arguments));
  if (input.kind() != other.kind()) return false;
  switch (input.kind()) {
    case Kind::none: return true;
    case Kind::boolean: return input.as_boolean() == other.as_boolean();
    case Kind::integer: return input.as_integer() == other.as_integer();
    case Kind::list: return &input.as_list() == &other.as_list();
    case Kind::dict: return &input.as_dict() == &other.as_dict();
    case Kind::string: return input.as_string() == other.as_string();
    default: return false;
  }
}

struct Named {
  std::string_view name;
  Test test;
};

constexpr Named kTests[] = {{"boolean", plain<is_boolean>},
                            {"callable", plain<is_callable>},
                            {"defined", plain<is_defined>},
                            {"divisibleby", is_divisible},
                            {"eq", is_equal},
                            {"equalto", is_equal},
                            {"even", is_even},
                            {"false", plain<is_false>},
                            {"float", plain<is_float>},
                            {"ge", ordered<false, true>},
                            {"greaterthan", ordered<false, false>},
                            {"gt", ordered<false, false>},
                            {"in", is_in},
                            {"integer", plain<is_integer>},
                            {"iterable", plain<is_iterable>},
                            {"le", ordered<true, true>},
                            {"lessthan", ordered<true, false>},
                            {"lower", is_lower},
                            {"lt", ordered<true, false>},
                            {"mapping", plain<is_mapping>},
                            {"ne", is_unequal},
                            {"none", plain<is_none>},
                            {"number", plain<is_number>},
                            {"odd", is_odd},
                            {"sameas", is_same},
                            {"sequence", plain<is_sequence>},
                            {"string", plain<is_string>},
                            {"true", plain<is_true>},
                            {"undefined", plain<is_undefined>},
                            {"upper", is_upper},
                            // By their signs, for select("==", 1).
                            {"==", is_equal},
                            {"!=", is_unequal},
                            {"<", ordered<true, false>},
                            {"<=", ordered<true, true>},
                            {">", ordered<false, false>},
                            {">=", ordered<false, true>}};

}  // namespace

Test find_test(std::string_view name) {
  for (const Named& known : kTests)
    if (known.name == name) return known.test;
  return nullptr;
}

}  // namespace wp::jinja
