// Sequence: one request under way, from submit() to its `finished` event. Made by the submitting thread, then owned
// by the queue and the engine thread; never shared.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/channel.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "store/disk_tier.h"

namespace wp {

enum class SequencePhase : uint8_t { queued, prefill, decode };

struct Sequence {
  GenerateRequest request;  // Its tokens are moved to `tokens`.
  std::shared_ptr<EventChannel> channel;
  SequencePhase phase = SequencePhase::queued;

  std::vector<TokenId> tokens;  // Prompt, then what was generated; room for all of it is reserved at submit().
  int64_t prompt = 0;           // Tokens of the prompt, n.
  int64_t computed = 0;         // Tokens whose rows lie in the pages and whose state is in the slot or the anchor.
  int64_t generated = 0;

  Lease lease;
  int32_t slot = -1;
  bool state_in_slot = false;          // After the first pass; before it, the state is the anchor's or zero.
  std::vector<CapturePoint> captures;  // Still ahead, ascending.

  Sampler sampler;
  std::vector<float> prompt_logprobs;

  // In the queue: another computes tokens that this one begins with, and publishes their state there. 0: nobody does.
  uint64_t waits_for = 0;  // Order of the other.
  int64_t waits_position = 0;
  bool has_waited = false;         // For any.
  int64_t unconsolidated = 0;      // Of the tokens it computes, those of a finished turn that nobody had time for.
  std::shared_ptr<DiskLoad> load;  // Under way, for this request.
  bool asked_tiers = false;
  int64_t load_begun_ns = 0, load_ns = 0;
  int64_t tier_position = 0, failed_position = 0;  // Of the anchor that came from a tier, or could not; 0: none.
  Tier tier = Tier::device, failed_tier = Tier::device;
  uint64_t order = 0;        // Of arrival.
  int64_t steps_waited = 0;  // Since admission or its last prefill piece.
  int64_t submitted_ns = 0, leased_ns = 0, prefill_begin_ns = -1, first_token_ns = -1, last_token_ns = -1;
  bool prefill_since_token = false;  // Another's prefill pass ran since its last token: a gap is a stall.
  bool paused = false;               // Its reader is slow.
  RequestStats stats;
};

}  // namespace wp
