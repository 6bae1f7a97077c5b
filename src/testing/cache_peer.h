// A clock that stands until it is moved, and the door through which tests reach the cache's innards: to see what a
// caller cannot, and to break it on purpose. Test programs only.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/prefix_cache.h"
#include "cache/prefix_cache_impl.h"
#include "core/clock.h"

namespace wp {

struct PrefixCachePeer {
  static auto& impl(PrefixCache& cache) { return *cache.impl_; }
  static auto& free_pages(PrefixCache& cache) { return cache.impl_->tree.free_pages_; }
  static void make_all_keys_collide(PrefixCache& cache) { cache.impl_->tree.hash_mask_ = 0; }

  // Those of which `was_published` is true and which are not any more, in the order in which they went.
  template <class WasPublished>
  static std::vector<AnchorId> gone(PrefixCache& cache, WasPublished was_published) {
    const auto& impl = *cache.impl_;
    std::vector<AnchorId> ids;
    for (const AnchorId id : impl.free_anchors)
      if (was_published(id)) ids.push_back(id);
    for (AnchorId id = 0; id < impl.limits.anchors; ++id)  // Evicted for a capture: already its.
      if (impl.anchors[static_cast<size_t>(id)].state == Anchor::State::pending && was_published(id)) ids.push_back(id);
    return ids;
  }

  // Own pages of leases whose nodes have a page of their own.
  static int64_t duplicates(PrefixCache& cache) {
    const auto& impl = *cache.impl_;
    int64_t count = 0;
    for (const auto& record : impl.records)
      for (size_t i = 0; record->live && i < record->path.size(); ++i) count += impl.is_own(*record, i);
    return count;
  }

  // Faults. Each leaves a cache that goes on working, and tells whether there was anything to break. -----------------
  static bool move_an_anchor_up(PrefixCache& cache) {
    auto& impl = *cache.impl_;
    for (AnchorId id = 0; id < impl.limits.anchors; ++id) {
      Anchor& anchor = impl.anchors[static_cast<size_t>(id)];
      if (!impl.evictable(anchor)) continue;
      const NodeIndex node = anchor.node, parent = impl.tree[node].parent;
      if (parent == kNoNode || impl.tree[parent].anchor != kNoAnchor || impl.tree[parent].ghost) continue;
      impl.tree[node].anchor = kNoAnchor;
      --impl.tree[node].support;
      impl.withdraw(node);
      impl.tree[parent].anchor = id;
      ++impl.tree[parent].support;
      impl.announce(parent);
      anchor.node = parent;
      anchor.position -= kPageTokens;
      impl.tree.free_unneeded(node);
      for (Anchor& other : impl.anchors) other.measured = false;
      return true;
    }
    return false;
  }
  static bool swap_a_page_with_a_free_one(PrefixCache& cache) {
    auto& tree = cache.impl_->tree;
    if (tree.free_pages_.empty()) return false;
    for (const Anchor& anchor : cache.impl_->anchors)
      if (anchor.state == Anchor::State::published && tree[anchor.node].holders == 0) {
        std::swap(tree[anchor.node].page, tree.free_pages_.front());
        return true;
      }
    return false;
  }
  static bool exchange_two_anchors(PrefixCache& cache) {
    auto& impl = *cache.impl_;
    for (AnchorId one = 0; one < impl.limits.anchors; ++one)
      for (AnchorId other = 0; other < one; ++other) {
        Anchor &a = impl.anchors[static_cast<size_t>(one)], &b = impl.anchors[static_cast<size_t>(other)];
        if (!impl.evictable(a) || !impl.evictable(b) || a.position != b.position) continue;
        std::swap(impl.tree[a.node].anchor, impl.tree[b.node].anchor);
        std::swap(a.node, b.node);
        for (Anchor& other : impl.anchors) other.measured = false;
        return true;
      }
    return false;
  }
  static bool free_a_read_page(PrefixCache& cache) {
    for (const auto& record : cache.impl_->records) {
      if (!record->live || record->path.empty()) continue;
      cache.impl_->tree.free_pages_.push_back(record->pages.front());
      return true;
    }
    return false;
  }
  static bool free_a_page_twice(PrefixCache& cache) {
    auto& pages = cache.impl_->tree.free_pages_;
    if (!pages.empty()) pages.push_back(pages.front());
    return !pages.empty();
  }
  static bool lose_a_page(PrefixCache& cache) {
    auto& pages = cache.impl_->tree.free_pages_;
    if (pages.empty()) return false;
    pages.pop_back();
    return true;
  }
  static bool free_an_anchor_twice(PrefixCache& cache) {
    auto& ids = cache.impl_->free_anchors;
    if (!ids.empty()) ids.push_back(ids.front());
    return !ids.empty();
  }
  static bool miscount_the_promise(PrefixCache& cache) {
    --cache.impl_->pages_owed;
    return true;
  }
  static bool forget_a_holder(PrefixCache& cache) {
    for (const auto& record : cache.impl_->records)
      if (record->live && !record->path.empty()) {
        --cache.impl_->tree[record->path.back()].holders;
        return true;
      }
    return false;
  }
  static bool forget_a_reader(PrefixCache& cache) {
    for (Anchor& anchor : cache.impl_->anchors)
      if (anchor.readers > 0) {
        --anchor.readers;
        return true;
      }
    return false;
  }
  static bool mislabel_a_position(PrefixCache& cache) {
    for (Anchor& anchor : cache.impl_->anchors)
      if (anchor.state == Anchor::State::published && anchor.position > kPageTokens) {
        anchor.position -= kPageTokens;
        return true;
      }
    return false;
  }
};

}  // namespace wp
