#include "cache/policy_simulation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <unordered_map>

#include "cache/prefix_cache.h"
#include "core/assert.h"
#include "core/hash.h"

namespace wp {
namespace {

constexpr int kTurns = 50;
constexpr int64_t kSystemTokens = 4096, kPagesPlenty = 40000;
constexpr int64_t kTurnNs = 5'000'000'000;

using Tokens = std::vector<TokenId>;

struct Prompt {
  const Tokens& tokens;
  int64_t system_end;  // 0: none.
  bool continues;
};

int64_t tail_of(const Tokens& tokens) { return (static_cast<int64_t>(tokens.size()) - 1) / kPageTokens * kPageTokens; }

// Takes a prompt, returns where computing began, keeps what a capture keeps.
class Keeper {
 public:
  virtual ~Keeper() = default;
  virtual int64_t request(const Prompt& prompt) = 0;
};

// S where there is a system block and T at the last boundary, the least recently used out.
class LruKeeper final : public Keeper {
 public:
  explicit LruKeeper(int anchors) : anchors_max_(static_cast<size_t>(anchors)) {}

  int64_t request(const Prompt& prompt) override {
    std::vector<uint64_t> hashes;  // Of the first i + 1 pages.
    uint64_t hash = 0;
    for (int64_t at = 0; at < tail_of(prompt.tokens); at += kPageTokens)
      hashes.push_back(hash = hash_bytes(prompt.tokens.data() + at, kPageTokens * sizeof(TokenId), hash));
    int64_t restored = 0;
    for (size_t pages = hashes.size(); pages > 0 && restored == 0; --pages)
      if (const auto found = used_.find(hashes[pages - 1]); found != used_.end()) {
        found->second = ++order_;
        restored = static_cast<int64_t>(pages) * kPageTokens;
      }
    if (prompt.system_end > restored) keep(hashes[static_cast<size_t>(prompt.system_end / kPageTokens) - 1]);
    if (!hashes.empty()) keep(hashes.back());
    return restored;
  }

 private:
  void keep(uint64_t hash) {
    used_[hash] = ++order_;
    if (used_.size() <= anchors_max_) return;
    used_.erase(
        std::min_element(used_.begin(), used_.end(), [](const auto& a, const auto& b) { return a.second < b.second; }));
  }

  size_t anchors_max_;
  std::unordered_map<uint64_t, uint64_t> used_;  // Order of the last use.
  uint64_t order_ = 0;
};

// As the engine asks: S, T, and B where a branch was found.
class CacheKeeper final : public Keeper {
 public:
  CacheKeeper(int anchors, Seed seed)
      : cache_({.pages = kPagesPlenty, .anchors = anchors, .nodes_max = kPagesPlenty * 2}, clock_, seed) {}
  ~CacheKeeper() override { cache_.check(); }

  int64_t request(const Prompt& prompt) override {
    const Tokens& tokens = prompt.tokens;
    const auto n = static_cast<int64_t>(tokens.size());
    auto lease = cache_.acquire({.tokens = tokens, .continues = prompt.continues}, n);
    WP_ASSERT(lease);
    clock_.advance_ns(kTurnNs);
    lease->extend(n);
    std::vector<CapturePoint> points = {{tail_of(tokens), CaptureClass::tail}};
    if (prompt.system_end > 0) points.push_back({prompt.system_end, CaptureClass::system});
    if (lease->match().branch_position > 0) points.push_back({lease->match().branch_position, CaptureClass::branch});
    std::vector<std::pair<CapturePoint, AnchorId>> reserved;
    for (const CapturePoint& point : points)
      if (point.position > lease->match().anchor_position)
        if (const auto anchor = cache_.reserve_anchor(*lease, point.position, point.capture_class))
          reserved.push_back({point, *anchor});
    for (const auto& [point, anchor] : reserved) cache_.publish(*lease, tokens, point.position, anchor);
    return lease->match().anchor_position;
  }

 private:
  ManualClock clock_;
  PrefixCache cache_;
};

class Simulation {
 public:
  Simulation(const PolicyScenario& scenario, SimulatedPolicy policy, bool continues_known, Seed seed)
      : scenario_(scenario), continues_known_(continues_known), rng_(seed) {
    if (policy == SimulatedPolicy::lru) keeper_ = std::make_unique<LruKeeper>(scenario.anchors);
    else keeper_ = std::make_unique<CacheKeeper>(scenario.anchors, seed);
  }

  PolicyOutcome run() {
    Tokens system;
    append(system, kSystemTokens);
    std::vector<Tokens> prompts(static_cast<size_t>(scenario_.conversations), system);
    for (Tokens& prompt : prompts) append(prompt, rng_.between(500, 1500));
    for (int turn = 0; turn < kTurns; ++turn)
      for (size_t i = 0; i < prompts.size(); ++i) {
        take_turn(prompts[i], turn, i == 0);
        for (int call = 0; call < scenario_.side_calls; ++call) {
          Tokens side;
          append(side, rng_.between(1500, 4000));
          keeper_->request({side, 0, false});
        }
      }
    return {static_cast<double>(computed_) / static_cast<double>(asked_),
            static_cast<double>(fresh_) / static_cast<double>(asked_)};
  }

 private:
  void append(Tokens& tokens, int64_t count) {
    for (; count > 0; --count) tokens.push_back(static_cast<TokenId>(rng_.between(0, 200'000)));
  }

  void take_turn(Tokens& prompt, int turn, bool first) {
    const auto n = static_cast<int64_t>(prompt.size());
    asked_ += n;
    computed_ += n - keeper_->request({prompt, kSystemTokens, turn > 0 && continues_known_});
    fresh_ += n - (turn > 0 ? known_[&prompt] : first ? 0 : kSystemTokens);
    known_[&prompt] = tail_of(prompt);
    append(prompt, rng_.between(60, 200) + static_cast<int64_t>(std::exp(5.35 + 0.95 * rng_.normal())));
  }

  PolicyScenario scenario_;
  bool continues_known_;
  Rng rng_;
  std::unique_ptr<Keeper> keeper_;
  std::unordered_map<const Tokens*, int64_t> known_;  // The last tail of each.
  int64_t asked_ = 0, computed_ = 0, fresh_ = 0;
};

}  // namespace

PolicyOutcome simulate_policy(const PolicyScenario& scenario, SimulatedPolicy policy, bool continues_known, Seed seed) {
  return Simulation(scenario, policy, continues_known, seed).run();
}

const std::vector<PolicyRow>& policy_rows() {
  static const std::vector<PolicyRow> rows = {
      {{1, 4, 0}, 0.035, 0.035},  {{1, 4, 1}, 0.035, 0.035},  {{4, 6, 0}, 0.399, 0.032},   {{4, 8, 1}, 0.747, 0.034},
      {{8, 12, 0}, 0.420, 0.031}, {{8, 16, 1}, 0.745, 0.032}, {{20, 24, 1}, 0.747, 0.033}, {{20, 16, 0}, 0.742, 0.346}};
  return rows;
}

std::string policy_table(Seed seed) {
  std::string out =
      "share of prompt tokens computed, 50 turns each from 4k to 23k tokens\n\n"
      "| conversations | anchors | side calls | LRU | (spec) | warmpath | (spec) | new tokens |\n"
      "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  for (const PolicyRow& row : policy_rows()) {
    const PolicyOutcome lru = simulate_policy(row.scenario, SimulatedPolicy::lru, false, seed);
    const PolicyOutcome policy = simulate_policy(row.scenario, SimulatedPolicy::warmpath, false, seed);
    char line[160];
    std::snprintf(line, sizeof line, "| %d | %d | %d | %.3f | %.3f | %.3f | %.3f | %.3f |\n",
                  row.scenario.conversations, row.scenario.anchors, row.scenario.side_calls, lru.computed,
                  row.lru_of_spec, policy.computed, row.policy_of_spec, policy.fresh);
    out += line;
  }
  return out;
}

}  // namespace wp
