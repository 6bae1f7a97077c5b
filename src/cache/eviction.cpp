// Eviction (prefix_cache.md 10): who goes first. Ends in at most as many steps as there are anchors; with nothing
// evictable it refuses.
#include <algorithm>
#include <cmath>

#include "cache/cache_events.h"
#include "cache/prefix_cache_impl.h"
#include "core/assert.h"

namespace wp {
namespace {

constexpr double kMinute_ns = 60e9;

// What conversations share is used more often than what belongs to one, once a second one has used it. Before, it
// serves only its own: as its tail where that has nothing deeper, else hardly ever.
constexpr double kUnsharedExpected = 0.25, kSharedExpected = 4;

// So many of its usual gaps a conversation may be away before its return is half as likely. Returns have a long tail (a
// tool takes seconds, its user lunch), so the chance falls with the time away and not exponentially: who has been away
// for a hundred gaps stands behind all that are at work, and before nobody else.
constexpr double kGapsOfGrace = 5;

// Who has not come back yet gives way to who has, below its quota too.
constexpr double kProbationFactor = 0.125;

}  // namespace

double half_life_ns(CaptureClass capture_class) {
  switch (capture_class) {
    case CaptureClass::system: return 24 * 60 * kMinute_ns;
    case CaptureClass::tail:
    case CaptureClass::assistant: return 60 * kMinute_ns;
    case CaptureClass::user:
    case CaptureClass::branch: return 30 * kMinute_ns;
    case CaptureClass::ladder: return 10 * kMinute_ns;
  }
  return kMinute_ns;
}

void PrefixCache::Impl::free_anchor(AnchorId id) {
  anchors[id] = Anchor{};
  free_anchors.push_back(id);
}

bool PrefixCache::Impl::evictable(const Anchor& anchor) const {
  return anchor.state == Anchor::State::published && anchor.readers == 0;
}

const TokenTree::Segment& PrefixCache::Impl::measure(Anchor& anchor) const {
  if (!anchor.measured) anchor.segment = tree.segment(anchor.node);
  anchor.measured = true;
  return anchor.segment;
}

// `anchor` comes or goes: what those whose segment it cuts or shares stand for has changed. Kept, since an eviction
// asks every anchor, and a path is thousands of nodes long.
void PrefixCache::Impl::forget_segments_beside(const Anchor& anchor) {
  const AnchorId id = tree[anchor.node].anchor;
  for (Anchor& other : anchors)
    if (other.segment.top == anchor.segment.top || other.segment.above == id) other.measured = false;
  if (anchor.segment.above != kNoAnchor) anchors[anchor.segment.above].measured = false;
}

double PrefixCache::Impl::expected_uses(const Anchor& anchor, int64_t now_ns) const {
  const double age_ns = static_cast<double>(std::max<int64_t>(0, now_ns - anchor.used_ns));
  double expected = std::exp2(-age_ns / half_life_ns(anchor.capture_class));
  if (anchor.probation) expected *= kProbationFactor;
  if (!belongs_to_conversation(anchor.capture_class)) {
    if (anchor.shared) return expected * kSharedExpected;
    if (tree[anchor.node].support > 1) return expected * kUnsharedExpected;
  }
  const double gap_ns = anchor.gap_ns > 0 ? static_cast<double>(anchor.gap_ns) : typical_gap_ns;
  return gap_ns > 0 ? expected / std::pow(1 + age_ns / (kGapsOfGrace * gap_ns), 2) : expected;
}

// Of what an eviction frees that counts which is wanted. Where pages are short an anchor more is no help; where an
// anchor is wanted its pages count as far as pages are in use.
double PrefixCache::Impl::value_of(int64_t tokens, int64_t pages, Wanted wanted) const {
  const double pages_bytes = static_cast<double>(limits.page_bytes) * static_cast<double>(pages);
  const double used = 1 - static_cast<double>(tree.pages_free()) / limits.pages;
  const double bytes =
      wanted == Wanted::pages ? pages_bytes : static_cast<double>(limits.anchor_bytes) + used * pages_bytes;
  return static_cast<double>(tokens) / bytes;
}

double PrefixCache::Impl::value(Anchor& anchor, Wanted wanted, int64_t now_ns) const {
  const TokenTree::Segment& alone = measure(anchor);
  return expected_uses(anchor, now_ns) * value_of(alone.tokens, alone.pages, wanted);
}

template <class Allowed>
PrefixCache::Impl::Victim PrefixCache::Impl::victim(Wanted wanted, int32_t newcomers_on_probation, Allowed allowed) {
  const int64_t now_ns = clock.now_ns();
  int32_t probation_count = newcomers_on_probation;
  AnchorId superseded = kNoAnchor, probation = kNoAnchor, ladder = kNoAnchor;
  const auto earlier = [&](AnchorId id, AnchorId other, uint64_t Anchor::*stamp) {
    return other == kNoAnchor || anchors[id].*stamp < anchors[other].*stamp;
  };
  candidates.clear();
  for (AnchorId id = 0; id < limits.anchors; ++id) {
    const Anchor& anchor = anchors[id];
    probation_count += anchor.state != Anchor::State::free && anchor.probation;
    if (!evictable(anchor) || !allowed(anchor)) continue;
    candidates.push_back({id, 0});
    if (anchor.superseded && earlier(id, superseded, &Anchor::superseded_order)) superseded = id;
    if (anchor.probation && earlier(id, probation, &Anchor::used_order)) probation = id;
    if (anchor.capture_class == CaptureClass::ladder && earlier(id, ladder, &Anchor::used_order)) ladder = id;
  }
  if (superseded != kNoAnchor) return {superseded, EvictionReason::superseded};
  if (probation != kNoAnchor && probation_count * 100 > limits.anchors * limits.probation_percent)
    return {probation, EvictionReason::probation};
  if (ladder != kNoAnchor) return {ladder, EvictionReason::ladder};
  if (candidates.empty()) return {};

  double lowest = INFINITY;
  for (Candidate& candidate : candidates) {
    candidate.value = value(anchors[candidate.anchor], wanted, now_ns);
    lowest = std::min(lowest, candidate.value);
  }
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.value > lowest * kEqualFactor; });
  const int64_t last = static_cast<int64_t>(candidates.size()) - 1;
  counters.victims_drawn += last > 0;
  return {candidates[static_cast<size_t>(rng.between(0, last))].anchor, EvictionReason::value};
}

PrefixCache::Impl::Victim PrefixCache::Impl::victim_for_anchor(bool newcomer_on_probation) {
  const int64_t now_ns = clock.now_ns();
  return victim(Wanted::anchor, newcomer_on_probation,
                [&](const Anchor& anchor) { return anchor.held_until_ns <= now_ns; });
}

PrefixCache::Impl::Victim PrefixCache::Impl::victim_for_pages() {
  const int64_t now_ns = clock.now_ns();
  const auto gives_pages = [&](const Anchor& anchor) { return tree.eviction_frees_pages(anchor.node); };
  const Victim found = victim(
      Wanted::pages, 0, [&](const Anchor& anchor) { return anchor.held_until_ns <= now_ns && gives_pages(anchor); });
  if (found.anchor != kNoAnchor) return found;
  // A hold is policy: a running sequence's promise goes before it.
  const Victim held = victim(Wanted::pages, 0, gives_pages);
  counters.holds_overridden += held.anchor != kNoAnchor;
  return held;
}

void PrefixCache::Impl::evict(Victim victim) {
  const AnchorId id = victim.anchor;
  Anchor& anchor = anchors[id];
  WP_ASSERT(evictable(anchor));
  measure(anchor);
  forget_segments_beside(anchor);
  ++counters.evictions[static_cast<size_t>(anchor.capture_class)][static_cast<size_t>(victim.reason)];
  conversations.forget_tail(anchor.conversation, id);
  withdraw(anchor.node);
  tree.detach_anchor(anchor.node, anchor.capture_class, clock.now_ns());
  free_anchor(id);
}

void PrefixCache::Impl::forget(const PrefixQuery& query) {
  std::vector<AnchorId> on_path;
  tree.walk(query.tokens, query.domain, path);
  for (const NodeIndex index : path)
    if (tree[index].anchor != kNoAnchor) on_path.push_back(tree[index].anchor);
  for (auto id = on_path.rbegin(); id != on_path.rend(); ++id) {
    const Anchor& anchor = anchors[*id];
    if (!evictable(anchor) || !belongs_to_conversation(anchor.capture_class) || tree[anchor.node].support > 1) return;
    evict({*id, EvictionReason::flush});
  }
}

int64_t PrefixCache::Impl::flush() {
  const int32_t pages_free = tree.pages_free();
  silent = true;
  for (AnchorId id = 0; id < limits.anchors; ++id)
    if (evictable(anchors[id])) evict({id, EvictionReason::flush});
  tree.forget_ghosts();
  conversations.clear();
  silent = false;
  if (listener) listener->cleared();
  tell_all();  // What somebody reads is still there.
  return tree.pages_free() - pages_free;
}

int32_t PrefixCache::Impl::anchors_held(int64_t now_ns) const {
  return static_cast<int32_t>(std::count_if(anchors.begin(), anchors.end(), [&](const Anchor& anchor) {
    return anchor.state == Anchor::State::published && anchor.held_until_ns > now_ns;
  }));
}

}  // namespace wp
