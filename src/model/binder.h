// Binder: takes a family's weights from a checkpoint, counts them, and packs for the device all that are multiplied by.
// Holds pointers to the Matrix fields it filled: a family's layers must not move between bind and pack. Loading thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/matrix.h"
#include "ops/moe.h"
#include "ops/packing.h"
#include "weights/checkpoint.h"

namespace wp {

class Binder {
 public:
  Binder(const Checkpoint& checkpoint, DeviceKind device) : checkpoint_(&checkpoint), device_(device) {}

  const Checkpoint& checkpoint() const { return *checkpoint_; }
  bool has(const std::string& name) const { return checkpoint_->has(name); }

  // The linear weight PREFIX.weight, to be packed.
  Result<void> matrix(const std::string& prefix, int64_t N, int64_t K, Matrix& to);
  // The same, for looking rows up: stays in the checkpoint's order.
  Result<void> table(const std::string& prefix, int64_t N, int64_t K, Matrix& to);
  // A small vector, as f32, to be placed where kernels read it.
  Result<void> vector(const std::string& name, const Shape& shape, Tensor& to);
  // The same where the host alone reads it, from the checkpoint.
  Result<void> host_vector(const std::string& name, const Shape& shape, Tensor& to);
  // Numbers in host memory that outlive the binder: `view` becomes where kernels read them.
  void place(const void* data, DType dtype, const Shape& shape, Tensor& view);
  Result<void> integers(const std::string& name, int64_t count, std::vector<int64_t>& to);
  // Routed experts PREFIX.experts in either layout, fused or one by one (spec/qwen4_exp.md 2.6); a token takes A of E.
  Result<void> experts(const std::string& prefix, int64_t E, int64_t A, int64_t F, int64_t M,
                       std::vector<kernels::ExpertWeights>& to, std::span<const kernels::ExpertWeights>& view);
  // Matrices in host memory, once they are packed: `view` becomes an array that kernels read as well as the host.
  void share(const std::vector<Matrix>& matrices, std::span<const Matrix>& view);
  // The head of a tied model is its embedding.
  void tie(const Matrix& table, Matrix& to);
  // A matrix that was made by hand from bound tensors and stays in rows.
  void made_table(Matrix& table);

  // Packs everything for the device, in the order of binding. `done` is told how many bytes of how many.
  Result<ops::WeightArena> pack(Device& device, const ProgressSink& progress);

  int64_t parameters() const { return parameters_; }
  int64_t weight_bytes() const { return weight_bytes_; }
  int64_t widest() const { return widest_; }  // The longest row of a matrix that is packed.
  int64_t weight_bytes_per_token() const { return weight_bytes_ - skipped_bytes_; }

 private:
  struct Shared {
    const void* data;
    int64_t size_bytes;
    std::function<void(const void*)> set;
  };

  Result<void> keep(Result<Matrix> found, Matrix& to);
  void queue(Matrix& to);
  Result<void> pack_for_device(Device& device, ops::WeightArena& arena,
                               const std::function<void(const Matrix& rows)>& packed);
  void count(const Matrix& matrix);

  const Checkpoint* checkpoint_;
  DeviceKind device_;
  std::vector<Matrix*> to_pack_;
  std::vector<Tensor*> to_place_;
  std::vector<Shared> to_list_;  // Placed once the matrices in them are packed.
  std::vector<Shared> to_share_;
  int64_t skipped_bytes_ = 0;  // Weights that one token does not read: tables, experts it does not take.
  int64_t parameters_ = 0, weight_bytes_ = 0, packed_bytes_ = 0, shared_bytes_ = 0, widest_ = 0;
};

// A depthwise convolution's weight, [channels, 1, taps] in the checkpoint, turned to [taps, channels]; `view` is where
// kernels read it.
Result<void> bind_conv(Binder& binder, const std::string& name, int64_t channels, int64_t taps, std::vector<float>& to,
                       Tensor& view);

}  // namespace wp
