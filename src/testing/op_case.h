// OpCase: inputs, outputs and a batch for one call of an operation, drawn from a seed, so that every backend gets the
// same numbers; and the comparison of what backends return with ref. Test and bench programs only.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/matrix.h"
#include "core/rng.h"
#include "device/device.h"
#include "kernels/segments.h"
#include "ops/packing.h"

namespace wp::testing {

// Consecutive rows of one sequence, from `position`; what was before lies in its own record, in another, or nowhere.
struct SegmentCase {
  int32_t rows = 1, position = 0;
  enum Source { zero, other, same } source = zero;
  std::vector<int32_t> captures;  // Rows after which the state is taken.
};

class OpCase {
 public:
  // Memory of devices whose allocations are slow: where tensors are taken from, and a workspace.
  struct Memory {
    Buffer pool;
    Buffer work;  // Of the device's own.
  };
  // `memory`: null: each tensor is an allocation.
  OpCase(Stream& stream, Seed seed, Memory* memory = nullptr) : stream_(stream), memory_(memory), rng_(seed) {}

  Rng& rng() { return rng_; }
  Stream& stream() { return stream_; }

  // Normal numbers times `scale`; and memory whose every byte is 0xFF, so that what is not written shows.
  Tensor filled(const Shape& shape, double scale = 1);
  Tensor blank(const Shape& shape, DType dtype = DType::f32);
  Tensor integers(const std::vector<int32_t>& values);

  // Host values where kernels of every backend read them; lives as long as the case.
  template <class T>
  std::span<T> copied(const std::vector<T>& values) {
    const Tensor bytes = blank({static_cast<int64_t>(values.size() * sizeof(T))}, DType::u8);
    T* to = reinterpret_cast<T*>(bytes.data);
    std::copy(values.begin(), values.end(), to);
    return {to, values.size()};
  }
  // The batch of this one segment, which begins at row 0.
  kernels::BatchView batch_of(const kernels::SegmentView& segment);

  // A weight with random codes, in the checkpoint's order; and as the backend packs it, if it does.
  Matrix rows_matrix(WeightFormat format, int64_t N, int64_t K);
  Matrix packed(const Matrix& rows);
  Matrix matrix(WeightFormat format, int64_t N, int64_t K) { return packed(rows_matrix(format, N, K)); }

  // Builds states (random numbers), pages (random numbers) and the view. One batch for a case.
  const kernels::BatchView& batch(const std::vector<SegmentCase>& segments, int64_t state_bytes, int64_t page_bytes);
  std::byte* state_out(size_t segment) const { return records_[segment].data(); }
  std::byte* capture(size_t index) const { return captures_[index].data(); }
  Tensor pages() const;  // All of them, [floats].
  kernels::Workspace workspace(int64_t context_max);

  // What the case is about: appended to `results`.
  void give(const Tensor& tensor);
  void give_states(int64_t state_bytes);  // state_out of every segment, then every capture; as floats.
  const std::vector<float>& results() const { return results_; }

 private:
  Buffer buffer(int64_t size_bytes);
  Tensor take(const Shape& shape, DType dtype);

  Stream& stream_;
  Memory* memory_;
  int64_t pool_used_ = 0;
  Rng rng_;
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<ops::WeightArena>> arenas_;
  std::vector<Buffer> records_, before_, captures_;
  Buffer pages_;
  kernels::BatchView view_;
  std::vector<float> results_;
};

// The backends that this program has and this machine can run: ref, cpu and, where there is a GPU, cuda.
std::vector<DeviceKind> backends();

// Runs the case on all of them; each result may differ from ref's by `tolerance` * (1 + the largest value). On cpu
// every instruction set and number of threads must give the same bits. Returns ref's results.
std::vector<float> compare_backends(Seed seed, double tolerance, const std::function<void(OpCase&)>& run);

// Whether cpu gives the same bits on each instruction set of this machine (with another number of threads on each).
bool equal_on_all_instruction_sets(Seed seed, const std::function<void(OpCase&)>& run);

// The segments that op tests share: long and short ones, at the sequence's begin and inside blocks, windows and pages.
std::vector<SegmentCase> awkward_segments();
std::vector<WeightFormat> all_formats();

}  // namespace wp::testing
