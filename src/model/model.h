// Model: configuration, weights and forward pass of one loaded checkpoint. Knows tensors and positions, not requests.
// Const once loaded; forward() from the engine thread. One file per family implements it; families.cpp lists them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"
#include "device/device.h"
#include "weights/checkpoint.h"

namespace wp {

using TokenId = int32_t;
constexpr int64_t kPageRows = 64;  // P: tokens of a page; the grid.

// Prefill computes canonical rows, decode private ones (design.md, Numerics). By phase, never by shape.
enum class Phase : uint8_t { prefill, decode };

// Where a segment's recurrent state comes from: nothing (position 0), an immutable anchor, or the sequence's own slot.
enum class StateSource : uint8_t { zero, anchor, slot };

struct Capture {
  int64_t position;  // Multiple of 64 in (segment begin, segment end]: the state after tokens [0, position).
  int32_t anchor;    // Where it is written, inside the pass.
};

// Consecutive rows of one sequence.
struct Segment {
  int32_t row_begin = 0;  // In the batch.
  int32_t rows = 0;       // 1 in decode.
  int64_t position = 0;   // Of the first row. In prefill a multiple of 64 when the engine asks; any, from kl --pieces.
  StateSource source = StateSource::zero;
  int32_t anchor = -1;                // Read when source is anchor.
  int32_t slot = -1;                  // Written; read too when source is slot.
  std::span<const int32_t> pages;     // Page ids from position 0; cover position + rows.
  std::span<const Capture> captures;  // Ascending positions; prefill only.
};

// One pass: what a StepPlan asks of the model.
struct Batch {
  Phase phase = Phase::prefill;
  std::span<const TokenId> tokens;      // [T]
  std::span<const Segment> segments;    // In row order, covering [0, T).
  std::span<const int32_t> logit_rows;  // [R] rows whose logits are wanted, ascending.
};

struct ModelInfo {
  std::string family;       // "qwen4_exp"
  std::string description;  // "6 GDN + 2 QSA layers, 32 experts top-4, nvfp4 experts"
  int64_t layers = 0;
  int64_t vocabulary = 0;                      // Rows of the head; logits are [R, vocabulary].
  int64_t context_max = 0;                     // max_position_embeddings.
  int64_t parameters = 0;                      // Of the trunk, experts and tables included.
  int64_t weight_bytes = 0;                    // Resident for the trunk.
  int64_t weight_bytes_per_token = 0;          // Of these, what a decode step of one sequence reads, head included.
  int64_t sparse_bound = 0;                    // Tokens up to which attention is dense; 0: always dense.
  double multiply_adds_per_token = 0;          // Without attention over the context and without the head.
  double multiply_adds_per_token_and_key = 0;  // Dense attention, per visible key; sparse layers stop at sparse_bound.
  double multiply_adds_per_token_and_block = 0;  // Index scores, per visible block of 4.
  double multiply_adds_head = 0;                 // Per logits row.
  int64_t page_bytes = 0;                        // Per-token state of 64 tokens, all attention layers.
  int64_t anchor_bytes = 0;                      // Recurrent state at a grid position.
  int64_t slot_bytes = 0;                        // The same of a running sequence, plus what is pending inside a block.
  int32_t capture_receipts = 0;  // Receipts that a complete capture collects: one per layer that wrote a part.
  uint64_t fingerprint = 0;  // Of weights, format, KV dtype and layout (root key of the cache, without numerics id).
};

struct ScratchLimits {
  int64_t rows_max = 0;        // T of the largest pass.
  int64_t logit_rows_max = 0;  // R.
  int64_t segments_max = 0;
  int64_t context_max = 0;  // Longest sequence.
};

// Activations of a pass; sized once. What is inside is the family's business.
class Scratch {
 public:
  virtual ~Scratch() = default;
  virtual int64_t size_bytes() const = 0;
};

// Device memory behind page, anchor and slot ids. Records are contiguous: page p at p * page_bytes.
class Pools {
 public:
  static Result<Pools> make(Device& device, const ModelInfo& info, int32_t pages, int32_t anchors, int32_t slots);

  std::byte* page(int32_t id) const {
    WP_DASSERT(id >= 0 && id < pages_count_);
    return pages_.data() + id * page_bytes_;
  }
  std::byte* anchor(int32_t id) const {
    WP_DASSERT(id >= 0 && id < anchors_count_);
    return anchors_.data() + id * anchor_bytes_;
  }
  std::byte* slot(int32_t id) const {
    WP_DASSERT(id >= 0 && id < slots_count_);
    return slots_.data() + id * slot_bytes_;
  }
  std::byte* pages_begin() const { return pages_.data(); }  // Null: there are none.
  int32_t pages_count() const { return pages_count_; }
  int32_t anchors_count() const { return anchors_count_; }
  int32_t slots_count() const { return slots_count_; }
  int64_t size_bytes() const { return pages_.size_bytes() + anchors_.size_bytes() + slots_.size_bytes(); }

  // Receipts of a capture: cleared when its pass begins, one added by each layer that wrote its part.
  void clear_receipts(int32_t anchor) { receipts_[anchor] = 0; }
  void add_receipt(int32_t anchor) { ++receipts_[anchor]; }
  int32_t receipts(int32_t anchor) const { return receipts_[anchor]; }

 private:
  Buffer pages_, anchors_, slots_;
  int64_t page_bytes_ = 0, anchor_bytes_ = 0, slot_bytes_ = 0;
  int32_t pages_count_ = 0, anchors_count_ = 0, slots_count_ = 0;
  std::vector<int32_t> receipts_;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const Checkpoint* checkpoint() const { return nullptr; }  // That the weights were bound from.
  virtual Result<std::unique_ptr<Scratch>> make_scratch(Device& device, const ScratchLimits& limits) const = 0;
  virtual int64_t scratch_bytes(Device& /*device*/, const ScratchLimits& /*limits*/) const { return 0; }
  // Runs the batch. logits [R, V] f32, in the order of logit_rows. Allocates nothing.
  virtual void forward(Stream& stream, const Batch& batch, Pools& pools, Scratch& scratch,
                       const Tensor& logits) const = 0;
};

// Opens the checkpoint, picks the family by config.json's model_type, binds and packs the weights for the device.
// Unknown families, missing or surplus tensors and wrong shapes are errors that name them.
Result<std::unique_ptr<Model>> load_model(const std::string& path, Device& device,
                                          const ProgressSink& progress = nullptr);
// The same of a checkpoint that is open, or synthetic.
Result<std::unique_ptr<Model>> load_model(Checkpoint checkpoint, Device& device,
                                          const ProgressSink& progress = nullptr);
std::vector<std::string> model_types();  // Of families.cpp, for messages and help.

// A constant raised with every change of prefill arithmetic, mixed with backend, architecture and a hash of what the
// canonical kernels return on fixed inputs, run now.
uint64_t numerics_id(Stream& stream);
// That constant mixed with the hash alone. On cpu one value for every instruction set, compiler and thread count.
uint64_t canonical_outputs(Stream& stream);

}  // namespace wp
