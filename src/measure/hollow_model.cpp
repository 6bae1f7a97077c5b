#include "measure/hollow_model.h"

#include <algorithm>

namespace wp::measure {
namespace {

// An anchor weighs as much as so many pages: the flagship's ratio (spec/prefix_cache.md 5), since what an eviction
// frees is part of its choice.
constexpr int64_t kPageBytes = 64, kAnchorBytes = 65 * kPageBytes;

struct Nothing final : Scratch {
  int64_t size_bytes() const override { return 0; }
};

}  // namespace

HollowModel::HollowModel(int64_t vocabulary, int64_t context_max, TokenId end_token) : end_token_(end_token) {
  info_.family = "hollow";
  info_.description = "no arithmetic";
  info_.layers = 1;
  info_.vocabulary = vocabulary;
  info_.context_max = context_max;
  info_.multiply_adds_per_token = 1;
  info_.page_bytes = kPageBytes;
  info_.anchor_bytes = info_.slot_bytes = kAnchorBytes;
  info_.capture_receipts = 1;
}

Result<std::unique_ptr<Scratch>> HollowModel::make_scratch(Device&, const ScratchLimits&) const {
  return std::unique_ptr<Scratch>(std::make_unique<Nothing>());
}

void HollowModel::forward(Stream&, const Batch& batch, Pools& pools, Scratch&, const Tensor& logits) const {
  for (const Segment& segment : batch.segments)
    for (const Capture& capture : segment.captures) pools.add_receipt(capture.anchor);
  for (size_t row = 0; row < batch.logit_rows.size(); ++row) {
    const auto values =
        std::span(logits.f32() + static_cast<int64_t>(row) * info_.vocabulary, static_cast<size_t>(info_.vocabulary));
    std::fill(values.begin(), values.end(), 0.0f);
    values[static_cast<size_t>(end_token_)] = 1;
  }
}

}  // namespace wp::measure
