#include "model/pass.h"

#include <cstring>

#include "model/layout.h"

namespace wp {

Pass::Pass(const ScratchLimits& limits, int64_t page_bytes) : limits_(limits), page_bytes_(page_bytes) {
  const auto captures = static_cast<size_t>(limits.rows_max / kPageRows + limits.segments_max);
  segments_.reserve(static_cast<size_t>(limits.segments_max));
  captures_.reserve(captures);
  capture_anchors_.reserve(captures);
  row_segment_.reserve(static_cast<size_t>(limits.rows_max));
  row_position_.reserve(static_cast<size_t>(limits.rows_max));
}

int64_t Pass::size_bytes() const {
  return static_cast<int64_t>(segments_.capacity() * sizeof(ops::SegmentView) +
                              captures_.capacity() * (sizeof(ops::CaptureView) + sizeof(int32_t)) +
                              row_segment_.capacity() * 2 * sizeof(int32_t)) +
         staging_.size_bytes() + description_.size_bytes();
}

void Pass::begin(Stream& stream, const Batch& batch, Pools& pools) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  WP_ASSERT(rows <= limits_.rows_max && static_cast<int64_t>(batch.segments.size()) <= limits_.segments_max);
  WP_ASSERT(static_cast<int64_t>(batch.logit_rows.size()) <= limits_.logit_rows_max);
  pools_ = &pools;
  segments_.clear();
  captures_.clear();
  capture_anchors_.clear();
  row_segment_.clear();
  row_position_.clear();
  for (const Segment& segment : batch.segments) {
    WP_ASSERT(batch.phase == Phase::prefill || (segment.rows == 1 && segment.captures.empty()));
    add(segment);
  }
  WP_ASSERT(static_cast<int64_t>(row_segment_.size()) == rows);
  view_ = {.rows = static_cast<int32_t>(rows),
           .segments_count = static_cast<int32_t>(segments_.size()),
           .segments = segments_.data(),
           .row_segment = row_segment_.data(),
           .row_position = row_position_.data(),
           .pages = pools.pages_count() > 0 ? pools.page(0) : nullptr,
           .page_bytes = page_bytes_,
           .decode = batch.phase == Phase::decode};
  tokens_ = Tensor(static_cast<const void*>(batch.tokens.data()), DType::i32, {rows});
  const auto logits = static_cast<int64_t>(batch.logit_rows.size());
  for (int32_t row : batch.logit_rows) WP_ASSERT(row >= 0 && row < rows);
  logit_rows_ = Tensor(static_cast<const void*>(batch.logit_rows.data()), DType::i32, {logits});
  if (description_) upload(stream, batch);
}

int64_t Pass::description_bytes() const {
  const int64_t pages = (limits_.context_max + kPageRows - 1) / kPageRows;
  const auto captures = static_cast<int64_t>(captures_.capacity() * sizeof(ops::CaptureView));
  return round_up(limits_.segments_max * static_cast<int64_t>(sizeof(ops::SegmentView)), 64) +
         limits_.segments_max * round_up(pages * 4, 64) + round_up(captures, 64) + limits_.segments_max * 64 +
         3 * round_up(limits_.rows_max * 4, 64) + round_up(limits_.logit_rows_max * 4, 64);
}

Result<void> Pass::prepare(Device& device) {
  if (reads_host_memory(device.kind())) return {};
  WP_TRY(staging_, Buffer::make(device, description_bytes(), "description of a pass", Memory::shared));
  WP_TRY(description_, Buffer::make(device, description_bytes(), "description of a pass", Memory::device));
  return {};
}

// Everything that kernels read of the pass, in one copy; the views point there afterwards.
void Pass::upload(Stream& stream, const Batch& batch) {
  stream.synchronize();
  int64_t used = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t at = used;
    used += round_up(bytes, 64);
    WP_ASSERT(used <= staging_.size_bytes());
    return at;
  };
  const auto put = [&](const auto* data, size_t count) {
    const auto bytes = static_cast<int64_t>(count * sizeof *data);
    const int64_t at = take(bytes);
    if (bytes > 0) std::memcpy(staging_.data() + at, data, static_cast<size_t>(bytes));
    return reinterpret_cast<decltype(data)>(description_.data() + at);
  };
  // What kernels get as arguments comes first: its places depend on numbers of rows alone, so that a graph holds them.
  const auto segments_bytes = static_cast<int64_t>(segments_.size() * sizeof(ops::SegmentView));
  const int64_t segments_at = take(segments_bytes);
  view_.segments = reinterpret_cast<const ops::SegmentView*>(description_.data() + segments_at);
  view_.row_segment = put(row_segment_.data(), row_segment_.size());
  view_.row_position = put(row_position_.data(), row_position_.size());
  tokens_ = Tensor(static_cast<const void*>(put(batch.tokens.data(), batch.tokens.size())), DType::i32, tokens_.shape);
  logit_rows_ = Tensor(static_cast<const void*>(put(batch.logit_rows.data(), batch.logit_rows.size())), DType::i32,
                       logit_rows_.shape);
  for (size_t i = 0; i < segments_.size(); ++i) {
    ops::SegmentView& segment = segments_[i];
    // Of a longer list only what the rows reach.
    const int64_t pages = (segment.position + segment.rows + kPageRows - 1) / kPageRows;
    segment.pages = put(segment.pages, static_cast<size_t>(pages));
    segment.captures = put(segment.captures, static_cast<size_t>(segment.captures_count));
  }
  std::memcpy(staging_.data() + segments_at, segments_.data(), static_cast<size_t>(segments_bytes));
  stream.enter("pass");
  stream.upload(description_.data(), staging_.data(), used);
}

void Pass::add(const Segment& segment) {
  const auto begin = static_cast<int32_t>(row_segment_.size());
  const int64_t end = segment.position + segment.rows;
  WP_ASSERT(segment.row_begin == begin && segment.rows > 0 && segment.position >= 0 && end <= limits_.context_max);
  WP_ASSERT(static_cast<int64_t>(segment.pages.size()) * kPageRows >= end);
  for (int32_t page : segment.pages) WP_ASSERT(page >= 0 && page < pools_->pages_count());
  ops::SegmentView view{.row_begin = begin,
                        .rows = segment.rows,
                        .position = static_cast<int32_t>(segment.position),
                        .state_out = pools_->slot(segment.slot),
                        .pages = segment.pages.data(),
                        .captures = captures_.data() + captures_.size(),
                        .captures_count = static_cast<int32_t>(segment.captures.size())};
  switch (segment.source) {
    case StateSource::zero: WP_ASSERT(segment.position == 0); break;
    case StateSource::slot: view.state_in = view.state_out; break;
    case StateSource::anchor:
      WP_ASSERT(segment.position % kPageRows == 0 && segment.position > 0);
      view.state_in = pools_->anchor(segment.anchor);
      break;
  }
  int64_t last = segment.position;
  for (const Capture& capture : segment.captures) {
    WP_ASSERT(capture.position > last && capture.position <= end && capture.position % kPageRows == 0);
    WP_ASSERT(segment.source != StateSource::anchor || capture.anchor != segment.anchor);
    WP_ASSERT(captures_.size() < captures_.capacity());
    captures_.push_back({static_cast<int32_t>(capture.position - segment.position), pools_->anchor(capture.anchor)});
    capture_anchors_.push_back(capture.anchor);
    pools_->clear_receipts(capture.anchor);
    last = capture.position;
  }
  const auto index = static_cast<int32_t>(segments_.size());
  for (int32_t row = 0; row < segment.rows; ++row) {
    row_segment_.push_back(index);
    row_position_.push_back(static_cast<int32_t>(segment.position) + row);
  }
  segments_.push_back(view);
}

void Pass::sign_captures() {
  for (int32_t anchor : capture_anchors_) pools_->add_receipt(anchor);
}

}  // namespace wp
