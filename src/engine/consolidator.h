// Consolidator: prefills the tokens of finished turns while nobody waits for the engine, piece by piece, so that the
// next turn of each conversation begins at the end of the last (spec/prefix_cache.md 14). Only canonical rows may be
// shared, and what decode wrote is not canonical; this computes it again with the prefill kernels.
//
// It runs in a slot that nobody has, since it works only where no sequence runs. When a request comes, it publishes how
// far it got and lets go of slot and pages before that request is looked at: nothing waits longer than a piece, and
// nothing that was computed is lost. Optional throughout: what finds no room is dropped. Engine thread only.
#pragma once

#include <deque>
#include <optional>
#include <span>

#include "cache/prefix_cache.h"
#include "core/clock.h"
#include "engine/engine.h"
#include "engine/spill.h"
#include "engine/step.h"

namespace wp {

class Consolidator {
 public:
  // All outlive it.
  Consolidator(PrefixCache& cache, Step& step, Spill& spill, Clock& clock)
      : cache_(cache), step_(step), spill_(spill), clock_(clock) {}

  void add(Consolidation turn);  // Whole pages, in range. The oldest goes where there are too many.
  void drop_all();
  // One piece, or the end of a turn for which nothing is left to do. False: no turn waits.
  bool work();
  // A request has waited since `submitted_ns`.
  void give_way(int64_t submitted_ns);
  // A request was leased and restored `cached` tokens. Turns that its prompt contains are its own from now on; of the
  // tokens that it computes, returns how many are theirs.
  int64_t begin_request(std::span<const TokenId> prompt, uint64_t domain, int64_t cached);
  // It has computed them.
  void end_prefill(int64_t unconsolidated, int64_t computed, int64_t elapsed_ns);

  const ConsolidationStats& stats() const { return stats_; }  // `waiting` is the engine's to count.

 private:
  static constexpr size_t kTurnsMax = 64;

  struct Running {
    Consolidation turn;
    Lease lease;
    int64_t computed = 0;
    bool state_in_slot = false;
    AnchorId anchor = kNoAnchor;  // Holds the state at `computed`, whole and not published.
  };

  bool begin_next();
  bool compute_piece();
  void publish();
  void end(bool done);

  PrefixCache& cache_;
  Step& step_;
  Spill& spill_;
  Clock& clock_;
  std::deque<Consolidation> turns_;
  std::optional<Running> running_;
  int64_t piece_end_ns_ = 0;
  ConsolidationStats stats_;
};

}  // namespace wp
