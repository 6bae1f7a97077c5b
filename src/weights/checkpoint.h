// Checkpoint: a model folder's config and tensors, memory-mapped and checked. The one place where names, shapes and
// offsets of a file are believed, so the one place where they are checked. Reads safetensors, single or by index.
// Owns the mappings and whatever it had to copy: every Tensor and Matrix it hands out borrows from it, is read-only and
// is aligned to the size of its dtype. One thread opens and binds; const afterwards. Never writes a file.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/matrix.h"
#include "core/random_fill.h"
#include "core/tensor.h"

namespace wp {

// Called while files are opened and while tensors are bound, so for as long as the checkpoint lives; from the loading
// thread.
struct LoadProgress {
  std::string_view phase;  // "open", "weights"
  int64_t files_done = 0, files_total = 0;
  int64_t bytes_done = 0, bytes_total = 0;
  std::string_view file;
};
using ProgressSink = std::function<void(const LoadProgress&)>;

struct TensorInfo {
  std::string name;
  std::string file;  // Base name.
  DType dtype;       // Means nothing where `supported` is false.
  Shape shape;
  int64_t offset_bytes;  // In the file.
  int64_t size_bytes;
  const char* dtype_name;  // As safetensors spells it: "F8_E4M3".
  bool supported;          // Else its dtype is known by size only; binding it is an error.
};

// Random weights of a configuration (synthetic.h).
struct SyntheticOptions {
  std::string name;  // Of the configuration, for messages.
  Json config;       // As config.json.
  bool nvfp4 = true;
  uint64_t seed = 1;
  bool fill = true;    // False: matrices are made on the device from random_fill(), and their addresses are empty.
  bool dense = false;  // Set from the configuration.
};

class Checkpoint {
 public:
  // A folder with config.json and model.safetensors or model.safetensors.index.json, or a .safetensors file (then
  // config() is null unless a config.json lies beside it). Every header is checked as a whole: length, spans sorted
  // and without overlap, products without overflow, known dtypes, no name twice, no path out of the folder.
  static Result<Checkpoint> open(const std::string& path, const ProgressSink& progress = nullptr);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // Has every tensor that a family binds, in the layout of text-only checkpoints; without a draft head.
  static Result<Checkpoint> synthesize(const SyntheticOptions& options);
  bool is_synthetic() const;
  // How the synthetic tensor at this address is made; null elsewhere.
  const RandomFill* random_fill(const void* data) const;
  // The bytes of tensors()[index].
  Result<void> write_tensor(size_t index, std::ostream& out) const;
  // Numbers that a formula gives: a synthetic checkpoint stores them, another has its own.
  Result<void> provide_integers(const std::string& name, const std::vector<int64_t>& values) const;

  const std::string& path() const;
  const Json& config() const;                      // config.json; null if there is none.
  const Json& generation_config() const;           // generation_config.json; null if there is none.
  const std::vector<TensorInfo>& tensors() const;  // By name.
  int64_t size_bytes() const;                      // Of all tensor data.
  // Hash of config.json, of every header and of sampled data of each tensor: cheap, stable over restarts. A change that
  // touches no sampled byte goes unnoticed.
  uint64_t fingerprint() const;

  bool has(std::string_view name) const;
  // The tensor `name`, which must have exactly this dtype and shape. A shape dim of -1 takes any size.
  Result<Tensor> bind(std::string_view name, DType dtype, const Shape& shape) const;
  // Any float dtype (f32, f16, bf16), converted to f32 into storage that the checkpoint keeps. For small vectors.
  Result<Tensor> bind_f32(std::string_view name, const Shape& shape) const;
  // Whatever dtype; only the shape is checked.
  Result<Tensor> bind_any(std::string_view name, const Shape& shape) const;
  // The linear weight `prefix` + ".weight" [N, K] in whatever format the tensors present make it (spec 2.6 to 2.8):
  //   float dtypes; E4M3 with weight_scale (per tensor [1] or [], per row [N] or [N, 1]) or weight_scale_inv (128x128
  //   blocks); U8 with weight_scale and weight_scale_2 (modelopt); weight_packed, weight_scale, weight_global_scale
  //   (compressed-tensors, w = fp4 * scale / global).
  Result<Matrix> bind_matrix(std::string_view prefix, int64_t N, int64_t K) const;
  // Slice e of a fused expert tensor without .weight suffix: rows [row, row + N) of [E, rows, K].
  Result<Matrix> bind_expert(std::string_view name, int64_t E, int64_t rows, int64_t K, int64_t e, int64_t row,
                             int64_t N) const;

  // Every name bound so far is marked; the rest, for "assert every tensor consumed".
  std::vector<std::string> unbound() const;
  // Marks without reading: names that a family knows and leaves unused (mtp.*, vision).
  void mark_known(std::string_view prefix) const;
  // Tells the kernel that a weight's pages are no longer needed (after packing).
  void discard(const Matrix& matrix) const;

 private:
  friend class Synthetic;
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace wp
