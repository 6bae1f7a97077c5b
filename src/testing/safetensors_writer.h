// Writes safetensors files for tests: sound ones from a list of tensors, and hostile ones from any header text. Test
// and fuzz programs only; asserts where a test asks for nonsense.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace wp::testing {

// One tensor as a file holds it: any dtype name, any shape, any bytes.
struct StoredBytes {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

// The values as they lie in memory.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// A whole file. `header_padding` spaces follow the JSON, after it was padded to a multiple of 8 as the reference writer
// does; so 1 leaves every tensor unaligned.
std::string safetensors_file(const std::vector<StoredBytes>& tensors, int header_padding = 0);
// A file of this header, whatever it says, and these bytes of data.
std::string safetensors_file(std::string_view header, std::string_view data);
// model.safetensors.index.json: pairs of tensor and file.
std::string safetensors_index(const std::vector<std::pair<std::string, std::string>>& weight_map);

void write_file(const std::string& path, std::string_view bytes);

// A folder of its own for one test, removed with all it holds.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file in the folder and returns its path.
  std::string write(std::string_view name, std::string_view bytes) const;

 private:
  std::string path_;
};

}  // namespace wp::testing
