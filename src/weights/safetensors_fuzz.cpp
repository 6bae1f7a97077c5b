// Any bytes as a safetensors file and as an index: no crash, no memory beyond the input's size, and whatever is
// accepted lies inside the file. testdata/fuzz/safetensors/ holds the seeds.
#include <cstdint>
#include <span>

#include "core/assert.h"
#include "weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wp;
  const auto file_bytes = static_cast<int64_t>(size);
  auto header = parse_safetensors_header(std::as_bytes(std::span(data, size)), file_bytes);
  if (header.ok()) {
    for (size_t i = 0; i < header->tensors.size(); ++i) {
      const StoredTensor& tensor = header->tensors[i];
      WP_ASSERT(header->data_begin <= tensor.begin && tensor.begin <= tensor.end && tensor.end <= file_bytes);
      WP_ASSERT(tensor.shape.count() * tensor.type->bits == (tensor.end - tensor.begin) * 8);
      WP_ASSERT(i == 0 || header->tensors[i - 1].name < tensor.name);
    }
  } else {
    WP_ASSERT(header.error().code == ErrorCode::bad_file);
    WP_ASSERT(header.error().message.find('\n') == std::string::npos && header.error().message.size() < 1000);
  }
  // The JSON alone, so that mutations need not keep the length in front of it right.
  std::string framed(8, '\0');
  for (int i = 0; i < 8; ++i) framed[i] = static_cast<char>(size >> (8 * i) & 0xFF);
  framed.append(reinterpret_cast<const char*>(data), size);
  (void)parse_safetensors_header(std::as_bytes(std::span(framed.data(), framed.size())), file_bytes + 8 + 4096).ok();

  auto index = parse_safetensors_index({reinterpret_cast<const char*>(data), size});
  if (index.ok())
    for (const auto& [name, file] : *index) WP_ASSERT(!file.empty() && file.find('/') == file.npos && file != "..");
  return 0;
}
