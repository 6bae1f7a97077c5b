// Pass: a Batch as the kernels see it, built in memory that was taken at start. Engine thread; one pass at a time: on a
// device that does not read host memory, begin() waits for the pass before.
#pragma once

#include <vector>

#include "model/model.h"
#include "ops/batch.h"

namespace wp {

class Pass {
 public:
  Pass(const ScratchLimits& limits, int64_t page_bytes);
  int64_t size_bytes() const;
  // Takes memory for a copy of the description on a device that does not read host memory.
  Result<void> prepare(Device& device);

  // Translates ids to pointers and checks the batch against the limits; aborts on one that breaks them. Clears the
  // receipts of every anchor that this pass is to capture.
  void begin(Stream& stream, const Batch& batch, Pools& pools);
  // A layer has written its part of all captures.
  void sign_captures();

  const ops::BatchView& view() const { return view_; }
  int64_t rows() const { return view_.rows; }
  Tensor tokens() const { return tokens_; }          // [T]
  Tensor logit_rows() const { return logit_rows_; }  // [R]

 private:
  void add(const Segment& segment);
  int64_t description_bytes() const;
  void upload(Stream& stream, const Batch& batch);

  ScratchLimits limits_;
  int64_t page_bytes_;
  std::vector<ops::SegmentView> segments_;
  std::vector<ops::CaptureView> captures_;
  std::vector<int32_t> capture_anchors_;
  std::vector<int32_t> row_segment_, row_position_;
  ops::BatchView view_;
  Tensor tokens_, logit_rows_;
  Pools* pools_ = nullptr;
  Buffer staging_, description_;  // Empty where kernels read host memory.
};

}  // namespace wp
