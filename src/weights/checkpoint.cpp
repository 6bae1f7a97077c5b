#include "weights/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "core/hash.h"
#include "core/numbers.h"
#include "weights/checkpoint_impl.h"
#include "weights/safetensors.h"
#include "weights/synthetic.h"

namespace wp {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kConfigBytesMax = 16 << 20;

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// How much of a and b agrees at both ends: what a misspelt, renamed or re-prefixed dotted name keeps.
size_t agreement(std::string_view a, std::string_view b) {
  const size_t shorter = std::min(a.size(), b.size());
  size_t head = 0, tail = 0;
  while (head < shorter && a[head] == b[head]) ++head;
  while (head + tail < shorter && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  return head + tail;
}

// The better of two candidates for `wanted`: more agreement, then the nearer length.
bool closer(std::string_view wanted, std::string_view candidate, std::string_view best) {
  const auto off = [&](std::string_view name) {
    return name.size() > wanted.size() ? name.size() - wanted.size() : wanted.size() - name.size();
  };
  const size_t agreed = agreement(wanted, candidate), agreed_best = agreement(wanted, best);
  return agreed != agreed_best ? agreed > agreed_best : off(candidate) < off(best);
}

// What a user who wrote `path` may have meant: the entry of its folder that is closest, or the part that exists.
std::string hint_for(const std::string& path) {
  std::error_code ignored;
  fs::path wanted = fs::path(path).lexically_normal();
  if (!wanted.has_filename()) wanted = wanted.parent_path();
  fs::path parent = wanted.has_parent_path() ? wanted.parent_path() : fs::path(".");
  std::string best;
  for (fs::directory_iterator entry(parent, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (best.empty() || closer(wanted.filename().string(), name, best)) best = name;
  }
  if (!best.empty() && agreement(wanted.filename().string(), best) * 2 > best.size())
    return cat(" (closest: ", printable((wanted.has_parent_path() ? parent / best : fs::path(best)).string()), ")");
  if (is_there(parent.string())) return "";
  while (parent.has_parent_path() && parent != parent.parent_path() && !is_there(parent.string()))
    parent = parent.parent_path();
  return is_there(parent.string()) ? cat(" (exists: ", printable(parent.string()), ")") : "";
}

Result<Json> read_config(const std::string& path) {
  WP_TRY(const MappedFile file, MappedFile::open(path, kConfigBytesMax));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  auto parsed = parse_json(text, {.size_bytes_max = kConfigBytesMax, .depth_max = 64});
  if (!parsed.ok()) return Error{ErrorCode::bad_file, cat(path, ": ", parsed.error().message)};
  if (!parsed->is_object())
    return Error{ErrorCode::bad_file, cat(path, ": expected a JSON object, found ", parsed->type_name())};
  return parsed;
}

using Index = std::vector<std::pair<std::string, std::string>>;

// What a path turned out to be.
struct Source {
  std::string folder;
  std::vector<std::string> files;  // Base names, sorted.
  Index index;                     // Empty if a single file.
};

Result<Source> locate(const std::string& path) {
  if (!is_there(path))
    return Error{ErrorCode::not_found,
                 cat(printable(path), ": expected a model folder or .safetensors file, found nothing", hint_for(path))};
  if (!is_folder(path)) {
    if (fs::path(path).extension() != ".safetensors")
      return Error{ErrorCode::bad_file, cat(path, ": expected a folder or a .safetensors file, found another file")};
    const fs::path parent = fs::path(path).parent_path();
    return Source{parent.empty() ? "." : parent.string(), {fs::path(path).filename().string()}, {}};
  }
  Source source{path, {}, {}};
  if (is_there(cat(path, "/model.safetensors"))) {
    source.files.push_back("model.safetensors");
    return source;
  }
  const std::string index_path = cat(path, "/model.safetensors.index.json");
  if (!is_there(index_path))
    return Error{ErrorCode::not_found,
                 cat(path, ": expected model.safetensors or model.safetensors.index.json, found neither")};
  WP_TRY(const MappedFile file, MappedFile::open(index_path, kHeaderBytesMax));
  auto index = parse_safetensors_index({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  if (!index.ok()) return std::move(index).error().within(index_path);
  source.index = std::move(index).value();
  for (const auto& entry : source.index) source.files.push_back(entry.second);
  std::sort(source.files.begin(), source.files.end());
  source.files.erase(std::unique(source.files.begin(), source.files.end()), source.files.end());
  return source;
}

// Both lists by name: each file's tensors are those that the index says, and no others.
Result<void> check_against_index(const Index& index, const std::vector<TensorInfo>& tensors) {
  size_t at = 0;
  for (const TensorInfo& tensor : tensors) {
    if (at < index.size() && index[at].first < tensor.name)
      return Error{ErrorCode::bad_file, cat(index[at].second, ": ", printable(index[at].first),
                                            ": expected this tensor as the index says, found none")};
    if (at == index.size() || index[at].first != tensor.name)
      return Error{ErrorCode::bad_file, cat(tensor.file, ": ", printable(tensor.name),
                                            ": expected only tensors of the index, found one that it lacks")};
    if (index[at].second != tensor.file)
      return Error{ErrorCode::bad_file, cat(tensor.file, ": ", printable(tensor.name), ": expected this tensor in ",
                                            printable(index[at].second), " as the index says, found it here")};
    ++at;
  }
  if (at < index.size())
    return Error{ErrorCode::bad_file, cat(index[at].second, ": ", printable(index[at].first),
                                          ": expected this tensor as the index says, found none")};
  return {};
}

bool matches(const Shape& found, const Shape& expected) {
  if (found.rank() != expected.rank()) return false;
  for (int axis = 0; axis < found.rank(); ++axis)
    if (expected[axis] != -1 && expected[axis] != found[axis]) return false;
  return true;
}

// "[4, any]": -1 is our sign for a size that is open, not a reader's.
std::string shown(const Shape& expected) {
  std::string out = "[";
  for (int axis = 0; axis < expected.rank(); ++axis)
    out += cat(axis ? ", " : "", expected[axis] == -1 ? std::string("any") : cat(expected[axis]));
  return out + "]";
}

template <class Unsigned>
Unsigned load(const std::byte* source) {
  Unsigned value;
  std::memcpy(&value, source, sizeof value);
  return value;
}

}  // namespace

// ---- Opening

Result<Checkpoint> Checkpoint::open(const std::string& path, const ProgressSink& progress) {
  WP_TRY(Source source, locate(path));
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->progress = progress;
  const std::string config_path = cat(source.folder, "/config.json");
  const std::string generation_path = cat(source.folder, "/generation_config.json");
  if (is_there(config_path)) {
    WP_TRY(impl->config, read_config(config_path));
  } else if (is_folder(path)) {
    return Error{ErrorCode::not_found, cat(path, ": expected config.json beside the weights, found none")};
  }
  if (is_there(generation_path)) {
    WP_TRY(impl->generation_config, read_config(generation_path));
  }

  WP_TRY(impl->map_files(source.folder, source.files));
  WP_TRY(impl->sort_tensors());
  if (!source.index.empty()) WP_TRY(check_against_index(source.index, impl->tensors));
  // A file that is still being written, or was cut meanwhile, is found here and not as a signal later.
  for (const MappedFile& file : impl->files) WP_TRY(file.size_unchanged());
  return Checkpoint(std::move(impl));
}

Result<void> Checkpoint::Impl::map_files(const std::string& folder, const std::vector<std::string>& names) {
  const auto files_total = static_cast<int64_t>(names.size());
  for (const std::string& name : names) {
    const std::string file_path = folder == "." ? name : cat(folder, "/", name);
    WP_TRY(MappedFile file, MappedFile::open(file_path));
    auto header = parse_safetensors_header(file.bytes(), static_cast<int64_t>(file.bytes().size()));
    if (!header.ok()) return std::move(header).error().within(file_path);
    fingerprint = hash_bytes(file.bytes().data(), static_cast<size_t>(header->data_begin), fingerprint);
    for (StoredTensor& stored : header->tensors) {
      const int64_t span_bytes = stored.end - stored.begin;
      data.push_back(file.bytes().data() + stored.begin);
      tensors.push_back({std::move(stored.name), name, stored.type->dtype, stored.shape, stored.begin, span_bytes,
                         stored.type->name, stored.type->supported});
      size_bytes += span_bytes;
    }
    files.push_back(std::move(file));
    if (progress) progress({"open", static_cast<int64_t>(files.size()), files_total, 0, 0, name});
  }
  return {};
}

Result<void> Checkpoint::Impl::sort_tensors() {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(tensors[a].name, tensors[a].file) < std::tie(tensors[b].name, tensors[b].file);
  });
  std::vector<TensorInfo> by_name;
  std::vector<const std::byte*> data_by_name;
  by_name.reserve(order.size());
  data_by_name.reserve(order.size());
  for (const size_t i : order) {
    if (!by_name.empty() && by_name.back().name == tensors[i].name)
      return Error{ErrorCode::bad_file,
                   cat(tensors[i].file, ": ", printable(tensors[i].name),
                       ": expected every tensor in one file, found it in ", by_name.back().file, " too")};
    by_name.push_back(std::move(tensors[i]));
    data_by_name.push_back(data[i]);
  }
  tensors = std::move(by_name);
  data = std::move(data_by_name);
  marked.assign(tensors.size(), 0);
  return {};
}

Checkpoint::Impl::Impl() = default;
Checkpoint::Impl::~Impl() = default;
Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

const std::string& Checkpoint::path() const { return impl_->path; }
const Json& Checkpoint::config() const { return impl_->config; }
const Json& Checkpoint::generation_config() const { return impl_->generation_config; }
const std::vector<TensorInfo>& Checkpoint::tensors() const { return impl_->tensors; }
int64_t Checkpoint::size_bytes() const { return impl_->size_bytes; }

uint64_t Checkpoint::fingerprint() const {
  if (impl_->synthetic) return impl_->fingerprint;
  constexpr int64_t kSampleBytes = 256;
  uint64_t hash = hash_text(dump_json(impl_->config), impl_->fingerprint);
  for (size_t i = 0; i < impl_->tensors.size(); ++i) {
    // One place in each tensor, picked by its name: a page fault each, and not the same column of every matrix.
    const TensorInfo& tensor = impl_->tensors[i];
    const int64_t room = tensor.size_bytes - kSampleBytes;
    const int64_t at = room <= 0 ? 0 : static_cast<int64_t>(hash_text(tensor.name) % static_cast<uint64_t>(room));
    hash = hash_bytes(impl_->data[i] + at, static_cast<size_t>(std::min(tensor.size_bytes, kSampleBytes)), hash);
  }
  return hash;
}

// ---- Names

int64_t Checkpoint::Impl::find(std::string_view name) const {
  if (synthetic) return synthetic->find(name);
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const TensorInfo& tensor, std::string_view n) { return tensor.name < n; });
  return at != tensors.end() && at->name == name ? at - tensors.begin() : -1;
}

std::string Checkpoint::Impl::closest(std::string_view name) const {
  std::string_view best;
  for (const TensorInfo& tensor : tensors)
    if (best.empty() || closer(name, tensor.name, best)) best = tensor.name;
  return best.empty() ? "none at all" : printable(best);
}

Error Checkpoint::Impl::missing(std::string_view name) const {
  return Error{ErrorCode::bad_file, cat(path, ": no tensor ", printable(name), " (closest: ", closest(name), ")")};
}

Error Checkpoint::Impl::fault(int64_t index, std::string_view what) const {
  const TensorInfo& tensor = tensors[static_cast<size_t>(index)];
  return Error{ErrorCode::bad_file, cat(tensor.file, ": ", printable(tensor.name), ": ", what)};
}

void Checkpoint::Impl::mark(int64_t index) {
  const auto i = static_cast<size_t>(index);
  if (marked[i]) return;
  marked[i] = 1;
  bound_bytes += tensors[i].size_bytes;
  // A report for each percent: a sink may draw.
  if (!progress || (bound_bytes - reported_bytes) * 100 < size_bytes) return;
  reported_bytes = bound_bytes;
  const auto files_total = static_cast<int64_t>(files.size());
  progress({"weights", files_total, files_total, bound_bytes, size_bytes, tensors[i].file});
}

bool Checkpoint::Impl::mark_if_present(std::string_view name) {
  const int64_t index = find(name);
  if (index >= 0) mark(index);
  return index >= 0;
}

bool Checkpoint::has(std::string_view name) const { return impl_->find(name) >= 0; }

std::vector<std::string> Checkpoint::unbound() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < impl_->tensors.size(); ++i)
    if (!impl_->marked[i]) out.push_back(impl_->tensors[i].name);
  return out;
}

void Checkpoint::mark_known(std::string_view prefix) const {
  if (impl_->synthetic) return;  // All that is there was bound.
  const auto& tensors = impl_->tensors;
  const auto first = std::lower_bound(tensors.begin(), tensors.end(), prefix,
                                      [](const TensorInfo& tensor, std::string_view p) { return tensor.name < p; });
  for (auto at = first; at != tensors.end() && at->name.compare(0, prefix.size(), prefix) == 0; ++at)
    impl_->mark(at - tensors.begin());
}

// ---- Binding by name

Result<int64_t> Checkpoint::Impl::checked(std::string_view name, const Shape& shape) {
  const int64_t index = find(name);
  if (index < 0) return missing(name);
  const TensorInfo& tensor = tensors[static_cast<size_t>(index)];
  if (!tensor.supported)
    return fault(index, cat("expected a dtype that is supported, found ", tensor.dtype_name, " ", tensor.shape));
  if (!matches(tensor.shape, shape))
    return fault(index, cat("expected ", shown(shape), ", found ", tensor.dtype, " ", tensor.shape));
  mark(index);
  return index;
}

Result<Tensor> Checkpoint::Impl::tensor(int64_t index) {
  const TensorInfo& info = tensors[static_cast<size_t>(index)];
  WP_TRY(const std::byte* at, aligned(data[static_cast<size_t>(index)], info.size_bytes, wp::size_bytes(info.dtype)));
  return Tensor(at, info.dtype, info.shape);
}

void Checkpoint::Impl::Release::operator()(std::byte* memory) const {
  ::operator delete (memory, std::align_val_t{kCopyAlignment});
}

Result<std::byte*> Checkpoint::Impl::copy_room(const CopyKey& key, int64_t copy_bytes, bool& fresh) {
  auto& slot = copies[key];
  fresh = slot == nullptr;
  if (fresh)
    slot.reset(static_cast<std::byte*>(::operator new (static_cast<size_t>(std::max<int64_t>(copy_bytes, 1)),
                                                       std::align_val_t{kCopyAlignment}, std::nothrow)));
  if (!slot) return Error{ErrorCode::no_memory, cat(path, ": no memory to copy a tensor of ", copy_bytes, " bytes")};
  return slot.get();
}

Result<const std::byte*> Checkpoint::Impl::aligned(const std::byte* source, int64_t bytes, int64_t alignment) {
  if (reinterpret_cast<uintptr_t>(source) % static_cast<uintptr_t>(alignment) == 0) return source;
  bool fresh = false;
  WP_TRY(std::byte * copy, copy_room({source, bytes, false}, bytes, fresh));
  if (fresh && bytes > 0) std::memcpy(copy, source, static_cast<size_t>(bytes));
  return copy;
}

Result<const float*> Checkpoint::Impl::as_f32(int64_t index) {
  const TensorInfo& info = tensors[static_cast<size_t>(index)];
  const std::byte* source = data[static_cast<size_t>(index)];
  if (info.dtype == DType::f32) {
    WP_TRY(const std::byte* at, aligned(source, info.size_bytes, 4));
    return reinterpret_cast<const float*>(at);
  }
  if (info.dtype != DType::f16 && info.dtype != DType::bf16)
    return fault(index, cat("expected f32, f16 or bf16, found ", info.dtype, " ", info.shape));
  bool fresh = false;
  WP_TRY(std::byte * copy, copy_room({source, info.size_bytes, true}, info.size_bytes * 2, fresh));
  auto* out = reinterpret_cast<float*>(copy);
  for (int64_t i = 0, count = fresh ? info.size_bytes / 2 : 0; i < count; ++i) {
    const auto bits = load<uint16_t>(source + 2 * i);
    out[i] = info.dtype == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
  return out;
}

Result<Tensor> Checkpoint::bind(std::string_view name, DType dtype, const Shape& shape) const {
  const int64_t index = impl_->find(name);
  if (index < 0) return impl_->missing(name);
  const TensorInfo& found = impl_->tensors[static_cast<size_t>(index)];
  if (!found.supported || found.dtype != dtype || !matches(found.shape, shape))
    return impl_->fault(index, cat("expected ", dtype, " ", shown(shape), ", found ",
                                   found.supported ? wp::name(found.dtype) : found.dtype_name, " ", found.shape));
  impl_->mark(index);
  return impl_->tensor(index);
}

Result<Tensor> Checkpoint::bind_any(std::string_view name, const Shape& shape) const {
  if (impl_->synthetic) WP_TRY(impl_->synthetic->declare(*impl_, std::string(name), DType::f8_e4m3, shape));
  WP_TRY(const int64_t index, impl_->checked(name, shape));
  return impl_->tensor(index);
}

Result<Tensor> Checkpoint::bind_f32(std::string_view name, const Shape& shape) const {
  if (impl_->synthetic) {
    const bool scale = name.ends_with("weight_scale");
    WP_TRY(impl_->synthetic->declare(*impl_, std::string(name), scale ? DType::f32 : DType::bf16, shape));
  }
  WP_TRY(const int64_t index, impl_->checked(name, shape));
  WP_TRY(const float* values, impl_->as_f32(index));
  return Tensor(values, DType::f32, impl_->tensors[static_cast<size_t>(index)].shape);
}

void Checkpoint::discard(const Matrix& matrix) const {
  // Copies stay: their pages are not the file's, and dropping them would lose them.
  for (const MappedFile& file : impl_->files) {
    if (matrix.data && file.contains(matrix.data)) file.discard(matrix.data, matrix.data_bytes());
    if (matrix.scale && file.contains(matrix.scale)) file.discard(matrix.scale, matrix.scale_bytes());
  }
}

}  // namespace wp
