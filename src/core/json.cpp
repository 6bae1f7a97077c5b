#include "core/json.h"

#include <simdjson.h>

#include <unordered_set>

namespace wp {
namespace {

Json convert(const simdjson::dom::element& element) {
  using Type = simdjson::dom::element_type;
  switch (element.type()) {
    case Type::ARRAY: {
      Json out = Json::array();
      for (simdjson::dom::element item : simdjson::dom::array(element)) out.push_back(convert(item));
      return out;
    }
    case Type::OBJECT: {
      Json out = Json::object();
      // ordered_json looks a key up linearly; large objects (an index of 150,000 tensors) are appended instead,
      // after duplicates were dropped.
      auto& members = out.get_ref<Json::object_t&>();
      std::unordered_set<std::string_view> seen;
      for (auto field : simdjson::dom::object(element)) {
        if (seen.insert(field.key).second) {
          members.emplace_back(std::string(field.key), convert(field.value));
        } else {
          out[std::string(field.key)] = convert(field.value);
        }
      }
      return out;
    }
    case Type::INT64: return Json(int64_t(element));
    case Type::UINT64: return Json(uint64_t(element));
    case Type::DOUBLE: return Json(double(element));
    case Type::STRING: return Json(std::string(std::string_view(element)));
    case Type::BOOL: return Json(bool(element));
    case Type::NULL_VALUE: return Json(nullptr);
  }
  return Json(nullptr);
}

bool has_duplicates(const simdjson::dom::element& element) {
  if (element.is_array()) {
    for (simdjson::dom::element item : simdjson::dom::array(element))
      if (has_duplicates(item)) return true;
  } else if (element.is_object()) {
    std::unordered_set<std::string_view> seen;
    for (auto field : simdjson::dom::object(element))
      if (!seen.insert(field.key).second || has_duplicates(field.value)) return true;
  }
  return false;
}

}  // namespace

int64_t find_invalid_utf8(std::string_view text) {
  if (text.empty() || simdjson::validate_utf8(text.data(), text.size())) return -1;
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = static_cast<unsigned char>(text[i]);
    size_t length = byte < 0x80 ? 1 : (byte >> 5) == 6 ? 2 : (byte >> 4) == 14 ? 3 : (byte >> 3) == 30 ? 4 : 0;
    if (length == 0 || i + length > text.size() || !simdjson::validate_utf8(text.data() + i, length)) break;
    i += length;
  }
  return static_cast<int64_t>(i);
}

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.size_bytes_max)
    return Error{ErrorCode::bad_request,
                 cat("JSON: expected at most ", limits.size_bytes_max, " bytes, found ", text.size())};
  // An empty view may hold a null pointer, which simdjson hands to memcpy.
  if (text.empty()) return Error{ErrorCode::bad_request, "JSON: expected a value, found an empty text"};
  const int64_t bad = find_invalid_utf8(text);
  if (bad >= 0) return Error{ErrorCode::bad_request, cat("body is not UTF-8 at byte ", bad)};
  simdjson::dom::parser parser;
  if (parser.allocate(text.size() + 64, static_cast<size_t>(limits.depth_max)) != simdjson::SUCCESS)
    return Error{ErrorCode::no_memory, cat("JSON: no memory for ", text.size(), " bytes")};
  simdjson::dom::element root;
  const simdjson::error_code code = parser.parse(text.data(), text.size(), true).get(root);
  if (code == simdjson::DEPTH_ERROR)
    return Error{ErrorCode::bad_request,
                 cat("JSON: expected at most ", limits.depth_max, " levels of nesting, found more")};
  if (code == simdjson::EMPTY) return Error{ErrorCode::bad_request, "JSON: expected a value, found an empty text"};
  if (code != simdjson::SUCCESS) return Error{ErrorCode::bad_request, cat("JSON: ", simdjson::error_message(code))};
  if (!limits.duplicate_keys_allowed && has_duplicates(root))
    return Error{ErrorCode::bad_request, "JSON: expected every key once, found a duplicate"};
  return convert(root);
}

std::string dump_json(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace wp
