#include "weights/synthetic_writer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "weights/checkpoint_impl.h"

namespace wp {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = 16 << 20;

Error cannot_write(const std::string& path) { return Error{ErrorCode::io, cat(path, ": cannot write")}; }

Result<void> write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return cannot_write(path);
  return {};
}

// Tensors of one file, as indices.
using Part = std::vector<size_t>;

std::vector<Part> split(const std::vector<TensorInfo>& tensors, int64_t file_bytes_max) {
  std::vector<Part> parts;
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (parts.empty() || bytes + tensors[i].size_bytes > file_bytes_max) {
      parts.emplace_back();
      bytes = 0;
    }
    parts.back().push_back(i);
    bytes += tensors[i].size_bytes;
  }
  return parts;
}

std::string header_of(const std::vector<TensorInfo>& tensors, const Part& part) {
  Json header = Json::object();
  int64_t at = 0;
  for (const size_t i : part) {
    const TensorInfo& tensor = tensors[i];
    Json shape = Json::array();
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) shape.push_back(tensor.shape[axis]);
    header[tensor.name] = {
        {"dtype", tensor.dtype_name}, {"shape", shape}, {"data_offsets", {at, at + tensor.size_bytes}}};
    at += tensor.size_bytes;
  }
  std::string text = dump_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

// A tensor that no rule makes (the hash's constants) lies in memory as it is.
Result<void> Checkpoint::write_tensor(size_t index, std::ostream& out) const {
  const TensorInfo& tensor = impl_->tensors[index];
  const std::byte* data = impl_->data[index];
  const RandomFill* fill = random_fill(data);
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kPieceBytes, tensor.size_bytes)));
  for (int64_t begin = 0; begin < tensor.size_bytes; begin += kPieceBytes) {
    const int64_t end = std::min(begin + kPieceBytes, tensor.size_bytes);
    if (fill) fill_random(*fill, begin, end, piece.data());
    else std::memcpy(piece.data(), data + begin, static_cast<size_t>(end - begin));
    out.write(reinterpret_cast<const char*>(piece.data()), end - begin);
  }
  return {};
}

Result<void> write_synthetic(const Checkpoint& checkpoint, const std::string& folder, const ProgressSink& progress,
                             int64_t file_bytes_max) {
  std::error_code fault;
  if (fs::exists(folder, fault))
    return Error{ErrorCode::bad_request, cat(folder, ": expected a folder that is not there yet, found one")};
  if (!fs::create_directories(folder, fault)) return cannot_write(folder);
  const auto& tensors = checkpoint.tensors();
  const auto parts = split(tensors, file_bytes_max);
  Json weight_map = Json::object();
  LoadProgress state{
      .phase = "write", .files_total = static_cast<int64_t>(parts.size()), .bytes_total = checkpoint.size_bytes()};
  for (size_t p = 0; p < parts.size(); ++p) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", p + 1, parts.size());
    const std::string path = folder + "/" + name, header = header_of(tensors, parts[p]);
    std::ofstream file(path, std::ios::binary);
    const auto length = static_cast<uint64_t>(header.size());
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header;
    for (const size_t i : parts[p]) {
      WP_TRY(checkpoint.write_tensor(i, file));
      weight_map[tensors[i].name] = name;
      state.bytes_done += tensors[i].size_bytes;
      state.file = name;
      if (progress) progress(state);
    }
    file.close();
    if (!file) return cannot_write(path);
    ++state.files_done;
  }
  const Json index = {{"metadata", {{"total_size", checkpoint.size_bytes()}}}, {"weight_map", weight_map}};
  WP_TRY(write_text(folder + "/model.safetensors.index.json", dump_json(index)));
  return write_text(folder + "/config.json", dump_json(checkpoint.config()) + "\n");
}

}  // namespace wp
