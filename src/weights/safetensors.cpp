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

const StoredType* stored_type(std::string_view name) {
  for (const StoredType& type : kStoredTypes)
    if (name == type.name) return &type;
  return nullptr;
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

// What both documents share: an object whose members are read one by one as they stream past, so that a hostile text
// costs no memory beyond what it declares. A derived class says what each value is; a value it does not care for is
// skipped. The interface is that of nlohmann's SAX parser, which never recurses.
class JsonEvents {
 public:
  Error take_error() { return std::move(error_); }

  bool null() { return other("null"); }
  bool boolean(bool value) { return other(value ? "true" : "false"); }
  bool number_integer(int64_t value) { return whole(value); }
  bool number_unsigned(uint64_t value) {
    return value > static_cast<uint64_t>(INT64_MAX) ? other(cat(value)) : whole(static_cast<int64_t>(value));
  }
  bool number_float(double, const std::string& text) { return other(printable(text)); }
  bool binary(Json::binary_t&) { return other("binary data"); }
  bool string(std::string& value) { return skipping_ ? skipped() : text(value); }
  bool key(std::string& name) { return skipping_ || member(name); }
  bool start_object(size_t) { return start(true); }
  bool start_array(size_t) { return start(false); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    return fail(cat("expected JSON in UTF-8, found a fault at byte ", position));
  }

 protected:
  explicit JsonEvents(const char* document) : document_(document) {}
  virtual ~JsonEvents() = default;

  virtual bool member(std::string& name) = 0;           // Of the object at hand; skip() passes over its value.
  virtual bool text(std::string& value) = 0;            // A string where a value may stand.
  virtual bool number(int64_t value) = 0;               // A whole number that fits.
  virtual bool opened(bool is_object) = 0;              // Depth does not count it yet.
  virtual bool closed() = 0;                            // Depth no longer counts it.
  virtual bool unexpected(std::string_view found) = 0;  // Any other value.

  int depth() const { return depth_; }
  bool skip() { return skipping_ = true; }
  bool fail(std::string_view message) {
    error_ = bad(cat(document_, ": ", message));
    return false;
  }
  bool fail_at(std::string_view name, std::string_view message) {
    error_ = bad(cat(printable(name), ": ", message));
    return false;
  }

 private:
  static constexpr int kDepthMax = 16;

  bool skipped() {
    skipping_ = skip_depth_ > 0;
    return true;
  }
  bool other(std::string_view found) { return skipping_ ? skipped() : unexpected(found); }
  bool whole(int64_t value) { return skipping_ ? skipped() : number(value); }
  bool start(bool is_object) {
    if (depth_ == kDepthMax) return fail(cat("expected at most ", kDepthMax, " levels of nesting, found more"));
    if (skipping_) ++skip_depth_;
    else if (!opened(is_object)) return false;
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    if (!skipping_) return closed();
    --skip_depth_;
    return skipped();
  }

  const char* document_;
  Error error_{ErrorCode::bad_file, ""};
  int depth_ = 0, skip_depth_ = 0;
  bool skipping_ = false;  // Inside, or just before, a value that nobody reads.
};

// {"__metadata__": {...}, NAME: {"dtype": "F32", "shape": [4, 128], "data_offsets": [0, 2048]}, ...}
class HeaderEvents final : public JsonEvents {
 public:
  explicit HeaderEvents(int64_t data_bytes) : JsonEvents("header"), data_bytes_(data_bytes) {}
  std::vector<StoredTensor> take_tensors() { return std::move(tensors_); }  // Offsets from the beginning of the data.

 private:
  enum Field { none = 0, dtype = 1, shape = 2, data_offsets = 4 };
  static constexpr const char* kExpected = "expected an object of dtype, shape and data_offsets, found ";

  bool member(std::string& name) override {
    if (depth() == 1) {
      if (name == "__metadata__") return skip();  // Free text of the writer.
      tensor_ = StoredTensor{std::move(name), nullptr, Shape{}, 0, 0};
      seen_ = none;
      field_ = none;
      return true;
    }
    field_ = name == "dtype" ? dtype : name == "shape" ? shape : name == "data_offsets" ? data_offsets : none;
    if (field_ == none) return skip();
    if (seen_ & field_) return fail_at(tensor_.name, cat("expected ", name, " once, found it twice"));
    seen_ |= field_;
    return true;
  }

  bool text(std::string& value) override {
    if (field_ != dtype || depth() != 2) return unexpected(cat("\"", printable(value), "\""));
    tensor_.type = stored_type(value);
    return tensor_.type || unexpected(cat("\"", printable(value), "\""));
  }

  bool number(int64_t value) override {
    if (depth() != 3 || value < 0) return unexpected(cat(value));
    if (field_ == data_offsets) {
      if (offsets_count_ == 2) return unexpected("more");
      offsets_[offsets_count_++] = value;
      return true;
    }
    if (tensor_.shape.rank() == Shape::kRankMax)
      return fail_at(tensor_.name, cat("shape: expected at most ", Shape::kRankMax, " dimensions, found more"));
    tensor_.shape.append(value);
    return true;
  }

  bool opened(bool is_object) override {
    if (is_object ? depth() <= 1 : depth() == 2 && (field_ == shape || field_ == data_offsets)) {
      offsets_count_ = 0;
      return true;
    }
    return unexpected(is_object ? "an object" : "a list");
  }

  bool closed() override {
    if (depth() == 2 && field_ == data_offsets && offsets_count_ != 2) return unexpected("fewer");
    if (depth() != 1) return true;
    for (const auto& [field, name] : {std::pair(dtype, "dtype"), {shape, "shape"}, {data_offsets, "data_offsets"}})
      if (!(seen_ & field)) return fail_at(tensor_.name, cat("expected a member ", name, ", found none"));
    auto checked = check();
    if (!checked.ok()) return fail_at(tensor_.name, checked.error().message);
    tensors_.push_back(std::move(tensor_));
    return true;
  }

  bool unexpected(std::string_view found) override {
    if (depth() == 0) return fail(cat("expected a JSON object, found ", found));
    if (depth() == 1 || field_ == none) return fail_at(tensor_.name, cat(kExpected, found));
    if (field_ == dtype) return fail_at(tensor_.name, cat("dtype: expected a name of the format, found ", found));
    if (field_ == shape)
      return fail_at(tensor_.name,
                     cat("shape: expected a list of whole sizes from 0 to ", INT64_MAX, ", found ", found));
    return fail_at(tensor_.name, cat("data_offsets: expected a list of two byte offsets, found ", found));
  }

  Result<void> check() {
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    if (tensor_.begin > tensor_.end || tensor_.end > data_bytes_)
      return bad(cat("data_offsets: expected a span inside the file's ", data_bytes_, " bytes of data, found [",
                     tensor_.begin, ", ", tensor_.end, "]"));
    WP_TRY(const int64_t expected, bytes_of(tensor_.shape, *tensor_.type));
    if (tensor_.end - tensor_.begin != expected)
      return bad(cat("data_offsets: expected ", expected, " bytes for ", tensor_.type->name, " ", tensor_.shape,
                     ", found ", tensor_.end - tensor_.begin));
    return {};
  }

  const int64_t data_bytes_;
  std::vector<StoredTensor> tensors_;
  StoredTensor tensor_{};  // The one under way.
  int seen_ = none;
  Field field_ = none;
  int64_t offsets_[2] = {};
  int offsets_count_ = 0;
};

// Why a name in the index is no file of the folder; null if it is.
const char* base_name_fault(std::string_view name) {
  if (name.empty()) return "an empty name";
  if (name == "." || name == "..") return "a way out of the folder";
  if (name.find('/') != name.npos || name.find('\\') != name.npos) return "a path";
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 0x20) return "a control character";
  return nullptr;
}

// {"metadata": {...}, "weight_map": {NAME: FILE, ...}}
class IndexEvents final : public JsonEvents {
 public:
  IndexEvents() : JsonEvents("index") {}
  std::vector<std::pair<std::string, std::string>> take_entries() { return std::move(entries_); }

 private:
  bool member(std::string& name) override {
    if (depth() == 1) {
      if (name != "weight_map") return skip();
      if (seen_) return fail("expected weight_map once, found it twice");
      return seen_ = true;
    }
    name_ = std::move(name);
    return true;
  }
  bool text(std::string& value) override {
    if (depth() != 2) return unexpected(cat("\"", printable(value), "\""));
    if (const char* fault = base_name_fault(value))
      return fail_at(
          name_, cat("expected the base name of a file in the folder, found ", fault, " (\"", printable(value), "\")"));
    entries_.emplace_back(std::move(name_), std::move(value));
    return true;
  }
  bool number(int64_t value) override { return unexpected(cat(value)); }
  bool opened(bool is_object) override {
    return (is_object && depth() <= 1) || unexpected(is_object ? "an object" : "a list");
  }
  bool closed() override { return true; }
  bool unexpected(std::string_view found) override {
    if (depth() == 0) return fail(cat("expected a JSON object, found ", found));
    if (depth() == 1) return fail(cat("expected an object weight_map, found ", found));
    return fail_at(name_, cat("expected the base name of a file in the folder, found ", found));
  }

  std::vector<std::pair<std::string, std::string>> entries_;
  std::string name_;
  bool seen_ = false;
};

template <class Events>
Result<void> stream(std::string_view text, const char* document, Events& events) {
  // The parser takes a zero byte for the end of the text, and a byte order mark for nothing.
  const size_t zero = text.find('\0');
  if (zero != text.npos) return bad(cat(document, ": expected JSON in UTF-8, found a fault at byte ", zero + 1));
  if (text.empty() || text[0] == '\xEF') return bad(cat(document, ": expected a JSON object, found none"));
  if (!Json::sax_parse(text.begin(), text.end(), &events)) return events.take_error();
  return {};
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
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (std::string_view(reinterpret_cast<const char*>(file.data()), file.size()).substr(0, kPointer.size()) == kPointer)
    return bad("header: expected a safetensors file, found a Git LFS pointer (git lfs pull fetches it)");
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(file[i]);
  if (length > static_cast<uint64_t>(kHeaderBytesMax))
    return bad(cat("header: expected at most ", kHeaderBytesMax, " bytes, found a length of ", length));
  const int64_t available = std::min<int64_t>(file_bytes, static_cast<int64_t>(file.size())) - kLengthBytes;
  if (static_cast<int64_t>(length) > available)
    return bad(cat("header: expected at most the ", available, " bytes that follow, found a length of ", length));

  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + static_cast<int64_t>(length);
  HeaderEvents events(file_bytes - header.data_begin);
  WP_TRY(stream(text, "header", events));
  header.tensors = events.take_tensors();
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  for (size_t i = 1; i < header.tensors.size(); ++i)
    if (header.tensors[i - 1].name == header.tensors[i].name)
      return bad(cat(printable(header.tensors[i].name), ": expected every tensor once, found it twice"));
  WP_TRY(check_overlap(header.tensors));
  for (StoredTensor& tensor : header.tensors) {
    tensor.begin += header.data_begin;
    tensor.end += header.data_begin;
  }
  return header;
}

Result<std::vector<std::pair<std::string, std::string>>> parse_safetensors_index(std::string_view text) {
  IndexEvents events;
  WP_TRY(stream(text, "index", events));
  auto entries = events.take_entries();
  if (entries.empty()) return bad("index: expected tensors in weight_map, found none");
  std::sort(entries.begin(), entries.end());
  for (size_t i = 1; i < entries.size(); ++i)
    if (entries[i - 1].first == entries[i].first)
      return bad(cat("index: ", printable(entries[i].first), ": expected every tensor once, found it twice"));
  return entries;
}

}  // namespace wp
