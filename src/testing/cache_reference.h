// What PrefixCache::find() must answer, worked out the slow and obvious way: a list of every token path that is known
// and why, searched from one end to the other. Written from spec/prefix_cache.md, shares nothing with the cache. It is
// told what was published and what went; what to evict is the cache's choice, what follows from it is not.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cache/prefix_cache.h"

namespace wp::testing {

using Tokens = std::vector<TokenId>;

struct ReferenceMatch {
  int64_t match = 0;
  int64_t anchor_position = 0;
  AnchorId anchor = kNoAnchor;
  MissReason reason = MissReason::cold;
  int64_t diverged_at = -1;
  int64_t branch_position = 0;
  std::string text() const;
  bool operator==(const ReferenceMatch&) const = default;
};
ReferenceMatch comparable(const Match& match);

class CacheReference {
 public:
  using LeaseId = int64_t;

  explicit CacheReference(const CacheLimits& limits) : limits_(limits) {}

  ReferenceMatch find(const PrefixQuery& query) const;
  void acquired(LeaseId lease, const PrefixQuery& query);
  void reserved(LeaseId lease, int64_t position, AnchorId anchor, CaptureClass capture_class);
  void abandoned(AnchorId anchor) { pending_.erase(anchor); }
  void published(LeaseId lease, AnchorId anchor, int64_t position, bool in_tree);
  void evicted(AnchorId anchor);
  void ended(LeaseId lease);  // Abandons what it reserved.
  void flushed();             // After the evictions.

  bool is_published(AnchorId anchor) const { return anchors_.contains(anchor); }
  // The prefixes, of whole pages, that a request of this domain could restore.
  std::set<Tokens> usable(uint64_t domain) const;
  size_t ghosts() const { return ghosts_.size(); }

 private:
  struct Path {
    uint64_t domain = 0;
    Tokens tokens;
  };
  struct LeaseState {
    Path prompt;
    int64_t held_tokens = 0;  // A prefix of the prompt: these nodes stay.
    bool bypass = false;
    int64_t conversation = 0;
  };
  struct AnchorState {
    Path path;
    CaptureClass capture_class{};
    int64_t conversation = 0;
  };
  struct Pending {
    LeaseId lease;
    int64_t position;
    CaptureClass capture_class;
  };
  struct Conversation {
    int64_t id;
    uint64_t domain;
    std::string label;
    AnchorId tail = kNoAnchor;
  };

  std::vector<Path> known_paths(uint64_t domain) const;
  const Conversation* conversation(uint64_t domain, std::string_view label) const;
  int64_t divergence(const PrefixQuery& query, int64_t match) const;
  MissReason reason(const PrefixQuery& query, const ReferenceMatch& found, bool diverged) const;
  static int64_t agreeing(std::span<const TokenId> a, std::span<const TokenId> b);

  CacheLimits limits_;
  std::map<AnchorId, AnchorState> anchors_;
  std::map<AnchorId, Pending> pending_;
  std::map<LeaseId, LeaseState> leases_;
  std::vector<AnchorState> ghosts_;  // Least recently seen first.
  std::vector<Conversation> conversations_;
  int64_t newest_conversation_ = 0;
  std::vector<uint64_t> domains_;
};

}  // namespace wp::testing
