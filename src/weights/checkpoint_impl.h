// The inside of a Checkpoint, shared by its two sources: opening and binding by name (checkpoint.cpp), and the formats
// of linear weights (bind_matrix.cpp). One thread opens and binds; const afterwards.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/mapped_file.h"

namespace wp {

// The format that the shape of the scale of an E4M3 weight [N, K] says; nothing where it fits none.
std::optional<WeightFormat> fp8_format(const Shape& scale, int64_t N, int64_t K);

class Synthetic;

struct Checkpoint::Impl {
  Impl();
  ~Impl();

  std::string path;
  Json config, generation_config;
  ProgressSink progress;
  std::vector<MappedFile> files;
  std::vector<TensorInfo> tensors;     // By name.
  std::vector<const std::byte*> data;  // Of each of `tensors`, inside a mapping.
  std::vector<uint8_t> marked;         // Of each of `tensors`: bound or known.
  uint64_t fingerprint = 0;            // Of the headers alone.
  std::unique_ptr<Synthetic> synthetic;
  int64_t size_bytes = 0, bound_bytes = 0, reported_bytes = 0;

  // What could not be handed out as it lies in the file: by source address, bytes there and whether it became f32.
  static constexpr size_t kCopyAlignment = 64;
  using CopyKey = std::tuple<const std::byte*, int64_t, bool>;
  struct Release {
    void operator()(std::byte* memory) const;
  };
  std::map<CopyKey, std::unique_ptr<std::byte, Release>> copies;

  Result<void> map_files(const std::string& folder, const std::vector<std::string>& names);
  // By name; an error if two files hold one name.
  Result<void> sort_tensors();

  // The index in `tensors`, or -1.
  int64_t find(std::string_view name) const;
  std::string closest(std::string_view name) const;
  Error missing(std::string_view name) const;
  // "FILE: NAME: WHAT", as all messages about one tensor are.
  Error fault(int64_t index, std::string_view what) const;
  void mark(int64_t index);
  bool mark_if_present(std::string_view name);

  // The tensor with its shape checked (-1 in `shape` takes any size) and its dtype supported; marked.
  Result<int64_t> checked(std::string_view name, const Shape& shape);
  Result<Tensor> tensor(int64_t index);
  // `source` or a copy of it at an address that is a multiple of `alignment`.
  Result<const std::byte*> aligned(const std::byte* source, int64_t size_bytes, int64_t alignment);
  Result<std::byte*> copy_room(const CopyKey& key, int64_t copy_bytes, bool& fresh);
  Result<const float*> as_f32(int64_t index);

  Result<Matrix> bind_matrix(const std::string& prefix, int64_t N, int64_t K);
  Result<Matrix> bind_float(const std::string& name, int64_t N, int64_t K);
  Result<Matrix> bind_fp8(const std::string& prefix, int64_t N, int64_t K);
  Result<Matrix> bind_nvfp4(const std::string& prefix, const char* packed, const char* global, int64_t N, int64_t K);
  Result<float> bind_scalar(const std::string& name);
};

}  // namespace wp
