// Leases: the promise of pages, the path held, and the way home (prefix_cache.md 13).
#include <algorithm>

#include "cache/prefix_cache_impl.h"
#include "core/assert.h"

namespace wp {

bool PrefixCache::Impl::fits(int64_t pages_promised, std::span<const NodeIndex> shared) const {
  const int64_t now_held = std::count_if(shared.begin(), shared.end(), [&](NodeIndex at) { return !tree[at].holders; });
  const int64_t owed = pages_owed + pages_promised - static_cast<int64_t>(shared.size());
  return owed <= tree.pages_free() + tree.pages_unheld() - now_held;
}

LeaseRecord* PrefixCache::Impl::start_lease(const PrefixQuery& query, Match match, int64_t pages_promised) {
  const size_t shared = static_cast<size_t>(match.anchor_position / kPageTokens);
  if (!fits(pages_promised, std::span(path).first(shared))) return nullptr;
  if (free_records.empty()) {
    records.push_back(std::make_unique<LeaseRecord>());
    free_records.push_back(records.back().get());
  }
  LeaseRecord& record = *free_records.back();
  free_records.pop_back();
  record.live = true;
  record.tokens.assign(query.tokens.begin(), query.tokens.end());
  record.domain = query.domain;
  record.bypass = query.bypass != nullptr;
  record.prefix_only = query.prefix_only;
  record.expected_branches.clear();
  record.pins.clear();
  record.pages_promised = pages_promised;
  record.pages.clear();
  record.pages.reserve(static_cast<size_t>(pages_promised));
  record.path.assign(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(shared));
  for (const NodeIndex index : record.path) {
    tree.hold(index);
    record.pages.push_back(tree[index].page);
  }
  pages_owed += pages_promised - static_cast<int64_t>(shared);
  record.match = std::move(match);
  recognize(query, record);
  count_lookup(query, record);
  return &record;
}

// Who asks: its conversation, and whether it has proved that it returns. Touches what it uses, and nothing else.
void PrefixCache::Impl::recognize(const PrefixQuery& query, LeaseRecord& record) {
  const int64_t now_ns = clock.now_ns();
  bool proven = false, ghost_seen = false;
  CaptureClass ghost_class = CaptureClass::tail;
  record.restoring = record.match.anchor;
  record.conversation = kNoConversation;
  record.restored_own = false;
  record.gap_ns = 0;
  if (!record.bypass) {
    for (const NodeIndex index : path) {
      if (!tree[index].ghost) continue;
      tree.see_ghost(index, now_ns);
      ghost_seen = true;
      ghost_class = tree[index].ghost_class;
      proven |= belongs_to_conversation(tree[index].ghost_class);
    }
    tree.see_domain(query.domain);
    record.conversation = conversations.see(query.domain, query.conversation);
  }
  if (record.restoring != kNoAnchor) {
    Anchor& anchor = anchors[record.restoring];
    ++anchor.readers;
    if (belongs_to_conversation(anchor.capture_class)) record.gap_ns = note_gap(anchor, record.prefix_only, now_ns);
    else
      anchor.shared |=
          !record.prefix_only && (record.conversation == kNoConversation || record.conversation != anchor.conversation);
    anchor.superseded = anchor.probation = false;
    anchor.used_order = ++order;
    anchor.used_ns = now_ns;
    proven |= belongs_to_conversation(anchor.capture_class);
    if (record.conversation == kNoConversation && belongs_to_conversation(anchor.capture_class))
      record.conversation = anchor.conversation;  // It extends that one's tail.
    record.restored_own = record.conversation != kNoConversation && anchor.conversation == record.conversation &&
                          belongs_to_conversation(anchor.capture_class);
  }
  counters.ghost_hits_by_class[static_cast<size_t>(ghost_class)] += ghost_seen;
  record.one_shot = !proven && !query.continues && query.conversation.empty() &&
                    static_cast<int64_t>(query.tokens.size()) <= kOneShotTokensMax;
}

// How long the conversation was away, smoothed with what is known of it. A consolidation is not its return.
int64_t PrefixCache::Impl::note_gap(const Anchor& anchor, bool prefix_only, int64_t now_ns) {
  if (prefix_only) return anchor.gap_ns;
  const double gap_ns = static_cast<double>(std::max<int64_t>(1, now_ns - anchor.used_ns));
  const auto smoothed = [gap_ns](double known) { return known > 0 ? known + (gap_ns - known) / 4 : gap_ns; };
  typical_gap_ns = smoothed(typical_gap_ns);
  return static_cast<int64_t>(std::max(1.0, smoothed(static_cast<double>(anchor.gap_ns))));
}

void PrefixCache::Impl::count_lookup(const PrefixQuery& query, const LeaseRecord& record) {
  if (record.prefix_only) return;
  const Match& match = record.match;
  ++counters.lookups;
  ++counters.misses[static_cast<size_t>(match.reason)];
  if (record.bypass) return;
  counters.query_tokens += static_cast<int64_t>(query.tokens.size());
  counters.hit_tokens += match.anchor_position;
  counters.recomputed_tokens += match.match - match.anchor_position;
  if (match.anchor == kNoAnchor) return;
  ++counters.restores;
  counters.hit_tokens_by_class[static_cast<size_t>(match.anchor_class)] += match.anchor_position;
}

void PrefixCache::Impl::extend(LeaseRecord& record, int64_t tokens_end) {
  const int64_t pages_end = pages_for(tokens_end);
  WP_ASSERT(pages_end <= record.pages_promised);  // More than was promised at acquire().
  while (static_cast<int64_t>(record.pages.size()) < pages_end) {
    while (tree.pages_free() == 0) {
      const Victim victim = victim_for_pages();
      WP_ASSERT(victim.anchor != kNoAnchor);  // The promise: what is not free can be had.
      evict(victim);
    }
    record.pages.push_back(tree.take_free_page());
    --pages_owed;
  }
}

void PrefixCache::Impl::release_restoring(LeaseRecord& record) {
  if (record.restoring == kNoAnchor) return;
  WP_ASSERT(anchors[record.restoring].readers > 0);
  --anchors[record.restoring].readers;
  record.restoring = kNoAnchor;
}

void PrefixCache::Impl::end_lease(LeaseRecord& record) {
  WP_ASSERT(record.live);
  for (AnchorId id = 0; id < limits.anchors; ++id)
    if (anchors[id].state == Anchor::State::pending && anchors[id].record == &record) abandon(id);
  release_restoring(record);
  pages_owed -= record.pages_promised - static_cast<int64_t>(record.pages.size());
  for (size_t i = 0; i < record.pages.size(); ++i)
    if (is_own(record, i)) tree.put_free_page(record.pages[i]);
  const int32_t cached = tree.pages_cached();
  // From the end: a node goes before its parent is looked at.
  for (auto index = record.path.rbegin(); index != record.path.rend(); ++index) tree.unhold(*index);
  if (tree.pages_cached() != cached)  // Pages above which no anchor was left.
    for (Anchor& anchor : anchors) anchor.measured = false;
  record.pages.clear();
  record.path.clear();
  record.match = Match{};
  record.live = false;
  free_records.push_back(&record);
}

}  // namespace wp
