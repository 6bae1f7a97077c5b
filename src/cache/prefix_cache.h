// PrefixCache: which pages and anchors hold which token prefixes: a radix tree of 64-token nodes, page ids, anchor ids,
// admission, restore, displacement and eviction (spec/prefix_cache.md). Decides about numbers and makes no device
// call. Owned by the engine; every call from the engine thread, but stats() which may be read from any.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/rng.h"

namespace wp {

using TokenId = int32_t;
using PageId = int32_t;
using AnchorId = int32_t;
constexpr AnchorId kNoAnchor = -1;
constexpr int64_t kPageTokens = 64;  // P: tokens of a page, of a node, of the grid.

// Where an anchor was captured, and why (prefix_cache.md 6). The letter is what logs print.
enum class CaptureClass : uint8_t { system, tail, user, branch, assistant, ladder };
constexpr int kCaptureClasses = 6;
char letter(CaptureClass capture_class);  // S T U B A L
// The time after which the chance that it will be used again has halved, whatever else is known.
double half_life_ns(CaptureClass capture_class);

// Why the restored position is lower than it could have been (prefix_cache.md 15.2), in the order of precedence.
enum class MissReason : uint8_t {
  bypass,
  none,
  too_short,
  model_changed,
  adapter_changed,
  salt,
  tier_fail,
  incomplete,
  evicted,
  no_anchor,
  diverged,
  cold
};
constexpr int kMissReasons = 12;
const char* name(MissReason reason);

struct CapturePoint {
  int64_t position;  // Multiple of 64, in (0, n); of a consolidation in (0, n].
  CaptureClass capture_class;
  int64_t pin_ns = 0;  // Asked for by the client (cache_control): held for so long after each request that says so.
};

struct CacheLimits {
  int32_t pages = 0;          // In the pool.
  int32_t anchors = 0;        // In the pool.
  int32_t ghosts_max = 4096;  // Nodes kept without bytes.
  int32_t conversations_max = 4096;
  int32_t nodes_max = 1 << 20;     // Of any kind, ghosts included.
  int32_t held_percent_max = 50;   // Anchors under a hold.
  int32_t probation_percent = 33;  // Anchors of prompts that look one-shot.
  int64_t hold_ns = 600'000'000'000;
  // What an eviction frees, for the value of an anchor. Only the ratio counts; the flagship's sizes (5).
  int64_t page_bytes = 1'769'472;
  int64_t anchor_bytes = 115'662'860;
};

// What a request asks of the cache. Tokens outlive the call only.
struct PrefixQuery {
  std::span<const TokenId> tokens;  // The prompt, n of them.
  uint64_t domain = 0;              // Cache domain (salt, key, adapter): part of every node's key.
  std::string_view conversation;    // Soft label; empty: none. Policy only, never a condition of a restore.
  bool continues = false;           // The history holds an assistant turn.
  bool prefix_only = false;         // A consolidation: needs no logits, so that an anchor may stand at n. Not a lookup.
  const char* bypass = nullptr;  // Not null: the cache is not consulted; why ("server", "request", "prompt_logprobs").
};

// What was found, before anything is changed. cached tokens == anchor_position.
struct Match {
  int64_t match = 0;            // Longest match in tokens, whole nodes.
  int64_t anchor_position = 0;  // Where computing resumes; 0: at the start, from a zero state.
  AnchorId anchor = kNoAnchor;
  CaptureClass anchor_class = CaptureClass::tail;
  MissReason reason = MissReason::cold;
  std::string detail;           // "at=71", "bypass=server": for the log line; may be empty.
  int64_t diverged_at = -1;     // First token that differs from the nearest known path; -1: none is near.
  std::string nearest;          // Label of the conversation it left; may be empty.
  std::vector<TokenId> had;     // Up to 12 tokens of the known path on either side of diverged_at.
  int64_t branch_position = 0;  // Where a class B anchor would serve the next such request; 0: nowhere.
};

constexpr int64_t kDivergenceTokens = 12;  // On either side, where a prompt and a known path are shown.
// That part of a prompt.
std::span<const TokenId> tokens_around(std::span<const TokenId> tokens, int64_t position);

class CacheListener;  // cache_events.h
struct TreeView;      // tree_view.h
class PrefixCache;
struct LeaseRecord;

// A sequence's right to read a path of the tree and to fill fresh pages behind it. Move-only; its end returns all.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();

  explicit operator bool() const { return cache_ != nullptr; }
  const Match& match() const;
  // Pages from position 0: shared ones up to the anchor, then this lease's own. Own pages alone may be written.
  std::span<const PageId> pages() const;
  int64_t shared_tokens() const;  // Pages below this position are not written by this lease (C5).
  // Makes pages() cover [0, tokens_end). Never fails within the `tokens_max` promised at acquire(); evicts if it must.
  void extend(int64_t tokens_end);

 private:
  friend class PrefixCache;
  Lease(PrefixCache& cache, LeaseRecord* record) : cache_(&cache), record_(record) {}
  PrefixCache* cache_ = nullptr;
  LeaseRecord* record_ = nullptr;
};

// Why an anchor went: the order in which victims are looked for (prefix_cache.md 10.1), and flush().
enum class EvictionReason : uint8_t { superseded, probation, ladder, value, flush };
constexpr int kEvictionReasons = 5;
const char* name(EvictionReason reason);

// Why a capture found no anchor: none may be taken (held, being read or written), or what would go is worth more.
enum class CaptureRefusal : uint8_t { none_evictable, worth_less };
constexpr int kCaptureRefusals = 2;
const char* name(CaptureRefusal reason);

struct CacheStats {
  int64_t pages_total = 0, pages_free = 0, pages_cached = 0, pages_leased = 0;
  int64_t anchors_total = 0, anchors_free = 0, anchors_published = 0, anchors_pending = 0, anchors_held = 0;
  int64_t nodes = 0, ghosts = 0;
  int64_t lookups = 0, query_tokens = 0, hit_tokens = 0, recomputed_tokens = 0, restores = 0;
  int64_t misses[kMissReasons] = {};  // Of what was found here; the engine's count knows of the tiers too.
  int64_t hit_tokens_by_class[kCaptureClasses] = {};
  int64_t hold_denials = 0;
  int64_t published_by_class[kCaptureClasses] = {}, deduped_by_class[kCaptureClasses] = {},
          skipped_by_class[kCaptureClasses] = {};
  int64_t refused_by_reason[kCaptureRefusals] = {};
  int64_t ghost_hits_by_class[kCaptureClasses] = {};  // Of the deepest ghost that the request walked through.
  int64_t evictions[kCaptureClasses][kEvictionReasons] = {};
  int64_t victims_drawn = 0;     // Of those by value, the ones drawn from several that were worth the same.
  int64_t equals_admitted = 0;   // Captures that won the draw against what was worth the same.
  int64_t holds_overridden = 0;  // Evicted under a hold, for the pages that a running sequence was promised.

  int64_t published() const { return total(published_by_class); }
  int64_t deduped() const { return total(deduped_by_class); }
  int64_t skipped() const { return total(skipped_by_class); }
  int64_t captures_refused() const { return total(refused_by_reason); }
  int64_t ghost_hits() const { return total(ghost_hits_by_class); }
  int64_t evictions_for(EvictionReason reason) const {
    int64_t sum = 0;
    for (const auto& of_class : evictions) sum += of_class[static_cast<size_t>(reason)];
    return sum;
  }

 private:
  template <size_t kCount>
  static int64_t total(const int64_t (&counts)[kCount]) {
    return std::accumulate(counts, counts + kCount, int64_t{0});
  }
};

class PrefixCache {
 public:
  PrefixCache(const CacheLimits& limits, Clock& clock, Seed seed = 1);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The restore decision (prefix_cache.md 8). Pure: changes nothing, allocates no page.
  Match find(const PrefixQuery& query) const;
  // Decides as find() does, holds the path, and promises pages for `tokens_max` tokens in all (prompt and what may be
  // generated). No lease: the promise does not fit beside those given; ask again when one has ended.
  std::optional<Lease> acquire(const PrefixQuery& query, int64_t tokens_max);
  // Whether such a promise could ever be given.
  bool could_fit(int64_t tokens_max) const;

  // Two-phase capture (13): reserve, write in the pass, publish. What a lease reserved and did not publish goes home
  // with it, so a lease must not end while a pass still writes. A free anchor for this position of the lease's
  // sequence, evicting a less valuable one if the rules allow. None: skipped and counted; a capture is best effort.
  std::optional<AnchorId> reserve_anchor(Lease& lease, int64_t position, CaptureClass capture_class);
  // The anchor at `position` of this lease's sequence is held for so long: now, if there is one, and once it is
  // published. Within the limit of holds.
  void pin(Lease& lease, int64_t position, int64_t pin_ns);
  // Another request waits for the state at `position` of this lease's sequence: the evidence that a B anchor needs,
  // and worth more than any that nobody is waiting for.
  void expect_branch(Lease& lease, int64_t position);
  void abandon_anchor(AnchorId anchor);  // Reserved and not published: cancelled, or its receipts are incomplete.
  // After the pass that wrote it: `tokens` are the sequence's first `position` canonical tokens. The lease's own pages
  // below `position` become nodes (or stay the lease's, where equal nodes exist that somebody reads) and the anchor is
  // published, or freed where the node has one. No page id in pages() changes. Returns whether it is this anchor that
  // is now in the tree. The anchor that the lease restored may be evicted from now on: the pass that read it is over.
  bool publish(Lease& lease, std::span<const TokenId> tokens, int64_t position, AnchorId anchor);

  CaptureClass class_of(AnchorId anchor) const;                    // Of an anchor that is not free.
  AnchorId anchor_at(const Lease& lease, int64_t position) const;  // Published, on the path it holds; or none.

  // The conversation expects another request soon (a tool call is pending): its newest anchor is held for hold_ns.
  void hold(std::string_view conversation);
  void drop_hold(std::string_view conversation);
  // What this path alone needs is evicted, from its end up to what others share or somebody reads.
  void forget(const PrefixQuery& query);
  // Everything that nobody holds is forgotten, ghosts too. Returns pages freed.
  int64_t flush();

  TreeView view(uint64_t domain);  // A bounded look at what it holds.

  // Is told from now on what a request could restore; null: nobody. Outlives the cache.
  void listen(CacheListener* listener);
  void tell_all();  // All that is usable, to the listener, as newly stored.

  // Aborts unless C1 to C5 and conservation hold (docs/invariants.md). After every change in debug builds and in
  // simulation, when idle in release builds.
  void check() const;
  CacheStats stats() const;

 private:
  friend class Lease;
  friend struct PrefixCachePeer;  // Tests break its innards through it.
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace wp
