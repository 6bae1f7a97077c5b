// The invariants C1 to C5 and conservation (docs/invariants.md), and the statistics.
#include "cache/prefix_cache_impl.h"
#include "core/assert.h"

namespace wp {

void PrefixCache::Impl::check_anchors(int64_t in_tree) const {
  std::vector<bool> is_free(anchors.size(), false);
  for (const AnchorId id : free_anchors) {
    WP_ASSERT(!is_free[id] && anchors[id].state == Anchor::State::free);  // C1: an anchor is free once.
    is_free[id] = true;
  }
  std::vector<int32_t> readers(anchors.size(), 0);
  for (const auto& record : records)
    if (record->live && record->restoring != kNoAnchor) ++readers[record->restoring];
  int32_t free = 0, pending = 0, published = 0;
  for (AnchorId id = 0; id < limits.anchors; ++id) {
    const Anchor& anchor = anchors[id];
    WP_ASSERT(anchor.readers == readers[id]);
    if (anchor.state == Anchor::State::free) {
      WP_ASSERT(is_free[id]);
      ++free;
      continue;
    }
    WP_ASSERT(anchor.position > 0 && anchor.position % kPageTokens == 0);
    if (anchor.state == Anchor::State::pending) {
      ++pending;
      WP_ASSERT(anchor.record->live && anchor.readers == 0);
      WP_ASSERT(anchor.position < static_cast<int64_t>(anchor.record->tokens.size()) + anchor.record->prefix_only);
    } else {
      ++published;
      WP_ASSERT(tree[anchor.node].anchor == id);
      WP_ASSERT(tree[anchor.node].end == anchor.position);  // C4: a state is good at one position only.
      WP_ASSERT(tree[anchor.node].page != kNoPage);
      WP_ASSERT(!anchor.measured || anchor.segment == tree.segment(anchor.node));
    }
  }
  WP_ASSERT(published == in_tree);
  WP_ASSERT(free + pending + published == limits.anchors);  // Conservation.
}

void PrefixCache::Impl::check() const {
  std::vector<int32_t> owners(static_cast<size_t>(limits.pages), 0);
  const TokenTree::Totals in_tree = tree.check(owners);

  int64_t owed = 0, held = 0;
  for (const auto& record : records) {
    if (!record->live) continue;
    owed += record->pages_promised - static_cast<int64_t>(record->pages.size());
    WP_ASSERT(record->pages.size() >= record->path.size());
    for (size_t i = 0; i < record->pages.size(); ++i)
      if (is_own(*record, i)) ++owners[record->pages[i]];
    NodeIndex parent = kNoNode;
    for (size_t i = 0; i < record->path.size(); ++i) {
      const Node& node = tree[record->path[i]];
      WP_ASSERT(node.parent == parent && node.domain == record->domain && node.page != kNoPage);
      // The path's tokens are the request's, compared as ids.
      WP_ASSERT(same_prefix(node.tokens, std::span(record->tokens).subspan(i * kPageTokens), kPageTokens));
      parent = record->path[i];
      ++held;
    }
  }
  WP_ASSERT(held == in_tree.holders);
  for (const int32_t count : owners) WP_ASSERT(count == 1);    // C1: every page has one owner. C5: so a page that
  WP_ASSERT(owed == pages_owed);                               // a node owns is nobody's to write.
  WP_ASSERT(owed <= tree.pages_free() + tree.pages_unheld());  // What is promised can be had.
  check_anchors(in_tree.anchors);
}

void PrefixCache::Impl::copy_stats() {
  CacheStats stats = counters;
  stats.pages_total = limits.pages;
  stats.pages_free = tree.pages_free();
  stats.pages_cached = tree.pages_cached();
  stats.pages_leased = stats.pages_total - stats.pages_free - stats.pages_cached;
  stats.anchors_total = limits.anchors;
  stats.anchors_free = static_cast<int64_t>(free_anchors.size());
  for (const Anchor& anchor : anchors) {
    stats.anchors_published += anchor.state == Anchor::State::published;
    stats.anchors_pending += anchor.state == Anchor::State::pending;
  }
  stats.anchors_held = anchors_held(clock.now_ns());
  stats.nodes = tree.nodes_count();
  stats.ghosts = tree.ghosts_count();
  const std::lock_guard lock(stats_mutex);
  stats_copy = stats;
}

}  // namespace wp
