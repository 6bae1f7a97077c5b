// Arguments of filters, methods and macros; slices.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/python_text.h"

namespace wp::jinja {

Result<Bound> Bound::bind(std::string_view what, const Arguments& arguments, std::vector<std::string_view> names) {
  const auto fail = [&](auto... parts) { return Error{ErrorCode::bad_request, cat(what, ": ", parts...)}; };
  Bound out;
  out.what_ = what;
  out.names_ = std::move(names);
  out.values_.resize(out.names_.size());
  if (arguments.positional.size() > out.names_.size())
    return fail("expected at most ", out.names_.size(), " arguments, found ", arguments.positional.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) out.values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(out.names_.begin(), out.names_.end(), name);
    if (place == out.names_.end()) return fail("expected no argument ", name, ", found one");
    const Value*& slot = out.values_[place - out.names_.begin()];
    if (slot) return fail("expected argument ", name, " once, found it twice");
    slot = &value;
  }
  return out;
}

Result<int64_t> Bound::integer(size_t index, int64_t otherwise) const {
  const Value* value = values_[index];
  if (!value || value->is(Kind::none)) return otherwise;
  if (!value->is_whole() || value->as_integer() > INT32_MAX || value->as_integer() < INT32_MIN)
    return Error{ErrorCode::bad_request,
                 cat(what_, ": expected a small integer for ", names_[index], ", found ", kind_name(*value))};
  return static_cast<int64_t>(value->as_integer());
}

Result<std::string> Bound::string(size_t index, std::string_view otherwise) const {
  const Value* value = values_[index];
  if (!value || value->is(Kind::none)) return std::string(otherwise);
  if (!value->is(Kind::string))
    return Error{ErrorCode::bad_request,
                 cat(what_, ": expected a string for ", names_[index], ", found ", kind_name(*value))};
  return value->as_string();
}

Result<void> Bound::require(size_t count) const {
  for (size_t i = 0; i < count; ++i)
    if (!values_[i])
      return Error{ErrorCode::bad_request, cat(what_, ": expected argument ", names_[i], ", found none")};
  return {};
}

Result<Value> slice_of(Interpreter& interpreter, const Value& value, const Value* begin, const Value* end,
                       const Value* step_value) {
  if (value.is(Kind::undefined)) return interpreter.fail(value.what_is_undefined());
  const bool is_string = value.is(Kind::string);
  if (!is_string && !value.is(Kind::list))
    return interpreter.fail(cat("expected something to slice, found ", kind_name(value)));
  std::vector<std::string_view> characters;
  if (is_string) {
    WP_TRY(interpreter.charge_bytes(16 * value.as_string().size()));
    characters = characters_of(value.as_string());
  }
  const auto count = static_cast<int64_t>(is_string ? characters.size() : value.as_list().items.size());
  for (const Value* bound : {begin, end, step_value})
    if (bound && !bound->is_whole())
      return interpreter.fail(cat("expected integers in a slice, found ", kind_name(*bound)));
  // Beyond any text, so that sums stay in range.
  const auto clamped = [](const Value* bound, int64_t otherwise) {
    constexpr Integer kFar = int64_t{1} << 40;
    return bound ? static_cast<int64_t>(std::clamp(bound->as_integer(), -kFar, kFar)) : otherwise;
  };
  const int64_t step = clamped(step_value, 1);
  if (step == 0) return interpreter.fail("expected a slice step other than 0, found 0");
  const auto place = [&](const Value* bound, int64_t otherwise) {
    if (!bound) return otherwise;
    int64_t at = clamped(bound, 0);
    if (at < 0) at += count;
    return step > 0 ? std::clamp<int64_t>(at, 0, count) : std::clamp<int64_t>(at, -1, count - 1);
  };
  const int64_t first = place(begin, step > 0 ? 0 : count - 1), last = place(end, step > 0 ? count : -1);
  std::string text;
  std::vector<Value> items;
  for (int64_t i = first; step > 0 ? i < last : i > last; i += step) {
    if (is_string) text += characters[i];
    else items.push_back(value.as_list().items[i]);
  }
  if (is_string) return interpreter.make_string(std::move(text));
  return interpreter.make_list(std::move(items), value.as_list().is_tuple);
}

}  // namespace wp::jinja
