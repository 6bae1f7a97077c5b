#include "store/kept_index.h"

#include <algorithm>
#include <cmath>

#include "core/assert.h"

namespace wp {
namespace {

// Values this close are equal, and who goes is drawn: of conversations that take turns every order of age would drop
// the one that is next.
constexpr double kEqualFactor = 1.25;
constexpr int64_t kUsesCounted = 3;  // What was used before is expected again, up to so many times as often.

bool is_tail(CaptureClass capture_class) {
  return capture_class == CaptureClass::tail || capture_class == CaptureClass::assistant;
}

}  // namespace

KeptIndex::KeptIndex(int64_t page_bytes, int64_t anchor_bytes, Seed seed)
    : page_bytes_(page_bytes), anchor_bytes_(anchor_bytes), draws_(seed != 0), rng_(seed) {}

int32_t KeptIndex::node_of(uint64_t key, int64_t end) {
  const auto [at, fresh] = by_key_.try_emplace(key, -1);
  if (!fresh) return at->second;
  if (free_.empty()) {
    free_.push_back(static_cast<int32_t>(nodes_.size()));
    nodes_.emplace_back();
  }
  at->second = free_.back();
  free_.pop_back();
  Node& node = nodes_[static_cast<size_t>(at->second)];
  node = Node{};
  node.used = true;
  node.key = key;
  node.end = end;
  return at->second;
}

// A parent that is not there yet gets a node without parts. Ends fall on the way up, so that no files make a circle.
void KeptIndex::link(int32_t id, uint64_t parent_key) {
  const int64_t above = nodes_[static_cast<size_t>(id)].end - kPageTokens;
  if (nodes_[static_cast<size_t>(id)].parent >= 0 || parent_key == root_ || above <= 0) return;
  const int32_t parent = node_of(parent_key, above);
  if (nodes_[static_cast<size_t>(parent)].end != above) return forget_if_empty(parent);
  Node& node = nodes_[static_cast<size_t>(id)];
  ++nodes_[static_cast<size_t>(parent)].children;
  node.parent = parent;
  if (node.anchors_below == 0) return;
  ++nodes_[static_cast<size_t>(parent)].branches;
  count_anchors(parent, node.anchors_below, node.tails_below);
}

void KeptIndex::count_anchors(int32_t id, int32_t anchors, int32_t tails) {
  while (id >= 0) {
    Node& node = nodes_[static_cast<size_t>(id)];
    const bool before = node.anchors_below > 0;
    node.anchors_below += anchors;
    node.tails_below += tails;
    WP_ASSERT(node.anchors_below >= 0 && node.tails_below >= 0);
    const bool after = node.anchors_below > 0;
    id = node.parent;
    if (id >= 0) nodes_[static_cast<size_t>(id)].branches += int{after} - int{before};
  }
}

bool KeptIndex::add(const RecordHeader& header, Place place, int64_t now_ns) {
  const int32_t id = node_of(header.key, header.end);
  if (nodes_[static_cast<size_t>(id)].end != header.end) return false;
  link(id, header.parent);
  Node& node = nodes_[static_cast<size_t>(id)];
  if (header.kind == PartKind::page) {
    if (!node.has_page) ++pages_;
    node.has_page = true;
    node.page = place;
    return true;
  }
  if (node.has_anchor) {
    node.anchor = place;
    return true;
  }
  ++anchors_;
  node.has_anchor = true;
  node.anchor = place;
  node.capture_class = static_cast<CaptureClass>(header.capture_class);
  node.used_ns = now_ns;
  node.used_order = ++order_;
  node.uses = 0;
  count_anchors(id, 1, is_tail(node.capture_class));
  return true;
}

std::optional<KeptIndex::Kept> KeptIndex::find(PartKind kind, uint64_t key) const {
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return std::nullopt;
  const Node& node = nodes_[static_cast<size_t>(at->second)];
  if (kind == PartKind::page ? !node.has_page : !node.has_anchor) return std::nullopt;
  return Kept{kind == PartKind::page ? node.page : node.anchor, node.end, node.capture_class};
}

void KeptIndex::move(PartKind kind, uint64_t key, Place place) {
  Node& node = nodes_[static_cast<size_t>(by_key_.at(key))];
  WP_ASSERT(kind == PartKind::page ? node.has_page : node.has_anchor);
  (kind == PartKind::page ? node.page : node.anchor) = place;
}

void KeptIndex::take_out(int32_t id, PartKind kind) {
  Node& node = nodes_[static_cast<size_t>(id)];
  if (kind == PartKind::page) {
    node.has_page = false;
    --pages_;
  } else {
    node.has_anchor = false;
    --anchors_;
    count_anchors(id, -1, -int{is_tail(node.capture_class)});
  }
  forget_if_empty(id);
}

void KeptIndex::forget_if_empty(int32_t id) {
  while (id >= 0) {
    Node& node = nodes_[static_cast<size_t>(id)];
    if (node.has_page || node.has_anchor || node.children > 0 || node.held) return;
    const int32_t parent = node.parent;
    by_key_.erase(node.key);
    node.used = false;
    free_.push_back(id);
    if (parent >= 0) --nodes_[static_cast<size_t>(parent)].children;
    id = parent;
  }
}

std::optional<Place> KeptIndex::remove(PartKind kind, uint64_t key) {
  const std::optional<Kept> kept = find(kind, key);
  if (!kept) return std::nullopt;
  take_out(by_key_.at(key), kind);
  return kept->place;
}

void KeptIndex::forget_all_at(uint64_t where) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].has_anchor && nodes_[i].anchor.where == where) take_out(static_cast<int32_t>(i), PartKind::anchor);
    if (nodes_[i].has_page && nodes_[i].page.where == where) take_out(static_cast<int32_t>(i), PartKind::page);
  }
}

void KeptIndex::use(uint64_t key, int64_t now_ns) {
  const auto at = by_key_.find(key);
  if (at == by_key_.end() || !nodes_[static_cast<size_t>(at->second)].has_anchor) return;
  Node& node = nodes_[static_cast<size_t>(at->second)];
  node.used_ns = now_ns;
  node.used_order = ++order_;
  ++node.uses;
}

void KeptIndex::hold(uint64_t key, bool held) {
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return;
  nodes_[static_cast<size_t>(at->second)].held = held;
  if (!held) forget_if_empty(at->second);
}

// A tail below which another goes on, in one way: that one is resumed from.
bool KeptIndex::superseded(const Node& node) const {
  return is_tail(node.capture_class) && node.tails_below > 1 && node.branches == 1;
}

// P(reuse) x what would be computed again / bytes freed. Tokens stand for seconds, as they do on the device.
double KeptIndex::value(int32_t id, int64_t now_ns) const {
  const Node& own = nodes_[static_cast<size_t>(id)];
  int64_t above = 0, pages = 0;
  bool alone = true;
  for (int32_t at = id; at >= 0; at = nodes_[static_cast<size_t>(at)].parent) {
    const Node& node = nodes_[static_cast<size_t>(at)];
    if (at != id && node.has_anchor) {
      above = node.end;
      break;
    }
    alone = alone && node.anchors_below == 1;
    pages += alone && node.has_page;
  }
  const auto age_ns = static_cast<double>(std::max<int64_t>(0, now_ns - own.used_ns));
  const double expected =
      std::exp2(-age_ns / half_life_ns(own.capture_class)) * static_cast<double>(1 + std::min(own.uses, kUsesCounted));
  const int64_t bytes = std::max<int64_t>(1, anchor_bytes_ + pages * page_bytes_);
  return expected * static_cast<double>(own.end - above) / static_cast<double>(bytes);
}

int32_t KeptIndex::victim(int64_t now_ns) {
  candidates_.clear();
  int32_t old_tail = -1;
  double lowest = INFINITY;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.used || !node.has_anchor || node.anchor.where == 0) continue;
    const auto id = static_cast<int32_t>(i);
    if (superseded(node)) {
      if (old_tail < 0 || node.used_order < nodes_[static_cast<size_t>(old_tail)].used_order) old_tail = id;
      continue;
    }
    if (old_tail >= 0) continue;
    candidates_.emplace_back(id, value(id, now_ns));
    lowest = std::min(lowest, candidates_.back().second);
  }
  if (old_tail >= 0) return old_tail;
  std::erase_if(candidates_, [&](const auto& candidate) { return candidate.second > lowest * kEqualFactor; });
  if (candidates_.empty()) return -1;
  if (!draws_) {
    const auto order = [&](const auto& candidate) { return nodes_[static_cast<size_t>(candidate.first)].used_order; };
    return std::min_element(candidates_.begin(), candidates_.end(),
                            [&](const auto& a, const auto& b) { return order(a) < order(b); })
        ->first;
  }
  return candidates_[static_cast<size_t>(rng_.between(0, std::ssize(candidates_) - 1))].first;
}

void KeptIndex::drop(int32_t id, PartKind kind) {
  const Node& node = nodes_[static_cast<size_t>(id)];
  dropped_.push_back({kind, node.key, kind == PartKind::page ? node.page : node.anchor});
  take_out(id, kind);
}

std::span<const KeptIndex::Dropped> KeptIndex::drop_least(int64_t now_ns) {
  dropped_.clear();
  const auto may_drop_page = [](const Node& node) {
    return node.used && node.has_page && node.page.where != 0 && node.anchors_below == 0 && !node.held;
  };
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (may_drop_page(nodes_[i])) drop(static_cast<int32_t>(i), PartKind::page);
  if (!dropped_.empty()) return dropped_;
  const int32_t id = victim(now_ns);
  if (id < 0) return {};
  std::vector<int32_t> path;
  for (int32_t at = id; at >= 0; at = nodes_[static_cast<size_t>(at)].parent) path.push_back(at);
  drop(id, PartKind::anchor);
  for (const int32_t at : path) {
    if (!may_drop_page(nodes_[static_cast<size_t>(at)])) break;
    drop(at, PartKind::page);
  }
  return dropped_;
}

}  // namespace wp
