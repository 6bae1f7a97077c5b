// KeptIndex: which pages and anchors a tier holds, as the tree that they form, and what it can best do without
// (prefix_cache.md 10.1): pages that no anchor needs, superseded tails, then the anchor of least value, with the pages
// that no other needs. Numbers alone: where a part lies is its owner's business. No lock: one thread, or its owner's.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/rng.h"
#include "store/record.h"

namespace wp {

struct Place {
  uint64_t where = 0;  // 0: on its way there; it is not dropped.
  int64_t offset = 0;
  bool operator==(const Place&) const = default;
};

class KeptIndex {
 public:
  struct Kept {
    Place place;
    int64_t end = 0;
    CaptureClass capture_class = CaptureClass::tail;
  };
  struct Dropped {
    PartKind kind;
    uint64_t key;
    Place place;
  };
  // Of anchors of like worth one is drawn, so that conversations that take turns in too small a tier do not all miss;
  // 0: the one unused for longest goes.
  KeptIndex(int64_t page_bytes, int64_t anchor_bytes, Seed seed);

  void set_root(uint64_t root) { root_ = root; }
  // Takes the place of an earlier part of this name. False: this header and one known before cannot both be true.
  bool add(const RecordHeader& header, Place place, int64_t now_ns);
  std::optional<Kept> find(PartKind kind, uint64_t key) const;
  bool has(PartKind kind, uint64_t key) const { return find(kind, key).has_value(); }
  void move(PartKind kind, uint64_t key, Place place);  // Of a part that is there.
  std::optional<Place> remove(PartKind kind, uint64_t key);
  void forget_all_at(uint64_t where);
  void use(uint64_t key, int64_t now_ns);  // A request resumed there; nothing where no anchor is.
  void hold(uint64_t key, bool held);      // Its page is not dropped meanwhile.
  // Drops what is worth least; empty: there is nothing that may be dropped. Valid until the next call.
  std::span<const Dropped> drop_least(int64_t now_ns);
  int64_t parts() const { return pages_ + anchors_; }
  int64_t anchors() const { return anchors_; }
  int64_t bytes() const { return pages_ * page_bytes_ + anchors_ * anchor_bytes_; }

 private:
  struct Node {
    uint64_t key = 0;
    int64_t end = 0;
    int32_t parent = -1, children = 0;
    int32_t anchors_below = 0, tails_below = 0;  // Its own counted.
    int32_t branches = 0;                        // Children with anchors below.
    bool used = false, has_page = false, has_anchor = false, held = false;
    Place page, anchor;
    CaptureClass capture_class = CaptureClass::tail;
    int64_t used_ns = 0, uses = 0;
    uint64_t used_order = 0;
  };
  int32_t node_of(uint64_t key, int64_t end);
  void link(int32_t id, uint64_t parent_key);
  void count_anchors(int32_t id, int32_t anchors, int32_t tails);
  void take_out(int32_t id, PartKind kind);
  void forget_if_empty(int32_t id);
  bool superseded(const Node& node) const;
  double value(int32_t id, int64_t now_ns) const;
  int32_t victim(int64_t now_ns);
  void drop(int32_t id, PartKind kind);

  const int64_t page_bytes_, anchor_bytes_;
  uint64_t root_ = 0, order_ = 0;
  const bool draws_;
  Rng rng_;
  std::vector<Node> nodes_;
  std::vector<int32_t> free_;
  std::unordered_map<uint64_t, int32_t> by_key_;
  int64_t pages_ = 0, anchors_ = 0;
  std::vector<Dropped> dropped_;
  std::vector<std::pair<int32_t, double>> candidates_;
};

}  // namespace wp
