#include "model/binder.h"

#include <algorithm>
#include <cstring>

#include "model/staged_packing.h"

namespace wp {

void Binder::count(const Matrix& matrix) {
  parameters_ += matrix.N * matrix.K;
  weight_bytes_ += matrix.data_bytes() + matrix.scale_bytes();
}

Result<void> Binder::keep(Result<Matrix> found, Matrix& to) {
  WP_TRY(to, std::move(found));
  count(to);
  queue(to);
  return {};
}

void Binder::queue(Matrix& to) {
  packed_bytes_ += ops::packed_bytes(device_, to);
  to_pack_.push_back(&to);
}

Result<void> Binder::matrix(const std::string& prefix, int64_t N, int64_t K, Matrix& to) {
  return keep(checkpoint_->bind_matrix(prefix, N, K), to);
}

Result<void> Binder::table(const std::string& prefix, int64_t N, int64_t K, Matrix& to) {
  WP_TRY(to, checkpoint_->bind_matrix(prefix, N, K));
  made_table(to);
  return {};
}

// Packing for a device without sight of host memory keeps rows.
void Binder::made_table(Matrix& table) {
  count(table);
  skipped_bytes_ += table.data_bytes() + table.scale_bytes();
  if (!reads_host_memory(device_)) queue(table);
}

void Binder::tie(const Matrix& table, Matrix& to) {
  to = table;
  skipped_bytes_ -= table.data_bytes() + table.scale_bytes();
  queue(to);
}

void Binder::place(const void* data, DType dtype, const Shape& shape, Tensor& view) {
  view = Tensor(data, dtype, shape);
  packed_bytes_ += ops::placed_bytes(device_, view.size_bytes());
  to_place_.push_back(&view);
}

void Binder::share(const std::vector<Matrix>& matrices, std::span<const Matrix>& view) {
  const auto bytes = static_cast<int64_t>(matrices.size() * sizeof(Matrix));
  shared_bytes_ += ops::placed_bytes(device_, bytes);
  to_share_.push_back({matrices.data(), bytes, [&view, count = matrices.size()](const void* data) {
                         view = {static_cast<const Matrix*>(data), count};
                       }});
}

Result<void> Binder::vector(const std::string& name, const Shape& shape, Tensor& to) {
  WP_TRY(host_vector(name, shape, to));
  place(to.data, DType::f32, shape, to);
  return {};
}

Result<void> Binder::host_vector(const std::string& name, const Shape& shape, Tensor& to) {
  WP_TRY(to, checkpoint_->bind_f32(name, shape));
  parameters_ += to.count();
  weight_bytes_ += to.size_bytes();
  return {};
}

Result<void> Binder::integers(const std::string& name, int64_t count, std::vector<int64_t>& to) {
  WP_TRY(const Tensor found, checkpoint_->bind(name, DType::i64, {count}));
  to.resize(static_cast<size_t>(count));
  std::memcpy(to.data(), found.data, static_cast<size_t>(found.size_bytes()));
  return {};
}

Result<void> Binder::experts(const std::string& prefix, int64_t E, int64_t A, int64_t F, int64_t M,
                             std::vector<kernels::ExpertWeights>& to, std::span<const kernels::ExpertWeights>& view) {
  to.resize(static_cast<size_t>(E));
  const std::string gate_up = prefix + ".experts.gate_up_proj", down = prefix + ".experts.down_proj";
  const bool fused = has(gate_up);
  const int64_t before = weight_bytes_;
  for (int64_t e = 0; e < E; ++e) {
    kernels::ExpertWeights& expert = to[static_cast<size_t>(e)];
    if (fused) {
      WP_TRY(keep(checkpoint_->bind_expert(gate_up, E, 2 * F, M, e, 0, F), expert.gate));
      WP_TRY(keep(checkpoint_->bind_expert(gate_up, E, 2 * F, M, e, F, F), expert.up));
      WP_TRY(keep(checkpoint_->bind_expert(down, E, M, F, e, 0, M), expert.down));
    } else {
      const std::string one = cat(prefix, ".experts.", e);
      WP_TRY(matrix(one + ".gate_proj", F, M, expert.gate));
      WP_TRY(matrix(one + ".up_proj", F, M, expert.up));
      WP_TRY(matrix(one + ".down_proj", M, F, expert.down));
    }
  }
  skipped_bytes_ += (weight_bytes_ - before) / E * (E - A);
  // Read by every block of a kernel's threads, so not across the bus.
  const auto bytes = static_cast<int64_t>(to.size() * sizeof(kernels::ExpertWeights));
  packed_bytes_ += ops::placed_bytes(device_, bytes);
  to_list_.push_back({to.data(), bytes, [&view, count = to.size()](const void* data) {
                        view = {static_cast<const kernels::ExpertWeights*>(data), count};
                      }});
  return {};
}

// Synthetic weights are made where they are used; others come from the files.
Result<void> Binder::pack_for_device(Device& device, ops::WeightArena& arena,
                                     const std::function<void(const Matrix& rows)>& packed) {
  if (!checkpoint_->is_synthetic())
    return pack_staged(device, arena, to_pack_, {}, [&](const Matrix& rows) {
      checkpoint_->discard(rows);
      packed(rows);
    });
  Stream stream(device);
  int64_t largest = 0;
  for (const Matrix* matrix : to_pack_) largest = std::max(largest, ops::WeightArena::staging_bytes(*matrix));
  WP_TRY(const Buffer staging, Buffer::make(device, largest, "staging of weights", Memory::device));
  for (Matrix* matrix : to_pack_) {
    const Matrix rows = *matrix;
    *matrix = arena.pack_random(stream, rows, checkpoint_->random_fill(rows.data), checkpoint_->random_fill(rows.scale),
                                staging);
    packed(rows);
  }
  return {};
}

Result<ops::WeightArena> Binder::pack(Device& device, const ProgressSink& progress) {
  WP_TRY(auto arena, ops::WeightArena::make(device, packed_bytes_, shared_bytes_));
  for (const Matrix* matrix : to_pack_) widest_ = std::max(widest_, matrix->K);
  LoadProgress state{.phase = "weights", .bytes_total = weight_bytes_};
  const auto packed = [&](const Matrix& rows) {
    state.bytes_done += rows.data_bytes() + rows.scale_bytes();
    if (progress) progress(state);
  };
  if (!reads_host_memory(device_)) {
    WP_TRY(pack_for_device(device, arena, packed));
  } else {
    for (Matrix* matrix : to_pack_) {
      const Matrix rows = *matrix;
      *matrix = arena.pack(rows);
      if (matrix->data != rows.data) checkpoint_->discard(rows);
      packed(rows);
    }
  }
  for (Tensor* tensor : to_place_)
    *tensor = Tensor(arena.place(tensor->data, tensor->size_bytes()), tensor->dtype, tensor->shape);
  for (const Shared& list : to_list_) list.set(arena.place(list.data, list.size_bytes));
  for (const Shared& shared : to_share_) shared.set(arena.share(shared.data, shared.size_bytes));
  to_pack_.clear();
  to_place_.clear();
  to_list_.clear();
  to_share_.clear();
  return arena;
}

Result<void> bind_conv(Binder& binder, const std::string& name, int64_t channels, int64_t taps, std::vector<float>& to,
                       Tensor& view) {
  Tensor weight;
  WP_TRY(binder.host_vector(name, {channels, 1, taps}, weight));
  to.resize(static_cast<size_t>(channels * taps));
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < taps; ++i) to[static_cast<size_t>(i * channels + c)] = weight.f32()[c * taps + i];
  binder.place(to.data(), DType::f32, {taps, channels}, view);
  return {};
}

}  // namespace wp
