// Synthetic checkpoints: random weights of any configuration, in the checkpoint's own names, shapes and formats, drawn
// so that activations stay in range: projections keep the size of their input, gates stay near their middle, routers
// and heads prefer some rows to others. A tensor exists once it is bound; its numbers depend on seed and name alone.
// Loading thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/random_fill.h"
#include "weights/checkpoint_impl.h"

namespace wp {

// Declares tensors of a Checkpoint::Impl and owns the addresses at which they lie.
class Synthetic {
 public:
  using Impl = Checkpoint::Impl;

  static Result<std::unique_ptr<Synthetic>> make(const SyntheticOptions& options);
  ~Synthetic();

  // Adds the tensor unless it is there; dims of -1 are refused.
  Result<void> declare(Impl& checkpoint, const std::string& name, DType dtype, const Shape& shape);
  // A linear weight with the companions that its format has.
  Result<void> declare_matrix(Impl& checkpoint, const std::string& prefix, int64_t N, int64_t K);
  Result<void> declare_integers(Impl& checkpoint, const std::string& name, const std::vector<int64_t>& values);
  int64_t find(std::string_view name) const;
  const RandomFill* fill_at(const void* data) const;

 private:
  explicit Synthetic(const SyntheticOptions& options) : options_(options) {}
  Result<std::byte*> add(Impl& checkpoint, const std::string& name, DType dtype, const Shape& shape);
  Result<void> declare_random(Impl& checkpoint, const std::string& name, DType dtype, const Shape& shape,
                              RandomFill fill);
  bool is_quantized(const std::string& prefix, int64_t K) const;

  SyntheticOptions options_;
  std::byte* base_ = nullptr;
  int64_t used_bytes_ = 0;
  std::unordered_map<std::string, int64_t> index_;
  std::unordered_map<const void*, RandomFill> fills_;
};

}  // namespace wp
