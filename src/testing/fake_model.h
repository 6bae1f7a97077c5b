// FakeModel: a model whose every number is a hash of the token history, so that a wrong page, state, position or slot
// shows at the first read. Implements Model (model/model.h) with passes, pieces, captures and receipts like a real one.
//
// A row of a page holds two running hashes of all tokens up to it: `chain`, into which the phase that computed each
// row is mixed, and `pure`, of the tokens alone. A state holds both after its last token, once for each of the layers.
// A pass reads the state, checks that all layers agree and stand at the segment's position, then walks every row of
// every page below it and checks position, token and both hashes. Prefill also checks that no decode pass had a part in
// what it reads: only canonical rows may be shared. Logits are a function of `pure`, so an answer is one of the tokens,
// however it was computed. Findings are kept, not thrown: violation() is empty as long as all is well.
//
// forward() from one thread; violation() from any.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "testing/fake_clock.h"

namespace wp::testing {

// What a broken kernel would do: negative controls.
enum class Fault : uint8_t {
  none,
  silent_partial_capture,  // A layer writes no part of the anchor, and leaves its receipt.
  honest_partial_capture,  // A layer writes no part and leaves no receipt.
  capture_off_by_64,       // The anchor holds the state of 64 tokens before.
  capture_at_pass_end,     // The anchor holds the state at the end of the segment.
  row_not_written,         // The last row of each page stays as it was.
  slot_not_written,        // The state is not stored.
  anchor_written,          // A pass writes to the anchor that it reads its state from.
  rows_reused,             // A pass that begins at an anchor takes the rows that lie above it for its own.
  pending_row_dropped      // A layer's part of the anchor lacks the last token before it: keys that were still pending.
};

struct FakeModelOptions {
  int64_t vocabulary = 64;
  int64_t context_max = 4096;
  TokenId end_token = -1;  // Gets the highest logit after one history in `end_every`; -1: never.
  int64_t end_every = 16;
  TokenId poison_token = -1;   // Rows of this token have a NaN among their logits; -1: none.
  FakeClock* clock = nullptr;  // Advanced by each pass, by these:
  int64_t pass_ns = 0, prefill_row_ns = 0, decode_row_ns = 0, prefill_row_and_key_ns = 0;
  Fault fault = Fault::none;
};

class FakeModel final : public Model {
 public:
  explicit FakeModel(const FakeModelOptions& options);

  const ModelInfo& info() const override { return info_; }
  Result<std::unique_ptr<Scratch>> make_scratch(Device& device, const ScratchLimits& limits) const override;
  void forward(Stream& stream, const Batch& batch, Pools& pools, Scratch& scratch, const Tensor& logits) const override;

  // The first thing found wrong, or empty.
  std::string violation() const;
  int64_t passes() const { return passes_; }
  int64_t shared_passes() const { return shared_passes_; }  // Prefill passes with pieces of several prompts.
  int64_t rows_checked() const { return rows_checked_; }

  // What any way of computing must give: the hash of a history, and the logits after one that ends in `last`.
  static uint64_t history(std::span<const TokenId> tokens, uint64_t before = kNoHistory);
  void write_logits(uint64_t history, TokenId last, std::span<float> row) const;
  static constexpr uint64_t kNoHistory = 0xF00D;

 private:
  struct Walk;
  void run_segment(const Batch& batch, const Segment& segment, Pools& pools) const;
  bool read_state(const Segment& segment, Pools& pools, Walk& walk) const;
  bool read_context(const Batch& batch, const Segment& segment, Pools& pools, const Walk& walk) const;
  void capture(const Segment& segment, int64_t position, const Walk& walk, const Walk& earlier, Pools& pools) const;
  void found(const std::string& what) const;

  FakeModelOptions options_;
  ModelInfo info_;
  mutable std::vector<uint64_t> pure_of_row_;  // Of the pass under way.
  mutable std::atomic<int64_t> passes_{0}, shared_passes_{0}, rows_checked_{0};
  mutable std::mutex mutex_;
  mutable std::string violation_;
};

}  // namespace wp::testing
