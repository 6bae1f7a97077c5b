#include "weights/safetensors.h"

#include <algorithm>
#include <cstring>

namespace wp {
namespace {

constexpr int64_t kLengthBytes = 8;

constexpr StoredType kStoredTypes[] = {
    {"F64", 64, DType::f64, true},    {"F32", 32, DType::f32, true},        {"F16", 16, DType::f16, true},
    {"BF16", 16, DType::bf16, true},  {"F8_E4M3", 8, DType::f8_e4m3, true}, {"U8", 8, DType::u8, true},
    {"I32", 32, DType::i32, true},    {"I64", 64, DType::i64, true},        {"BOOL", 8, DType::u8, false},
    {"I8", 8, DType::u8, false},      {"I16", 16, DType::u8, false},        {"U16", 16, DType::u8, false},
    {"U32", 32, DType::u8, false},    {"U64", 64, DType::u8, false},        {"C64", 64, DType::u8, false},
    {"F8_E5M2", 8, DType::u8, false}, {"F8_E8M0", 8, DType::u8, false},     {"F6_E2M3", 6, DType::u8, false},
    {"F6_E3M2", 6, DType::u8, false}, {"F4", 4, DType::u8, false},
};

Error bad(std::string message) { return Error{ErrorCode::bad_file, std::move(message)}; }

// A value as found, in a few words however large it is.
std::string shown(const Json& value) {
  if (value.is_string()) return cat("\"", printable(value.get_ref<const std::string&>()), "\"");
  if (!value.is_structured()) return dump_json(value);
  const bool small = value.is_array() && value.size() <= 8;
  if (small && std::none_of(value.begin(), value.end(), [](const Json& item) { return item.size() > 1; }))
    return printable(dump_json(value));
  return cat(value.is_array() ? "a list of " : "an object of ", value.size());
}

const StoredType* stored_type(std::string_view name) {
  for (const StoredType& type : kStoredTypes)
    if (name == type.name) return &type;
  return nullptr;
}

Result<Json> parse_object(std::string_view text, const char* what) {
  const JsonLimits limits{.size_bytes_max = kHeaderBytesMax, .depth_max = 16, .duplicate_keys_allowed = false};
  auto parsed = parse_json(text, limits);
  if (!parsed.ok()) return bad(cat(what, ": ", printable(parsed.error().message)));
  if (!parsed->is_object()) return bad(cat(what, ": expected a JSON object, found ", parsed->type_name()));
  return parsed;
}

// A whole number that is not negative and fits; -1 otherwise.
int64_t natural(const Json& value) {
  if (!value.is_number_integer()) return -1;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return -1;
  return std::max<int64_t>(value.get<int64_t>(), -1);
}

Result<Shape> parse_shape(const Json& value) {
  if (!value.is_array()) return bad(cat("shape: expected a list of sizes, found ", shown(value)));
  if (value.size() > static_cast<size_t>(Shape::kRankMax))
    return bad(cat("shape: expected at most ", Shape::kRankMax, " dimensions, found ", value.size()));
  Shape shape;
  for (const Json& dim : value) {
    if (natural(dim) < 0) return bad(cat("shape: expected whole sizes from 0 to ", INT64_MAX, ", found ", shown(dim)));
    shape.append(natural(dim));
  }
  return shape;
}

// Bytes of a tensor, or an error where the product does not fit or does not end on a byte. A size of 0 hides no
// overflow of the others: code that multiplies them in another order must not meet one.
Result<int64_t> bytes_of(const Shape& shape, const StoredType& type) {
  int64_t bits = type.bits;
  bool empty = false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    empty = empty || shape[axis] == 0;
    if (__builtin_mul_overflow(bits, std::max<int64_t>(shape[axis], 1), &bits))
      return bad(cat("shape: expected fewer than 2^63 bits, found ", shape, " of ", type.name));
  }
  if (empty) return 0;
  if (bits % 8 != 0) return bad(cat("shape: expected whole bytes, found ", shape, " of ", type.name));
  return bits / 8;
}

Result<std::pair<int64_t, int64_t>> parse_span(const Json& value, int64_t data_bytes) {
  if (!value.is_array() || value.size() != 2 || natural(value[0]) < 0 || natural(value[1]) < 0)
    return bad(cat("data_offsets: expected two byte offsets, found ", shown(value)));
  const int64_t begin = natural(value[0]), end = natural(value[1]);
  if (begin > end || end > data_bytes)
    return bad(cat("data_offsets: expected a span inside the file's ", data_bytes, " bytes of data, found [", begin,
                   ", ", end, "]"));
  return std::pair(begin, end);
}

// Offsets as in the file: from the beginning of the data.
Result<StoredTensor> parse_tensor(const std::string& name, const Json& value, int64_t data_bytes) {
  if (!value.is_object()) return bad(cat("expected dtype, shape and data_offsets, found ", shown(value)));
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!value.contains(key)) return bad(cat("expected a member ", key, ", found none"));
  const Json& dtype = value["dtype"];
  const StoredType* type = dtype.is_string() ? stored_type(dtype.get_ref<const std::string&>()) : nullptr;
  if (!type) return bad(cat("dtype: expected one of the format's names, found ", shown(dtype)));
  WP_TRY(Shape shape, parse_shape(value["shape"]));
  WP_TRY(const int64_t expected, bytes_of(shape, *type));
  WP_TRY(auto span, parse_span(value["data_offsets"], data_bytes));
  if (span.second - span.first != expected)
    return bad(cat("data_offsets: expected ", expected, " bytes for ", shape, " of ", type->name, ", found ",
                   span.second - span.first));
  return StoredTensor{name, type, shape, span.first, span.second};
}

Result<void> check_overlap(const std::vector<StoredTensor>& tensors) {
  std::vector<const StoredTensor*> by_offset;
  for (const StoredTensor& tensor : tensors)
    if (tensor.begin < tensor.end) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  for (size_t i = 1; i < by_offset.size(); ++i)
    if (by_offset[i]->begin < by_offset[i - 1]->end)
      return bad(cat(printable(by_offset[i]->name),
                     ": data_offsets: expected a span of its own, found an overlap with ",
                     printable(by_offset[i - 1]->name)));
  return {};
}

// Why a name in the index is no file of the folder; null if it is.
const char* base_name_fault(std::string_view name) {
  if (name.empty()) return "an empty name";
  if (name == "." || name == "..") return "a way out of the folder";
  if (name.find('/') != name.npos || name.find('\\') != name.npos) return "a path";
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 0x20) return "a control character";
  return nullptr;
}

}  // namespace

std::string printable(std::string_view name) {
  constexpr size_t kBytesMax = 160;
  std::string out;
  for (const char c : name.substr(0, kBytesMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) out += fmt::format("\\x{:02x}", byte);
    else out += c;
  }
  if (name.size() > kBytesMax) {
    const int64_t whole = find_invalid_utf8(out);  // The cut may have split a character.
    if (whole >= 0) out.resize(static_cast<size_t>(whole));
    out += "...";
  }
  return out;
}

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file, int64_t file_bytes) {
  if (file_bytes < kLengthBytes || static_cast<int64_t>(file.size()) < kLengthBytes)
    return bad(cat("header: expected a length of 8 bytes, found a file of ", file_bytes));
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(file[i]);
  if (length > static_cast<uint64_t>(kHeaderBytesMax))
    return bad(cat("header: expected at most ", kHeaderBytesMax, " bytes, found a length of ", length));
  const int64_t available = std::min<int64_t>(file_bytes, static_cast<int64_t>(file.size())) - kLengthBytes;
  if (static_cast<int64_t>(length) > available)
    return bad(cat("header: expected at most the ", available, " bytes that follow, found a length of ", length));

  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  WP_TRY(const Json root, parse_object(text, "header"));
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + static_cast<int64_t>(length);
  header.tensors.reserve(root.size());
  for (const auto& [name, value] : root.items()) {
    if (name == "__metadata__") continue;  // Free text of the writer.
    auto tensor = parse_tensor(name, value, file_bytes - header.data_begin);
    if (!tensor.ok()) return std::move(tensor).error().within(printable(name));
    header.tensors.push_back(std::move(tensor).value());
  }
  WP_TRY(check_overlap(header.tensors));
  for (StoredTensor& tensor : header.tensors) {
    tensor.begin += header.data_begin;
    tensor.end += header.data_begin;
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  return header;
}

Result<std::vector<std::pair<std::string, std::string>>> parse_safetensors_index(std::string_view text) {
  WP_TRY(const Json root, parse_object(text, "index"));
  const auto map = root.find("weight_map");
  if (map == root.end() || !map->is_object())
    return bad(cat("index: expected an object weight_map, found ", map == root.end() ? "none" : shown(*map)));
  std::vector<std::pair<std::string, std::string>> out;
  out.reserve(map->size());
  for (const auto& [name, file] : map->items()) {
    const char* fault = file.is_string() ? base_name_fault(file.get_ref<const std::string&>()) : "no text";
    if (fault)
      return bad(
          cat(printable(name), ": expected the base name of a file in the folder, found ", fault, ": ", shown(file)));
    out.emplace_back(name, file.get<std::string>());
  }
  if (out.empty()) return bad("index: expected tensors in weight_map, found none");
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace wp
