// Captures: admission (prefix_cache.md 7), the two phases (13), publication, displacement (9) and holds (13).
#include <algorithm>

#include "cache/prefix_cache_impl.h"
#include "core/assert.h"

namespace wp {
namespace {

// How often a newcomer wins against its equal. Less than half: who is in the pool is found there at its next turn.
constexpr int kNewcomerPercent = 33;

}  // namespace

bool PrefixCache::Impl::is_expected(const LeaseRecord& record, int64_t position) const {
  return std::find(record.expected_branches.begin(), record.expected_branches.end(), position) !=
         record.expected_branches.end();
}

bool PrefixCache::Impl::may_capture(const LeaseRecord& record, int64_t position, CaptureClass capture_class) const {
  const int64_t tokens_count = static_cast<int64_t>(record.tokens.size());
  const bool expected = is_expected(record, position);  // A request waits for it: a short one too, and on any rung.
  if (record.bypass || (tokens_count < kCapturePromptTokensMin && !expected)) return false;
  if (position <= 0 || position % kPageTokens != 0 || position >= tokens_count + record.prefix_only) return false;
  if (position < record.match.anchor_position) return false;  // Never computed by this sequence.
  if (capture_class == CaptureClass::branch)                  // On evidence.
    return position == record.match.branch_position || expected;
  return capture_class != CaptureClass::ladder || expected || !free_anchors.empty();
}

bool PrefixCache::Impl::captured_already(const LeaseRecord& record, int64_t position) const {
  const std::span<const TokenId> tokens(record.tokens);
  const size_t depth = static_cast<size_t>(position / kPageTokens);
  NodeIndex at = kNoNode;
  if (depth <= record.path.size()) {
    at = record.path[depth - 1];
  } else {
    at = record.path.empty() ? kNoNode : record.path.back();
    for (size_t i = record.path.size(); i < depth; ++i) {
      at = tree.find_child(at, record.domain, tokens.data() + i * kPageTokens);
      if (at == kNoNode) break;
    }
  }
  if (at != kNoNode && tree[at].anchor != kNoAnchor) return true;
  return std::any_of(anchors.begin(), anchors.end(), [&](const Anchor& anchor) {
    return anchor.state == Anchor::State::pending && anchor.position == position &&
           anchor.record->domain == record.domain && same_prefix(tokens, anchor.record->tokens, position);
  });
}

// The deepest anchor below `position` on the lease's way, published or its own and pending; 0: none.
int64_t PrefixCache::Impl::anchor_below(const LeaseRecord& record, int64_t position) const {
  int64_t below = record.match.anchor_position < position ? record.match.anchor_position : 0;
  for (const Anchor& anchor : anchors)
    if (anchor.state == Anchor::State::pending && anchor.record == &record && anchor.position < position)
      below = std::max(below, anchor.position);
  for (size_t i = record.path.size(); i-- > 0 && tree[record.path[i]].end > below;)
    if (tree[record.path[i]].anchor != kNoAnchor && tree[record.path[i]].end < position)
      return tree[record.path[i]].end;
  return below;
}

// Whether a newcomer may push this victim out. Never a more valuable one. Among equals it takes part in the choice:
// where more is at work than there are anchors, a pool whose every miss pushes a neighbour out hits least.
bool PrefixCache::Impl::is_worth(const LeaseRecord& record, int64_t position, CaptureClass capture_class,
                                 const Victim& found) {
  if (is_expected(record, position)) return true;
  const int64_t now_ns = clock.now_ns();
  int64_t tokens = position - anchor_below(record, position);
  // A tail takes the place of the one it restored, which goes first from now on.
  if (is_tail(capture_class) && record.restoring != kNoAnchor && is_tail(anchors[record.restoring].capture_class))
    tokens += measure(anchors[record.restoring]).tokens;
  const double newcomer =
      value_of(tokens, tokens / kPageTokens, Wanted::anchor) * (capture_class == CaptureClass::ladder ? 0 : 1);
  const double victim = value(anchors[found.anchor], Wanted::anchor, now_ns);
  if (newcomer > victim * kEqualFactor) return true;
  const bool admitted = newcomer * kEqualFactor >= victim && rng.percent(kNewcomerPercent);
  counters.equals_admitted += admitted;
  return admitted;
}

std::optional<AnchorId> PrefixCache::Impl::refuse(CaptureRefusal reason) {
  ++counters.refused_by_reason[static_cast<size_t>(reason)];
  return std::nullopt;
}

std::optional<AnchorId> PrefixCache::Impl::reserve(LeaseRecord& record, int64_t position, CaptureClass capture_class) {
  if (!may_capture(record, position, capture_class)) {
    ++counters.skipped_by_class[static_cast<size_t>(capture_class)];
    return std::nullopt;
  }
  if (captured_already(record, position)) {
    ++counters.deduped_by_class[static_cast<size_t>(capture_class)];
    return std::nullopt;
  }
  const bool probation = record.one_shot && is_tail(capture_class);
  if (free_anchors.empty()) {
    const Victim found = victim_for_anchor(probation);
    if (found.anchor == kNoAnchor) return refuse(CaptureRefusal::none_evictable);
    if (found.reason == EvictionReason::value && !probation && !is_worth(record, position, capture_class, found))
      return refuse(CaptureRefusal::worth_less);
    evict(found);
  }
  const AnchorId id = free_anchors.back();
  free_anchors.pop_back();
  anchors[id] = Anchor{.state = Anchor::State::pending,
                       .capture_class = capture_class,
                       .probation = probation,
                       .position = position,
                       .record = &record,
                       .conversation = record.conversation,
                       .gap_ns = record.gap_ns};
  return id;
}

void PrefixCache::Impl::abandon(AnchorId id) {
  WP_ASSERT(id >= 0 && id < limits.anchors && anchors[id].state == Anchor::State::pending);  // Given back once.
  free_anchor(id);
}

// The lease's own pages below `position` become nodes, and the lease a holder of them. No page changes its id under a
// running sequence: where an equal node exists and nobody holds it, the node takes this lease's page and gives up its
// own; where somebody reads the node's page, both stay and this lease keeps its duplicate to the end. So a publication
// never makes more pages unevictable than it owns (the promise in prefix_cache_impl.h).
void PrefixCache::Impl::publish_pages(LeaseRecord& record, std::span<const TokenId> tokens, int64_t position) {
  for (size_t i = record.path.size(); i < static_cast<size_t>(position / kPageTokens); ++i) {
    const NodeIndex parent = record.path.empty() ? kNoNode : record.path.back();
    const TokenId* begin = tokens.data() + i * kPageTokens;
    NodeIndex child = tree.find_child(parent, record.domain, begin);
    if (child == kNoNode) {
      child = tree.add_held_child(parent, record.domain, begin);
      tree.give_page(child, record.pages[i]);
      tree[child].conversation = record.conversation;
    } else if (tree[child].page == kNoPage) {
      tree.hold(child);
      tree.give_page(child, record.pages[i]);
    } else {
      if (tree[child].holders == 0) tree.put_free_page(tree.swap_page(child, record.pages[i]));
      tree.hold(child);
    }
    record.path.push_back(child);
  }
}

bool PrefixCache::Impl::publish(LeaseRecord& record, std::span<const TokenId> tokens, int64_t position, AnchorId id) {
  WP_ASSERT(id >= 0 && id < limits.anchors);
  Anchor& anchor = anchors[id];
  // C4: this anchor, of this sequence, at the boundary it was reserved for, over tokens that are the sequence's.
  WP_ASSERT(anchor.state == Anchor::State::pending && anchor.record == &record && anchor.position == position);
  WP_ASSERT(same_prefix(tokens, record.tokens, position));
  WP_ASSERT(static_cast<int64_t>(record.pages.size()) * kPageTokens >= position);
  release_restoring(record);
  publish_pages(record, tokens, position);
  const NodeIndex node = record.path[static_cast<size_t>(position / kPageTokens) - 1];
  const auto pin = std::find_if(record.pins.begin(), record.pins.end(),
                                [&](const LeaseRecord::Pin& one) { return one.position == position; });
  if (tree[node].anchor != kNoAnchor) {  // Equal bits: the old one stays.
    if (pin != record.pins.end()) hold_anchor(anchors[tree[node].anchor], pin->until_ns);
    ++counters.deduped_by_class[static_cast<size_t>(anchor.capture_class)];
    free_anchor(id);
    return false;
  }
  tree.attach_anchor(node, id);
  anchor.state = Anchor::State::published;
  anchor.node = node;
  anchor.record = nullptr;
  anchor.used_order = ++order;
  anchor.used_ns = clock.now_ns();
  measure(anchor);
  forget_segments_beside(anchor);
  announce(node);
  ++counters.published_by_class[static_cast<size_t>(anchor.capture_class)];
  supersede(record, id);
  if (pin != record.pins.end()) hold_anchor(anchor, pin->until_ns);
  return true;
}

// Displacement: a conversation's new tail demotes its previous one, a new user point the previous user point. Nothing
// is freed here; the demoted are only first in line.
void PrefixCache::Impl::supersede(const LeaseRecord& record, AnchorId newcomer) {
  Anchor& anchor = anchors[newcomer];
  if (!belongs_to_conversation(anchor.capture_class)) return;
  const auto demote = [&](Anchor& old) {
    if (old.superseded) return;
    // A consolidation is no sign of the next request: what the conversation waits for is still to come.
    if (record.prefix_only && is_tail(old.capture_class)) anchor.held_until_ns = old.held_until_ns;
    old.superseded = true;
    old.superseded_order = ++order;
    old.held_until_ns = 0;
  };
  bool nearest = true;
  for (NodeIndex at = tree[anchor.node].parent; at != kNoNode; at = tree[at].parent) {
    if (tree[at].anchor == kNoAnchor) continue;
    Anchor& old = anchors[tree[at].anchor];
    if (!belongs_to_conversation(old.capture_class) || is_tail(old.capture_class) != is_tail(anchor.capture_class))
      continue;
    const bool same = old.conversation == record.conversation;
    const bool labelled = record.conversation != kNoConversation && old.conversation != kNoConversation;
    // Without a label on both sides the one it extends is taken to be its own; further up may be anybody's.
    if (same ? (labelled || nearest) : (!labelled && nearest)) demote(old);
    nearest = false;
  }
  Conversation* conversation = conversations.find(record.conversation);
  if (!conversation || !is_tail(anchor.capture_class)) return;
  // Its history was edited: the tail that no longer lies on its path is as old as one that does. A request that only
  // carries the same label, and restored nothing of the conversation, is no proof of that.
  if (conversation->tail != kNoAnchor && record.restored_own) demote(anchors[conversation->tail]);
  conversation->tail = newcomer;
}

void PrefixCache::Impl::hold_anchor(Anchor& anchor, int64_t until_ns) {
  const int64_t now_ns = clock.now_ns();
  const bool held = anchor.held_until_ns > now_ns;
  if (!held && (anchors_held(now_ns) + 1) * 100 > limits.anchors * limits.held_percent_max) {
    ++counters.hold_denials;
    return;
  }
  anchor.held_until_ns = std::max(anchor.held_until_ns, until_ns);
  anchor.superseded = false;
}

void PrefixCache::Impl::hold(std::string_view label) {
  conversations.for_each_labelled(label, [&](Conversation& conversation) {
    if (conversation.tail != kNoAnchor) hold_anchor(anchors[conversation.tail], clock.now_ns() + limits.hold_ns);
  });
}

void PrefixCache::Impl::pin(LeaseRecord& record, int64_t position, int64_t pin_ns) {
  if (record.bypass || position <= 0 || position % kPageTokens != 0) return;
  const int64_t until_ns = clock.now_ns() + pin_ns;
  record.pins.push_back({position, until_ns});
  const size_t depth = static_cast<size_t>(position / kPageTokens);
  if (depth > record.path.size()) return;  // Still to come.
  if (const AnchorId id = tree[record.path[depth - 1]].anchor; id != kNoAnchor) hold_anchor(anchors[id], until_ns);
}

void PrefixCache::Impl::drop_hold(std::string_view label) {
  conversations.for_each_labelled(label, [&](Conversation& conversation) {
    if (conversation.tail != kNoAnchor) anchors[conversation.tail].held_until_ns = 0;
  });
}

}  // namespace wp
