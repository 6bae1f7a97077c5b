// The header of a safetensors file and the index of a sharded checkpoint: bytes in, checked plain data out. Trusts
// nothing it reads, touches no file, allocates in proportion to the bytes given. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/tensor.h"

namespace wp {

// The format's own limit for the JSON part of a file; the index of the largest releases has 150,000 names in 15 MB.
constexpr int64_t kHeaderBytesMax = 100'000'000;

// A dtype of the format. Those that a tensor of ours cannot have are known by size, so that the file can be checked.
struct StoredType {
  const char* name;  // "F8_E4M3".
  int bits;
  DType dtype;     // If supported.
  bool supported;  // Else binding it is an error, reading the file is not.
};

struct StoredTensor {
  std::string name;
  const StoredType* type;
  Shape shape;
  int64_t begin, end;  // Bytes, from the beginning of the file.
};

struct SafetensorsHeader {
  int64_t data_begin = 0;             // Bytes before the data: 8 and the JSON.
  std::vector<StoredTensor> tensors;  // By name; no name twice; spans inside the file and without overlap.
};

// `file` is the whole file or a part that holds at least its header; `file_bytes` is the size of all of it. Messages
// name the tensor; the caller adds the file. Gaps between spans pass.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file, int64_t file_bytes);

// model.safetensors.index.json: pairs of tensor and file, by tensor. A file is a base name; nothing leaves the folder.
Result<std::vector<std::pair<std::string, std::string>>> parse_safetensors_index(std::string_view text);

// A name from a file, fit for a one-line message: control characters escaped, cut at 160 bytes.
std::string printable(std::string_view name);

}  // namespace wp
