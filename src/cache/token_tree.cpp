#include "cache/token_tree.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "cache/cache_events.h"
#include "core/assert.h"
#include "core/hash.h"

namespace wp {

TokenTree::TokenTree(int32_t pages, int32_t nodes_max, int32_t ghosts_max, int32_t domains_max)
    : nodes_max_(std::max(nodes_max, pages)), ghosts_max_(ghosts_max), domains_max_(static_cast<size_t>(domains_max)) {
  nodes_ = std::make_unique_for_overwrite<Node[]>(static_cast<size_t>(nodes_max_));
  const uint64_t buckets = std::bit_ceil(static_cast<uint64_t>(nodes_max_) + 1);
  buckets_ = std::make_unique<NodeIndex[]>(buckets);
  bucket_mask_ = buckets - 1;
  free_pages_.reserve(static_cast<size_t>(pages));
  for (PageId page = pages - 1; page >= 0; --page) free_pages_.push_back(page);  // The lowest is taken first.
}

uint64_t TokenTree::hash(NodeIndex parent, uint64_t domain, const TokenId* tokens) const {
  const uint64_t seed = splitmix64(domain ^ splitmix64(static_cast<uint32_t>(parent)));
  return hash_bytes(tokens, sizeof(Node::tokens), seed) & hash_mask_;
}

NodeIndex TokenTree::find_child(NodeIndex parent, uint64_t domain, const TokenId* tokens) const {
  const uint64_t key = hash(parent, domain, tokens);
  for (NodeIndex at = buckets_[key & bucket_mask_] - 1; at != kNoNode; at = nodes_[at].next_in_bucket) {
    const Node& node = nodes_[at];
    if (node.hash == key && node.parent == parent && node.domain == domain &&
        std::memcmp(node.tokens, tokens, sizeof node.tokens) == 0)
      return at;
  }
  return kNoNode;
}

NodeIndex TokenTree::first_child(NodeIndex parent, uint64_t domain) const {
  if (parent != kNoNode) return nodes_[parent].first_child;
  const auto root = roots_.find(domain);
  return root == roots_.end() ? kNoNode : root->second.first_child;
}

void TokenTree::walk(std::span<const TokenId> tokens, uint64_t domain, std::vector<NodeIndex>& path) const {
  path.clear();
  NodeIndex parent = kNoNode;
  for (size_t begin = 0; begin + kPageTokens <= tokens.size(); begin += kPageTokens) {
    const NodeIndex child = find_child(parent, domain, tokens.data() + begin);
    if (child == kNoNode) return;
    path.push_back(child);
    parent = child;
  }
}

void TokenTree::insert_into_bucket(NodeIndex index) {
  NodeIndex& head = bucket(nodes_[index].hash);
  nodes_[index].next_in_bucket = head - 1;
  head = index + 1;
}

void TokenTree::remove_from_bucket(NodeIndex index) {
  NodeIndex& head = bucket(nodes_[index].hash);
  if (head - 1 == index) {
    head = nodes_[index].next_in_bucket + 1;
    return;
  }
  NodeIndex at = head - 1;
  while (nodes_[at].next_in_bucket != index) at = nodes_[at].next_in_bucket;
  nodes_[at].next_in_bucket = nodes_[index].next_in_bucket;
}

void TokenTree::link_to_parent(NodeIndex index) {
  Node& node = nodes_[index];
  NodeIndex& first = node.parent == kNoNode ? roots_[node.domain].first_child : nodes_[node.parent].first_child;
  node.previous_sibling = kNoNode;
  node.next_sibling = first;
  if (first != kNoNode) nodes_[first].previous_sibling = index;
  first = index;
}

void TokenTree::unlink_from_parent(NodeIndex index) {
  Node& node = nodes_[index];
  if (node.next_sibling != kNoNode) nodes_[node.next_sibling].previous_sibling = node.previous_sibling;
  if (node.previous_sibling != kNoNode) nodes_[node.previous_sibling].next_sibling = node.next_sibling;
  else if (node.parent != kNoNode) nodes_[node.parent].first_child = node.next_sibling;
  else roots_[node.domain].first_child = node.next_sibling;
}

NodeIndex TokenTree::add_held_child(NodeIndex parent, uint64_t domain, const TokenId* tokens) {
  while (nodes_count_ == nodes_max_) {
    WP_ASSERT(oldest_ghost_ != kNoNode);  // Without ghosts every node has a page, and there are nodes for all pages.
    remove_ghost(oldest_ghost_);
  }
  NodeIndex index = free_node_;
  if (index != kNoNode) free_node_ = nodes_[index].next_sibling;
  else index = nodes_touched_++;
  ++nodes_count_;

  Node& node = nodes_[index];
  node = Node{.hash = hash(parent, domain, tokens),
              .domain = domain,
              .end = (parent == kNoNode ? 0 : nodes_[parent].end) + kPageTokens,
              .parent = parent,
              .first_child = kNoNode,
              .holders = 1,
              .support = 0,
              .usable = 0,
              .block = block_hash(parent == kNoNode ? std::nullopt : std::optional(nodes_[parent].block), domain,
                                  std::span(tokens, kPageTokens)),
              .page = kNoPage,
              .anchor = kNoAnchor,
              .conversation = 0,
              .ghost = false,
              .ghost_newer = kNoNode,
              .ghost_older = kNoNode};
  std::memcpy(node.tokens, tokens, sizeof node.tokens);
  insert_into_bucket(index);
  link_to_parent(index);
  return index;
}

void TokenTree::free_node(NodeIndex index) {
  remove_from_bucket(index);
  unlink_from_parent(index);
  nodes_[index].next_sibling = free_node_;
  nodes_[index].hash = 0;
  free_node_ = index;
  --nodes_count_;
}

void TokenTree::free_unneeded(NodeIndex index) {
  while (index != kNoNode) {
    Node& node = nodes_[index];
    const NodeIndex parent = node.parent;
    if (node.holders > 0 || node.support > 0) return;
    const bool had_page = node.page != kNoPage;
    if (had_page) {
      put_free_page(node.page);
      node.page = kNoPage;
      --pages_cached_;
      --pages_unheld_;
      if (parent != kNoNode) --nodes_[parent].support;
    }
    const bool goes = !node.ghost && node.first_child == kNoNode;
    if (goes) free_node(index);
    if (!goes && !had_page) return;  // Nothing has changed for the parent.
    index = parent;
  }
}

void TokenTree::hold(NodeIndex index) {
  if (nodes_[index].holders++ == 0 && nodes_[index].page != kNoPage) --pages_unheld_;
}

void TokenTree::unhold(NodeIndex index) {
  Node& node = nodes_[index];
  WP_ASSERT(node.holders > 0);  // C1: what is held is given back once.
  if (--node.holders > 0) return;
  if (node.page != kNoPage) ++pages_unheld_;
  free_unneeded(index);
}

void TokenTree::give_page(NodeIndex index, PageId page) {
  Node& node = nodes_[index];
  WP_ASSERT(node.page == kNoPage && node.holders > 0);                       // C1
  WP_ASSERT(node.parent == kNoNode || nodes_[node.parent].page != kNoPage);  // Pages begin at position 0.
  node.page = page;
  ++pages_cached_;
  if (node.parent != kNoNode) ++nodes_[node.parent].support;
}

PageId TokenTree::swap_page(NodeIndex index, PageId page) {
  Node& node = nodes_[index];
  WP_ASSERT(node.page != kNoPage && node.holders == 0);  // C5: nobody may see a page change under it.
  return std::exchange(node.page, page);
}

void TokenTree::attach_anchor(NodeIndex index, AnchorId anchor) {
  Node& node = nodes_[index];
  WP_ASSERT(node.anchor == kNoAnchor && node.page != kNoPage);
  node.anchor = anchor;
  ++node.support;
  if (node.ghost) unlink_ghost(index);
}

void TokenTree::detach_anchor(NodeIndex index, CaptureClass capture_class, int64_t now_ns) {
  Node& node = nodes_[index];
  WP_ASSERT(node.anchor != kNoAnchor);
  node.anchor = kNoAnchor;
  --node.support;
  if (ghosts_max_ > 0) {
    node.ghost_class = capture_class;
    node.ghost_seen_ns = now_ns;
    link_ghost(index);
    // Only now: the oldest may lie below this node and take it along.
    if (ghosts_count_ > ghosts_max_) remove_ghost(oldest_ghost_);
  }
  free_unneeded(index);
}

void TokenTree::link_ghost(NodeIndex index) {
  Node& node = nodes_[index];
  node.ghost = true;
  node.ghost_newer = kNoNode;
  node.ghost_older = newest_ghost_;
  if (newest_ghost_ != kNoNode) nodes_[newest_ghost_].ghost_newer = index;
  else oldest_ghost_ = index;
  newest_ghost_ = index;
  ++ghosts_count_;
}

void TokenTree::unlink_ghost(NodeIndex index) {
  Node& node = nodes_[index];
  if (node.ghost_newer != kNoNode) nodes_[node.ghost_newer].ghost_older = node.ghost_older;
  else newest_ghost_ = node.ghost_older;
  if (node.ghost_older != kNoNode) nodes_[node.ghost_older].ghost_newer = node.ghost_newer;
  else oldest_ghost_ = node.ghost_newer;
  node.ghost = false;
  --ghosts_count_;
}

void TokenTree::remove_ghost(NodeIndex index) {
  unlink_ghost(index);
  free_unneeded(index);
}

void TokenTree::see_ghost(NodeIndex index, int64_t now_ns) {
  unlink_ghost(index);
  nodes_[index].ghost_seen_ns = now_ns;
  link_ghost(index);
}

void TokenTree::forget_ghosts() {
  while (oldest_ghost_ != kNoNode) remove_ghost(oldest_ghost_);
}

TokenTree::Segment TokenTree::segment(NodeIndex index) const {
  Segment segment;
  bool alone = true;
  for (NodeIndex at = index; at != kNoNode; at = nodes_[at].parent) {
    const Node& node = nodes_[at];
    if (at != index && node.anchor != kNoAnchor) {
      segment.above = node.anchor;
      break;
    }
    // Support of one is the anchor itself at its node, and the one child below on the way up.
    alone &= node.support == 1;
    segment.pages += alone;
    segment.tokens += kPageTokens;
    segment.top = at;
  }
  return segment;
}

void TokenTree::see_domain(uint64_t domain) {
  roots_[domain].seen_order = ++seen_order_;
  while (roots_.size() > domains_max_) {
    // Forget the one not seen for the longest of those that have nothing in the tree.
    auto oldest = roots_.end();
    for (auto root = roots_.begin(); root != roots_.end(); ++root)
      if (root->second.first_child == kNoNode && root->first != domain &&
          (oldest == roots_.end() || root->second.seen_order < oldest->second.seen_order))
        oldest = root;
    if (oldest == roots_.end()) return;
    roots_.erase(oldest);
  }
}

PageId TokenTree::take_free_page() {
  WP_ASSERT(!free_pages_.empty());
  const PageId page = free_pages_.back();
  free_pages_.pop_back();
  return page;
}

void TokenTree::check_node(NodeIndex index) const {
  const Node& node = nodes_[index];
  const NodeIndex first = first_child(node.parent, node.domain);
  WP_ASSERT(node.previous_sibling == kNoNode ? first == index : nodes_[node.previous_sibling].next_sibling == index);
  WP_ASSERT(node.next_sibling == kNoNode || nodes_[node.next_sibling].previous_sibling == index);
  WP_ASSERT(node.hash == hash(node.parent, node.domain, node.tokens));
  WP_ASSERT(find_child(node.parent, node.domain, node.tokens) == index);  // No two nodes have one key.
  int32_t support = node.anchor == kNoAnchor ? 0 : 1, usable = support;
  for (NodeIndex child = node.first_child; child != kNoNode; child = nodes_[child].next_sibling) {
    WP_ASSERT(nodes_[child].parent == index);
    support += nodes_[child].page != kNoPage;
    usable += nodes_[child].usable > 0;
  }
  WP_ASSERT(support == node.support);
  WP_ASSERT(usable == node.usable);
  if (node.parent == kNoNode) {
    WP_ASSERT(node.end == kPageTokens);  // C2: a child begins where its parent ends.
  } else {
    const Node& parent = nodes_[node.parent];
    WP_ASSERT(node.end == parent.end + kPageTokens && parent.domain == node.domain);  // C2
    WP_ASSERT(node.holders <= parent.holders);                  // C3: who holds a node holds its ancestors.
    WP_ASSERT(node.page == kNoPage || parent.page != kNoPage);  // Who has a page has all pages below it.
  }
  if (node.page != kNoPage) {
    WP_ASSERT(node.holders > 0 || node.support > 0);  // Deeper than every anchor: freed once nobody holds it.
  } else {
    WP_ASSERT(node.holders == 0 && node.anchor == kNoAnchor);
    WP_ASSERT(node.ghost || node.first_child != kNoNode);
  }
  WP_ASSERT(!node.ghost || node.anchor == kNoAnchor);
}

TokenTree::Totals TokenTree::check(std::vector<int32_t>& owners) const {
  Totals totals;
  for (PageId page : free_pages_) ++owners[page];
  std::vector<bool> is_free(static_cast<size_t>(nodes_touched_), false);
  int32_t free_count = 0, cached = 0, unheld = 0, ghosts = 0;
  for (NodeIndex at = free_node_; at != kNoNode; at = nodes_[at].next_sibling, ++free_count) is_free[at] = true;
  WP_ASSERT(free_count + nodes_count_ == nodes_touched_);
  for (NodeIndex index = 0; index < nodes_touched_; ++index) {
    if (is_free[index]) continue;
    const Node& node = nodes_[index];
    WP_ASSERT(node.parent == kNoNode || !is_free[node.parent]);
    check_node(index);
    totals.anchors += node.anchor != kNoAnchor;
    totals.holders += node.holders;
    ghosts += node.ghost;
    if (node.page == kNoPage) continue;
    ++owners[node.page];
    ++cached;
    unheld += node.holders == 0;
  }
  WP_ASSERT(cached == pages_cached_ && unheld == pages_unheld_);
  WP_ASSERT(ghosts == ghosts_count_ && ghosts <= ghosts_max_);
  for (NodeIndex at = newest_ghost_; at != kNoNode; at = nodes_[at].ghost_older) --ghosts;
  WP_ASSERT(ghosts == 0);
  return totals;
}

}  // namespace wp
