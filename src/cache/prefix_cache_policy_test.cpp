// The policy simulation of spec/prefix_cache.md 10.3: conversations take turns, side calls push, and what counts is the
// share of prompt tokens that had to be computed again. 0.03 is the floor: the new tokens alone.
#include <gtest/gtest.h>

#include <cmath>

#include "core/cat.h"
#include "testing/cache_machine.h"

namespace wp::testing {
namespace {

constexpr int kTurns = 50;
constexpr int64_t kSystemTokens = 4096, kPagesPlenty = 40000;

struct Scenario {
  int conversations;
  int anchors;
  int side_calls;
  double share_of_spec = 0;  // "This policy" in 10.3.
};

class Simulation {
 public:
  Simulation(const Scenario& scenario, bool continues_known, Seed seed)
      : scenario_(scenario), continues_known_(continues_known), rng_(seed) {
    cache_ = std::make_unique<PrefixCache>(
        CacheLimits{.pages = kPagesPlenty, .anchors = scenario.anchors, .nodes_max = kPagesPlenty * 2}, clock_, seed);
  }

  double share_recomputed() {
    const Tokens system = random_tokens(kSystemTokens);
    std::vector<Tokens> prompts(static_cast<size_t>(scenario_.conversations), system);
    for (Tokens& prompt : prompts) append(prompt, rng_.between(500, 1500));
    for (int turn = 0; turn < kTurns; ++turn)
      for (Tokens& prompt : prompts) {
        request(prompt, kSystemTokens, turn > 0 && continues_known_);
        const int64_t tool_tokens = static_cast<int64_t>(std::exp(5.35 + 0.95 * rng_.normal()));
        append(prompt, rng_.between(60, 200) + tool_tokens);
        for (int call = 0; call < scenario_.side_calls; ++call)
          request(random_tokens(rng_.between(1500, 4000)), 0, false);
      }
    cache_->check();
    return static_cast<double>(computed_) / static_cast<double>(asked_);
  }

 private:
  Tokens random_tokens(int64_t count) {
    Tokens tokens;
    append(tokens, count);
    return tokens;
  }
  void append(Tokens& tokens, int64_t count) {
    for (; count > 0; --count) tokens.push_back(static_cast<TokenId>(rng_.between(0, 200'000)));
  }

  // As the engine asks: S where there is a system block, T at the last boundary, B where a branch was found.
  void request(const Tokens& tokens, int64_t system_end, bool continues) {
    const int64_t tokens_count = static_cast<int64_t>(tokens.size());
    auto lease = cache_->acquire({.tokens = tokens, .continues = continues}, tokens_count);
    ASSERT_TRUE(lease);
    if (system_end > 0) {  // A side call is new altogether: it can only do harm to the others.
      asked_ += tokens_count;
      computed_ += tokens_count - lease->match().anchor_position;
    }
    clock_.advance_ns(5'000'000'000);
    lease->extend(tokens_count);
    std::vector<CapturePoint> points = {{(tokens_count - 1) / kPageTokens * kPageTokens, CaptureClass::tail}};
    if (system_end > 0) points.push_back({system_end, CaptureClass::system});
    if (lease->match().branch_position > 0) points.push_back({lease->match().branch_position, CaptureClass::branch});
    std::vector<std::pair<CapturePoint, AnchorId>> reserved;
    for (const CapturePoint& point : points)
      if (point.position > lease->match().anchor_position)
        if (const auto anchor = cache_->reserve_anchor(*lease, point.position, point.capture_class))
          reserved.push_back({point, *anchor});
    for (const auto& [point, anchor] : reserved) cache_->publish(*lease, tokens, point.position, anchor);
  }

  Scenario scenario_;
  bool continues_known_;
  Rng rng_;
  ManualClock clock_;
  std::unique_ptr<PrefixCache> cache_;
  int64_t asked_ = 0, computed_ = 0;
};

TEST(PrefixCachePolicy, RecomputesNoMoreThanTheSpecificationSimulated) {
  const Scenario scenarios[] = {{1, 4, 0, 0.035},  {1, 4, 1, 0.035},  {4, 6, 0, 0.032},  {4, 8, 1, 0.034},
                                {8, 12, 0, 0.031}, {8, 16, 1, 0.032}, {20, 24, 1, 0.033}};
  for (const Scenario& scenario : scenarios) {
    SCOPED_TRACE(cat(scenario.conversations, " conversations, ", scenario.anchors, " anchors, ", scenario.side_calls,
                     " side calls"));
    // Nobody says that a history goes on: returning must prove itself.
    EXPECT_NEAR(Simulation(scenario, false, 1).share_recomputed(), scenario.share_of_spec, 0.015);
  }
  EXPECT_NEAR(Simulation({4, 8, 1}, true, 2).share_recomputed(), 0.034, 0.015);
}

// More conversations than anchors, one after the other: under any fixed order each would be evicted just before its
// turn, and 0.74 of all tokens be computed again.
TEST(PrefixCachePolicy, CyclicAccessBeyondThePoolStillHits) {
  EXPECT_LT(Simulation({20, 16, 0}, true, 1).share_recomputed(), 0.45);
}

}  // namespace
}  // namespace wp::testing
