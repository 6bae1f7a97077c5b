// CacheMachine: drives a PrefixCache through any history, as an engine would and as none should, and watches three
// things after every operation: the invariants (check()), the answers (CacheReference), and the contents. A page holds
// the hash of all tokens up to its end, an anchor the hash of all tokens before it; a stale page, another prompt's page
// or a state resumed anywhere but at its own position shows at the first read. Faults break the cache, or the engine
// around it, on purpose: a watch that never barks is no watch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cache/prefix_cache.h"
#include "core/rng.h"
#include "testing/cache_peer.h"
#include "testing/cache_reference.h"
#include "testing/seeds.h"

namespace wp::testing {

enum class CacheFault {
  none,
  anchor_off_by_a_page,      // Moved to the node above, its bytes as they were.
  stale_page,                // A node's page has another id than the one that was written.
  writes_a_shared_page,      // The engine writes one page below shared_tokens().
  domains_ignored,           // Looked up as if all were one domain.
  hit_at_the_prompt_end,     // An anchor at n is restored.
  gap_page_not_recomputed,   // A page above the anchor is taken as it comes.
  anchor_of_another_prompt,  // Two anchors of one depth changed places.
  page_freed_twice,
  page_lost,
  anchor_freed_twice,
  promise_miscounted,
  holder_forgotten,
  reader_forgotten,
  position_mislabelled
};

// Decisions from bytes, and when these run out from a generator: a fuzzer steers, a seed repeats.
class Chooser {
 public:
  explicit Chooser(Seed seed, std::span<const uint8_t> bytes = {}) : bytes_(bytes), rng_(seed) {}
  int64_t between(int64_t low, int64_t high);
  bool percent(int chance) { return between(0, 99) < chance; }

 private:
  std::span<const uint8_t> bytes_;
  Rng rng_;
};

class CacheMachine {
 public:
  CacheMachine(Chooser chooser, CacheFault fault = CacheFault::none);
  void listen(CacheListener* listener) { cache_->listen(listener); }
  PrefixCache& cache() { return *cache_; }
  const CacheReference& reference() const { return reference_; }
  // One operation and all checks. What was wrong, once; then empty for ever.
  void step();
  // Ends all leases and checks that everything came home.
  void finish();
  const std::string& failure() const { return failure_; }
  bool broken() const { return broken_; }  // The fault has struck.
  Marks& marks() { return marks_; }
  static std::vector<std::string> mark_names();

 private:
  struct Capture {
    AnchorId anchor;
    int64_t position;
    bool abandon;  // Cancelled before publication.
  };
  struct Running {
    int64_t id;
    Lease lease;
    Tokens tokens;
    uint64_t domain;
    int64_t computed;  // Positions below are in this lease's pages.
    int64_t tokens_max;
    bool restored_read;
    std::vector<Capture> captures;
    std::vector<PageId> pages_before;
  };

  void fail(std::string what);
  Tokens new_prompt();
  void acquire();
  void acquired(Lease lease, const PrefixQuery& query, Tokens tokens, int64_t tokens_max);
  void reserve(Running& running);
  void compute(Running& running);
  void compute_to(Running& running, int64_t end);
  void settle_captures(Running& running);
  void end(size_t index);
  void hold_or_drop();
  void flush();
  void break_something();
  void observe_evictions();
  void count_marks();
  void verify(Running& running);
  uint64_t content(uint64_t domain, std::span<const TokenId> tokens, int64_t end) const;

  Chooser chooser_;
  CacheFault fault_;
  CacheLimits limits_;
  ManualClock clock_;
  std::unique_ptr<PrefixCache> cache_;
  CacheReference reference_;
  std::vector<uint64_t> page_contents_, anchor_contents_;
  std::vector<Running> running_;
  std::vector<Tokens> histories_;  // Prompts to extend, repeat and edit.
  int64_t newest_lease_ = 0;
  CacheStats before_;
  bool broken_ = false;
  std::string failure_;
  Marks marks_;
};

}  // namespace wp::testing
