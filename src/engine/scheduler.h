// Scheduler: decides what the next step does, in numbers. Touches no device, no cache and no request. One engine
// thread; its only memory is which kind of step came last and how fast passes were.
//
// Rules, in order:
//   1. A step is one decode pass over all sequences that can take a token, or one prefill pass. Never both. Where both
//      have work they alternate, so that between two prefill passes every running stream moves on by a token.
//   2. A prefill pass beside running streams is sized, by the measured speed of earlier passes, to end within
//      stall_ns less a decode pass; at least 64 rows, at most pass_tokens. Without streams: pass_tokens.
//   3. Its rows go to the prompts with the fewest tokens left first: a warm turn of a few hundred tokens does not
//      wait behind a hundred thousand. But a prompt that has waited 8 - 2k steps (k prompts in prefill, at least 0)
//      goes before those, longest wait first, with half of the rows where others want some too. So with up to four
//      prompts in prefill each has a piece within 8 steps; with more, within 2k, since 64 rows is the least.
//   4. A piece begins where the sequence stands and ends on the 64-grid or at the end of its prompt.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace wp {

// One running sequence, as the scheduler sees it.
struct SequenceView {
  int32_t index = -1;     // In the running table.
  bool decoding = false;  // Else in prefill.
  bool ready = true;      // Decoding, and its reader has room.
  int64_t position = 0;   // Tokens computed.
  int64_t prompt = 0;
  int64_t steps_waited = 0;
  uint64_t order = 0;
  bool all_logits = false;  // prompt_logprobs: small pieces, one such sequence in a pass.
};

struct Piece {
  int32_t sequence = -1;  // Index in the running table.
  int64_t position = 0;
  int32_t rows = 0;
};

struct StepPlan {
  enum class Kind : uint8_t { none, prefill, decode };
  Kind kind = Kind::none;
  std::vector<Piece> pieces;  // In row order.
  int64_t rows = 0;
};

// How long passes take: worst recent ns per unit of work, by size of the pass, since small passes are bound by reading
// weights and large ones by arithmetic. Work is multiply-adds, so that a deep context counts.
class PassSpeed {
 public:
  explicit PassSpeed(const ModelInfo& info);
  double work(int64_t position, int64_t rows) const;
  void measured(int64_t rows, double work, int64_t elapsed_ns);
  // Upper estimate; -1 where nothing is known yet.
  double estimate_ns(int64_t position, int64_t rows) const;

 private:
  static constexpr int kBuckets = 104;  // To a million rows.
  static int bucket_of(int64_t rows);
  static int64_t first_rows(int bucket);
  double per_token_, per_key_, per_block_;
  int64_t sparse_bound_;
  std::array<double, kBuckets> ns_per_work_{};  // By size; 0: not measured.
};

class Scheduler {
 public:
  Scheduler(const EngineLimits& limits, const ModelInfo& info);

  // Fills `plan` for these sequences. Allocates nothing once its lists have grown to `sequences`.
  void decide(std::span<const SequenceView> sequences, StepPlan& plan);
  // What the decided step took.
  void measured(const StepPlan& plan, int64_t elapsed_ns);

  // Estimated prefill of tokens [begin, end), for log lines; 0 where nothing was measured yet.
  int64_t prefill_ns(int64_t begin, int64_t end) const;
  // Rows of a prefill pass beside running streams: its deepest prompt stands at `position`, and a decode pass of up to
  // `decoders` rows follows.
  int64_t rows_within_stall(int64_t position, int64_t decoders) const;

 private:
  double decode_estimate_ns(int64_t rows) const;
  void plan_decode(std::span<const SequenceView> sequences, StepPlan& plan) const;
  void plan_prefill(std::span<const SequenceView> sequences, int64_t rows, StepPlan& plan);

  int64_t pass_tokens_, stall_ns_;
  PassSpeed speed_;
  bool prefill_was_last_ = false;
  std::vector<double> decode_ns_;      // Worst recent decode pass, by rows; 0: not measured.
  std::vector<SequenceView> wanting_;  // Scratch of plan_prefill.
};

}  // namespace wp
