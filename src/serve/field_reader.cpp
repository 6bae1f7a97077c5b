#include "serve/field_reader.h"

#include <algorithm>
#include <cmath>

namespace wp {

const Json* FieldReader::find(std::string_view name) {
  known_.emplace_back(name);
  const auto found = object_->find(std::string(name));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> FieldReader::boolean(std::string_view name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail(invalid_type(path(name), "a boolean", *value));
  return std::nullopt;
}

std::optional<int64_t> FieldReader::integer(std::string_view name, int64_t low, int64_t high) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) {
    fail(invalid_type(path(name), "an integer", *value));
    return std::nullopt;
  }
  bool inside = false;
  int64_t number = 0;
  if (value->is_number_unsigned()) {
    const uint64_t unsigned_number = value->get<uint64_t>();
    inside = high >= 0 && unsigned_number <= static_cast<uint64_t>(high);
    if (inside) number = static_cast<int64_t>(unsigned_number);
    inside = inside && number >= low;
  } else if (value->is_number_integer()) {
    number = value->get<int64_t>();
    inside = number >= low && number <= high;
  } else {  // 5.0 is an integer to JSON; 5.5 is not, and 1e308 is out of range.
    const double real = value->get<double>();
    if (real != std::floor(real)) {
      fail(invalid_type(path(name), "an integer", *value));
      return std::nullopt;
    }
    inside = real >= static_cast<double>(low) && real <= static_cast<double>(high) && std::fabs(real) < 0x1p62;
    if (inside) number = static_cast<int64_t>(real);
  }
  if (inside) return number;
  fail(invalid_value(path(name), cat(path(name), ": expected ", low, "..", high, ", found ", dump_json(*value))));
  return std::nullopt;
}

std::optional<double> FieldReader::number(std::string_view name, double low, double high) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) {
    fail(invalid_type(path(name), "a number", *value));
    return std::nullopt;
  }
  const double real = value->get<double>();
  if (real >= low && real <= high) return real;
  fail(invalid_value(path(name), cat(path(name), ": expected ", low, "..", high, ", found ", dump_json(*value))));
  return std::nullopt;
}

std::optional<std::string> FieldReader::string(std::string_view name, size_t bytes_max) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) {
    fail(invalid_type(path(name), "a string", *value));
    return std::nullopt;
  }
  const std::string& text = value->get_ref<const std::string&>();
  if (text.size() <= bytes_max) return text;
  fail(invalid_value(path(name), cat(path(name), ": expected at most ", bytes_max, " bytes, found ", text.size())));
  return std::nullopt;
}

const Json* FieldReader::object(std::string_view name) {
  const Json* value = find(name);
  if (!value || value->is_object()) return value;
  fail(invalid_type(path(name), "an object", *value));
  return nullptr;
}

const Json* FieldReader::list(std::string_view name) {
  const Json* value = find(name);
  if (!value || value->is_array()) return value;
  fail(invalid_type(path(name), "a list", *value));
  return nullptr;
}

void FieldReader::refuse(std::string_view name, std::string_view instead, std::initializer_list<Json> harmless) {
  const Json* value = find(name);
  if (!value) return;
  for (const Json& one : harmless)
    if (*value == one) return;
  fail(unsupported_value(path(name), cat(path(name), ": expected ", instead, ", found ", describe(*value))));
}

std::vector<std::string> FieldReader::unknown() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : object_->items())
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) out.push_back(key);
  return out;
}

}  // namespace wp
