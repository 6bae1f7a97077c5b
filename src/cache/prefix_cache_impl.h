// What PrefixCache keeps: the tree, the anchors, the leases, the conversations, and the one promise that ties them
// together:
//   the sum over all leases of (pages promised - pages given)  <=  pages free + pages in nodes that nobody holds.
// Every page on the right can be had, by evicting anchors of nodes that nobody holds, so extend() cannot fail and no
// two sequences can wait for each other. Engine thread only, but for the copy of the statistics.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/conversations.h"
#include "cache/prefix_cache.h"
#include "cache/token_tree.h"
#include "cache/tree_view.h"

namespace wp {

// A prompt below this captures nothing (prefix_cache.md 6): the capture costs more than it can save.
constexpr int64_t kCapturePromptTokensMin = 256;
// An unlabelled prompt without an assistant turn and no longer than this looks one-shot (7).
constexpr int64_t kOneShotTokensMax = 8192;
// A gap of up to so many tokens is no miss (15.2): a margin, and a boundary.
constexpr int64_t kGapTokensMax = 2 * kPageTokens;
// Values within this factor are equal: among them the choice is random, since a working set that is larger than the
// pool and comes round in a cycle would miss every time under any fixed order.
constexpr double kEqualFactor = 1.5;

struct LeaseRecord {
  bool live = false;
  Match match;
  std::vector<TokenId> tokens;  // The prompt, to find its nodes again at a capture.
  uint64_t domain = 0;
  ConversationId conversation = kNoConversation;
  bool restored_own = false;  // From an anchor of its own conversation.
  int64_t gap_ns = 0;         // What its tails take over.
  bool one_shot = false;      // Its tail goes on probation.
  bool bypass = false;        // Neither restores nor captures.
  bool prefix_only = false;   // A consolidation.
  struct Pin {
    int64_t position, until_ns;
  };
  std::vector<Pin> pins;
  std::vector<int64_t> expected_branches;  // Where others wait for its state.
  int64_t pages_promised = 0;
  std::vector<PageId> pages;       // Of nodes and own ones, by position.
  std::vector<NodeIndex> path;     // Nodes held, from the top. A page of `pages` is own unless its node has it.
  AnchorId restoring = kNoAnchor;  // Held until the first publish(): by then the first pass has read it.
};

struct Anchor {
  enum class State : uint8_t { free, pending, published };
  State state = State::free;
  CaptureClass capture_class = CaptureClass::tail;
  bool superseded = false;  // A previous tail of its conversation: first victim.
  bool probation = false;   // Of a prompt that looked one-shot and has not come back.
  int32_t readers = 0;      // Leases whose first pass may still have to read it.
  int64_t position = 0;
  NodeIndex node = kNoNode;       // Published.
  LeaseRecord* record = nullptr;  // Pending.
  ConversationId conversation = kNoConversation;
  uint64_t superseded_order = 0;
  uint64_t used_order = 0;  // Of publication or the last restore.
  int64_t used_ns = 0;
  int64_t held_until_ns = 0;
  int64_t gap_ns = 0;     // Between the requests that led here, smoothed; 0: not known yet.
  bool shared = false;    // Another conversation than its own has used it.
  bool measured = false;  // `segment` is what the tree would say.
  TokenTree::Segment segment;
};

inline int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }
inline bool is_tail(CaptureClass capture_class) {
  return capture_class == CaptureClass::tail || capture_class == CaptureClass::assistant;
}
// Of one conversation alone, so that coming back to it proves something.
inline bool belongs_to_conversation(CaptureClass capture_class) {
  return is_tail(capture_class) || capture_class == CaptureClass::user;
}
// Whether both begin with the same `tokens_count` tokens.
bool same_prefix(std::span<const TokenId> a, std::span<const TokenId> b, int64_t tokens_count);

struct PrefixCache::Impl {
  Impl(const CacheLimits& cache_limits, Clock& cache_clock, Seed seed);

  // lookup.cpp: changes nothing.
  Match decide(const PrefixQuery& query, std::vector<NodeIndex>& found) const;
  AnchorId deepest_usable(const std::vector<NodeIndex>& found, int64_t position_max) const;
  void explain(const PrefixQuery& query, const std::vector<NodeIndex>& found, Match& match) const;
  bool explain_lost_state(const PrefixQuery& query, const std::vector<NodeIndex>& found, Match& match) const;
  int64_t pending_on_path(const PrefixQuery& query, int64_t above) const;  // Deepest position; 0: none.
  bool find_divergence(const PrefixQuery& query, const std::vector<NodeIndex>& found, Match& match) const;
  NodeIndex nearest_child(const PrefixQuery& query, const std::vector<NodeIndex>& found, int64_t& common) const;
  NodeIndex child_towards_tail(const PrefixQuery& query, const std::vector<NodeIndex>& found) const;

  // leases.cpp
  bool fits(int64_t pages_promised, std::span<const NodeIndex> shared) const;
  LeaseRecord* start_lease(const PrefixQuery& query, Match match, int64_t pages_promised);  // Null: does not fit.
  void recognize(const PrefixQuery& query, LeaseRecord& record);
  int64_t note_gap(const Anchor& anchor, bool prefix_only, int64_t now_ns);
  void count_lookup(const PrefixQuery& query, const LeaseRecord& record);
  void extend(LeaseRecord& record, int64_t tokens_end);
  void release_restoring(LeaseRecord& record);
  void end_lease(LeaseRecord& record);
  bool is_own(const LeaseRecord& record, size_t page) const {
    return page >= record.path.size() || tree[record.path[page]].page != record.pages[page];
  }

  // Who goes, and what for.
  struct Victim {
    AnchorId anchor = kNoAnchor;  // None: nothing is evictable.
    EvictionReason reason = EvictionReason::value;
  };
  enum class Wanted : uint8_t { anchor, pages };

  // capture.cpp
  int64_t anchor_below(const LeaseRecord& record, int64_t position) const;
  bool is_worth(const LeaseRecord& record, int64_t position, CaptureClass capture_class, const Victim& found);
  bool is_expected(const LeaseRecord& record, int64_t position) const;
  bool may_capture(const LeaseRecord& record, int64_t position, CaptureClass capture_class) const;
  bool captured_already(const LeaseRecord& record, int64_t position) const;
  std::optional<AnchorId> reserve(LeaseRecord& record, int64_t position, CaptureClass capture_class);
  std::optional<AnchorId> refuse(CaptureRefusal reason);
  void abandon(AnchorId id);
  bool publish(LeaseRecord& record, std::span<const TokenId> tokens, int64_t position, AnchorId id);
  void publish_pages(LeaseRecord& record, std::span<const TokenId> tokens, int64_t position);
  void supersede(const LeaseRecord& record, AnchorId newcomer);
  void pin(LeaseRecord& record, int64_t position, int64_t pin_ns);
  void hold_anchor(Anchor& anchor, int64_t until_ns);
  void hold(std::string_view label);
  void drop_hold(std::string_view label);

  // eviction.cpp
  struct Candidate {
    AnchorId anchor;
    double value;
  };
  void free_anchor(AnchorId id);
  bool evictable(const Anchor& anchor) const;
  double expected_uses(const Anchor& anchor, int64_t now_ns) const;
  double value_of(int64_t tokens, int64_t pages, Wanted wanted) const;
  double value(Anchor& anchor, Wanted wanted, int64_t now_ns) const;
  const TokenTree::Segment& measure(Anchor& anchor) const;
  void forget_segments_beside(const Anchor& anchor);
  template <class Allowed>
  Victim victim(Wanted wanted, int32_t newcomers_on_probation, Allowed allowed);
  Victim victim_for_anchor(bool newcomer_on_probation);
  Victim victim_for_pages();
  void evict(Victim victim);
  void forget(const PrefixQuery& query);
  int64_t flush();
  int32_t anchors_held(int64_t now_ns) const;

  // cache_events.cpp
  void announce(NodeIndex node);
  void withdraw(NodeIndex node);
  void tell(std::span<const NodeIndex> nodes);
  void tell_all();

  // tree_view.cpp
  AnchorView view(AnchorId id, int64_t now_ns);
  TreeView view(uint64_t domain);

  // check.cpp
  void check() const;
  void check_anchors(int64_t in_tree) const;
  void copy_stats();  // For readers on other threads; after every change.

  CacheLimits limits;
  Clock& clock;
  Rng rng;
  TokenTree tree;
  Conversations conversations;
  std::vector<Anchor> anchors;
  std::vector<AnchorId> free_anchors;
  std::vector<Candidate> candidates;                  // Of the eviction under way.
  std::vector<std::unique_ptr<LeaseRecord>> records;  // Used again, so that their buffers are.
  std::vector<LeaseRecord*> free_records;
  mutable std::vector<NodeIndex> path;  // Of the lookup under way.
  int64_t pages_owed = 0;               // Promised and not given.
  uint64_t order = 0;                   // Counts uses: finer than time.
  double typical_gap_ns = 0;            // Of all conversations, smoothed; 0: none has come back yet.
  CacheStats counters;

  CacheListener* listener = nullptr;
  bool silent = false;               // What happens is told as a whole later.
  std::vector<NodeIndex> announced;  // Of the event under way, as the two below.
  std::vector<int64_t> hashes;
  std::vector<TokenId> block_tokens;

  mutable std::mutex stats_mutex;
  CacheStats stats_copy;
};

}  // namespace wp
