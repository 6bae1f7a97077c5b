#include "testing/safetensors_writer.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/assert.h"
#include "core/cat.h"
#include "core/json.h"

namespace wp::testing {

std::string safetensors_file(const std::vector<StoredBytes>& tensors, int header_padding) {
  Json header = Json::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::string data;
  for (const StoredBytes& tensor : tensors) {
    const size_t begin = data.size();
    data += tensor.bytes;
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8 + static_cast<size_t>(header_padding), ' ');
  return safetensors_file(text, data);
}

std::string safetensors_file(std::string_view header, std::string_view data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return cat(out, header, data);
}

std::string safetensors_index(const std::vector<std::pair<std::string, std::string>>& weight_map) {
  Json map = Json::object();
  for (const auto& [name, file] : weight_map) map[name] = file;
  return Json{{"metadata", {{"total_size", 0}}}, {"weight_map", std::move(map)}}.dump();
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  WP_ASSERT(file.good());
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "warmpath-test-XXXXXX").string();
  WP_ASSERT(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(std::string_view name, std::string_view bytes) const {
  const std::string path = cat(path_, "/", name);
  write_file(path, bytes);
  return path;
}

}  // namespace wp::testing
