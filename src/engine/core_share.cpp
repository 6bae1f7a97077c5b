// Requests that begin alike and come at the same time: the first computes what they share, the others wait in the queue
// until its state is published, and resume from there (spec/prefix_cache.md; the pages are the tree's by then).
#include <algorithm>

#include "engine/captures.h"
#include "engine/core.h"

namespace wp {
namespace {

// For less it is not worth standing in the queue.
constexpr int64_t kSharedTokensMin = 2 * kPageTokens;

int64_t common_tokens(const Sequence& a, const Sequence& b) {
  const int64_t shorter = std::min(a.prompt, b.prompt);
  return std::mismatch(a.tokens.begin(), a.tokens.begin() + shorter, b.tokens.begin()).first - a.tokens.begin();
}

bool captures_at(const Sequence& sequence, int64_t position) {
  return std::any_of(sequence.captures.begin(), sequence.captures.end(),
                     [&](const CapturePoint& point) { return point.position == position; });
}

}  // namespace

bool EngineCore::waits_for_prefix(Sequence& sequence) {
  const auto other = std::find_if(running_.begin(), running_.end(), [&](const auto& running) {
    return running && sequence.waits_position > 0 && running->order == sequence.waits_for;
  });
  // A point that is no longer ahead has been published, or could not be captured.
  if (other != running_.end() && captures_at(**other, sequence.waits_position)) return true;
  sequence.waits_position = 0;

  const PrefixQuery query = query_of(sequence);
  if (query.bypass) return false;
  int64_t cached = -1;  // Looked up only where somebody might share.
  for (const auto& running : running_) {
    if (!running || running->phase != SequencePhase::prefill || running->prompt < kCapturePromptMin) continue;
    if (running->request.cache.domain != query.domain || running->lease.match().reason == MissReason::bypass) continue;
    if (cached < 0) cached = cache_->find(query).anchor_position;
    const int64_t position = position_to_share(*running, sequence, cached);
    if (position <= cached) continue;
    expect_branch(*running, position);
    counts_.shared_prefills += !sequence.has_waited;
    sequence.has_waited = true;
    sequence.waits_for = running->order;
    sequence.waits_position = position;
    return true;
  }
  return false;
}

// Where the other's state would serve this request, and is still to come; 0: nowhere that would save anything.
int64_t EngineCore::position_to_share(Sequence& other, const Sequence& sequence, int64_t cached) const {
  if (other.computed < cached) return 0;  // This one is further already.
  int64_t shared = std::min({common_tokens(other, sequence), sequence.prompt - 1, other.prompt - 1});
  shared = shared / kPageTokens * kPageTokens;
  if (shared - cached < kSharedTokensMin || shared <= other.computed) return 0;
  const auto extra = std::count_if(other.captures.begin(), other.captures.end(), [](const CapturePoint& point) {
    return point.capture_class == CaptureClass::branch;
  });
  if (captures_at(other, shared) || extra < kSharersPerTurn) return shared;
  int64_t deepest = 0;  // One of the points it has.
  for (const CapturePoint& point : other.captures)
    if (point.position <= shared) deepest = std::max(deepest, point.position);
  return deepest - cached < kSharedTokensMin ? 0 : deepest;
}

void EngineCore::expect_branch(Sequence& other, int64_t position) {
  cache_->expect_branch(other.lease, position);
  if (captures_at(other, position)) return;
  const auto behind = std::find_if(other.captures.begin(), other.captures.end(),
                                   [&](const CapturePoint& point) { return point.position > position; });
  other.captures.insert(behind, {position, CaptureClass::branch});
}

}  // namespace wp
