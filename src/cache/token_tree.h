// TokenTree: the radix tree of 64-token nodes, and the pages that its nodes own. A node is found by its parent, its
// domain and its 64 token ids; a hash finds the candidate, the ids decide. Owns nodes, ghosts and the free list of
// pages; knows nothing of leases and of what an anchor is worth. Engine thread only. Never recurses: a path of a
// million tokens is 15,625 nodes deep.
//
// A node exists as long as it has a page, a ghost or a child. A page stays as long as somebody holds its node or its
// `support` is not zero: the anchor at the node's end, and children that have pages. So whoever has a page has the
// pages of all its ancestors, and a page above which no anchor is left goes as soon as nobody holds it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cache/prefix_cache.h"

namespace wp {

using NodeIndex = int32_t;
constexpr NodeIndex kNoNode = -1;  // As a parent: the root of the node's domain.
constexpr PageId kNoPage = -1;

struct Node {
  uint64_t hash;
  uint64_t domain;
  int64_t end;  // Position behind its last token.
  NodeIndex parent, first_child, next_sibling, previous_sibling;
  NodeIndex next_in_bucket;
  int32_t holders;  // Leases that hold it.
  int32_t support;  // Children with pages, and 1 for an anchor.
  int32_t usable;   // Children with an anchor at their end or deeper, and 1 for its own (cache_events.h).
  int64_t block;    // block_hash() of the path up to its end.
  PageId page;
  AnchorId anchor;        // Published ones only.
  uint64_t conversation;  // Who put it here; 0: nobody with a label.
  bool ghost;
  CaptureClass ghost_class;
  NodeIndex ghost_newer, ghost_older;
  int64_t ghost_seen_ns;  // When its anchor was evicted or last walked through.
  TokenId tokens[kPageTokens];
};

class TokenTree {
 public:
  // `nodes_max` is raised to `pages` where it is less, so that a page can always become a node.
  TokenTree(int32_t pages, int32_t nodes_max, int32_t ghosts_max, int32_t domains_max);

  Node& operator[](NodeIndex index) { return nodes_[index]; }
  const Node& operator[](NodeIndex index) const { return nodes_[index]; }

  NodeIndex find_child(NodeIndex parent, uint64_t domain, const TokenId* tokens) const;
  NodeIndex first_child(NodeIndex parent, uint64_t domain) const;  // The newest; siblings follow, older and older.
  // The nodes on the path of `tokens`, from the top: the longest match.
  void walk(std::span<const TokenId> tokens, uint64_t domain, std::vector<NodeIndex>& path) const;
  // Makes room by forgetting ghosts. `parent` is held. The new node has no page yet, but one holder.
  NodeIndex add_held_child(NodeIndex parent, uint64_t domain, const TokenId* tokens);

  // Holders go along whole paths: C3 is the caller's part. unhold() frees what nobody needs any more.
  void hold(NodeIndex index);
  void unhold(NodeIndex index);
  void give_page(NodeIndex index, PageId page);  // To a held node without one.
  PageId swap_page(NodeIndex index,
                   PageId page);  // Equal bits under another id; nobody holds the node. Returns the old.
  void attach_anchor(NodeIndex index, AnchorId anchor);
  // Leaves a ghost and frees what nobody needs any more.
  void detach_anchor(NodeIndex index, CaptureClass capture_class, int64_t now_ns);
  void see_ghost(NodeIndex index, int64_t now_ns);  // It is the most recently seen one now.
  void forget_ghosts();
  // What the anchor at `index` alone stands for: tokens and pages down to the next anchor above it, or to the root.
  struct Segment {
    AnchorId above = kNoAnchor;
    NodeIndex top = kNoNode;  // The node below that anchor: anchors with another top share nothing of the segment.
    int64_t tokens = 0;
    int32_t pages = 0;  // Of these, needed by no other anchor; held ones included.
    bool operator==(const Segment&) const = default;
  };
  Segment segment(NodeIndex index) const;
  bool eviction_frees_pages(NodeIndex index) const { return nodes_[index].support == 1 && nodes_[index].holders == 0; }

  bool domain_known(uint64_t domain) const { return roots_.contains(domain); }
  void see_domain(uint64_t domain);

  PageId take_free_page();
  void put_free_page(PageId page) { free_pages_.push_back(page); }
  int32_t pages_free() const { return static_cast<int32_t>(free_pages_.size()); }
  int32_t pages_cached() const { return pages_cached_; }  // Owned by nodes.
  int32_t pages_unheld() const { return pages_unheld_; }  // Of these, in nodes that nobody holds: evictable.
  NodeIndex nodes_end() const { return nodes_touched_; }  // Above every index.
  int32_t nodes_count() const { return nodes_count_; }
  int32_t ghosts_count() const { return ghosts_count_; }

  // Aborts unless the tree is whole. Adds one to owners[page] for each page it owns.
  struct Totals {
    int64_t anchors = 0, holders = 0;
  };
  Totals check(std::vector<int32_t>& owners) const;

 private:
  friend struct PrefixCachePeer;  // Tests break a copy's innards through it.

  struct Root {
    NodeIndex first_child = kNoNode;
    uint64_t seen_order = 0;
  };

  uint64_t hash(NodeIndex parent, uint64_t domain, const TokenId* tokens) const;
  NodeIndex& bucket(uint64_t hash) { return buckets_[hash & bucket_mask_]; }
  void insert_into_bucket(NodeIndex index);
  void remove_from_bucket(NodeIndex index);
  void link_to_parent(NodeIndex index);
  void unlink_from_parent(NodeIndex index);
  void remove_ghost(NodeIndex index);
  void link_ghost(NodeIndex index);
  void unlink_ghost(NodeIndex index);
  void free_unneeded(NodeIndex index);  // The node and, upward, whatever it alone kept.
  void free_node(NodeIndex index);
  void check_node(NodeIndex index) const;

  int32_t nodes_max_, ghosts_max_;
  size_t domains_max_;
  std::unique_ptr<Node[]> nodes_;  // Touched only as far as it was used.
  NodeIndex nodes_touched_ = 0;
  NodeIndex free_node_ = kNoNode;  // Chained by next_sibling.
  int32_t nodes_count_ = 0;
  std::unique_ptr<NodeIndex[]> buckets_;  // Index + 1, so that zeroed memory is an empty table.
  uint64_t bucket_mask_ = 0;
  uint64_t hash_mask_ = ~uint64_t{0};  // Tests make every key collide.
  std::unordered_map<uint64_t, Root> roots_;
  uint64_t seen_order_ = 0;
  NodeIndex newest_ghost_ = kNoNode, oldest_ghost_ = kNoNode;
  int32_t ghosts_count_ = 0;
  std::vector<PageId> free_pages_;
  int32_t pages_cached_ = 0, pages_unheld_ = 0;
};

}  // namespace wp
