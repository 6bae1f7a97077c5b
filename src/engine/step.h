// Step: executes what was decided. Owns the device memory of the engine (pools, scratch, logits) and the arrays of a
// batch, all taken at start; decides nothing. Engine thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "engine/engine.h"
#include "model/model.h"

namespace wp {

enum class LogitRows : uint8_t { none, last, all };

// A piece of a StepPlan with everything the model needs for it. Spans live until the step has run.
struct StepSegment {
  std::span<const TokenId> tokens;  // Of its rows.
  int64_t position = 0;
  StateSource source = StateSource::zero;
  int32_t anchor = -1;
  int32_t slot = -1;
  std::span<const PageId> pages;
  std::span<const Capture> captures;
  LogitRows logits = LogitRows::none;
};

class Step {
 public:
  // Takes scratch, logits and pools from the device; an error says what did not fit and what to lower.
  static Result<std::unique_ptr<Step>> make(const Model& model, Device& device, const EngineLimits& limits);

  // Runs passes of every kind over memory that nobody owns yet, so that the first request finds kernels loaded and
  // graphs made.
  void warm_up(const EngineLimits& limits);
  // One pass. Receipts of all captures are cleared first.
  void run(Phase phase, std::span<const StepSegment> segments);
  // Logits of segment `index` of the last run; `row` counts from its first row that was asked for.
  std::span<const float> logits(size_t index, int64_t row = 0) const;

  bool capture_complete(AnchorId anchor) const { return pools_.receipts(anchor) == receipts_expected_; }
  // Where a page or an anchor lies, and copies between there and host memory. Not within run().
  std::byte* page(PageId page) const { return pools_.page(page); }
  std::byte* anchor(AnchorId anchor) const { return pools_.anchor(anchor); }
  void copy(void* to, const void* from, int64_t size_bytes) const { stream_.device().copy(to, from, size_bytes); }
  int64_t page_bytes() const { return page_bytes_; }
  int64_t anchor_bytes() const { return anchor_bytes_; }
  int64_t vocabulary() const { return vocabulary_; }
  int64_t device_bytes() const { return pools_.size_bytes() + logits_.size_bytes() + scratch_->size_bytes(); }

 private:
  Step(const Model& model, Device& device)
      : model_(model),
        stream_(device),
        page_bytes_(model.info().page_bytes),
        anchor_bytes_(model.info().anchor_bytes) {}

  const Model& model_;
  Stream stream_;
  int64_t page_bytes_, anchor_bytes_;
  Pools pools_;
  std::unique_ptr<Scratch> scratch_;
  Buffer logits_;
  int64_t vocabulary_ = 0, logit_rows_max_ = 0;
  int32_t receipts_expected_ = 0;

  std::vector<TokenId> tokens_;
  std::vector<Segment> segments_;
  std::vector<int32_t> logit_rows_;
  std::vector<int64_t> first_logit_;  // Of each segment, in `logits_`.
};

}  // namespace wp
