// ScriptModel: a model that says what a test wrote down, one token a step, and then ends. Where a sequence's answer
// begins is where its prefill asked for logits. Passes can be slowed, so that a test has time inside them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "model/model.h"

namespace wp::testing {

class ScriptModel final : public Model {
 public:
  ScriptModel(int64_t vocabulary, int64_t context_max, TokenId end_token) : end_token_(end_token) {
    info_.family = "script";
    info_.description = "what a test wrote down";
    info_.layers = 1;
    info_.vocabulary = vocabulary;
    info_.context_max = context_max;
    info_.page_bytes = info_.anchor_bytes = info_.slot_bytes = 64;
    info_.capture_receipts = 1;
    info_.fingerprint = 0x5C;
    info_.multiply_adds_per_token = 1000;
  }

  void say(std::vector<TokenId> script) {
    const std::lock_guard lock(mutex_);
    script_ = std::move(script);
  }
  std::atomic<int> prefill_ms{0}, decode_ms{0};  // Of each pass.

  struct Pass {
    bool prefill;
    size_t sequences;
  };
  std::vector<Pass> passes() const {  // So far.
    const std::lock_guard lock(mutex_);
    return passes_;
  }

  const ModelInfo& info() const override { return info_; }
  Result<std::unique_ptr<Scratch>> make_scratch(Device&, const ScratchLimits&) const override {
    struct None final : Scratch {
      int64_t size_bytes() const override { return 0; }
    };
    return std::unique_ptr<Scratch>(new None);
  }
  void forward(Stream&, const Batch& batch, Pools& pools, Scratch&, const Tensor& logits) const override {
    const int ms = batch.phase == Phase::prefill ? prefill_ms : decode_ms;
    if (ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    const std::lock_guard lock(mutex_);
    passes_.push_back({batch.phase == Phase::prefill, batch.segments.size()});
    size_t next_row = 0;
    for (const Segment& segment : batch.segments) {
      for (const Capture& capture : segment.captures) pools.add_receipt(capture.anchor);
      for (; next_row < batch.logit_rows.size() && batch.logit_rows[next_row] < segment.row_begin + segment.rows;
           ++next_row) {
        const int64_t position = segment.position + batch.logit_rows[next_row] - segment.row_begin;
        if (batch.phase == Phase::prefill) answer_begins_[static_cast<size_t>(segment.slot)] = position + 1;
        const int64_t index = position + 1 - answer_begins_[static_cast<size_t>(segment.slot)];
        const bool said = index < static_cast<int64_t>(script_.size());
        float* row = logits.f32() + static_cast<int64_t>(next_row) * info_.vocabulary;
        for (int64_t i = 0; i < info_.vocabulary; ++i) row[i] = 0;
        row[said ? script_[static_cast<size_t>(index)] : end_token_] = 20;
      }
    }
  }

 private:
  ModelInfo info_;
  TokenId end_token_;
  mutable std::mutex mutex_;
  std::vector<TokenId> script_;
  mutable std::vector<Pass> passes_;
  mutable std::array<int64_t, 256> answer_begins_{};  // By slot.
};

}  // namespace wp::testing
