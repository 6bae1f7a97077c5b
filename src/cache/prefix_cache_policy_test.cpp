// The policy simulation of spec/prefix_cache.md 10.3 against its table.
#include <gtest/gtest.h>

#include "cache/policy_simulation.h"
#include "core/cat.h"
#include "testing/seeds.h"

namespace wp::testing {
namespace {

constexpr double kPoints = 0.015;

std::string text(const PolicyScenario& scenario) {
  return cat(scenario.conversations, " conversations, ", scenario.anchors, " anchors, ", scenario.side_calls,
             " side calls");
}

TEST(PrefixCachePolicy, RecomputesNoMoreThanTheSpecificationSimulated) {
  for (const PolicyRow& row : policy_rows()) {
    SCOPED_TRACE(text(row.scenario));
    // Nobody says that a history goes on: returning must prove itself.
    const PolicyOutcome outcome = simulate_policy(row.scenario, SimulatedPolicy::warmpath, false, 1);
    EXPECT_LT(outcome.computed, row.policy_of_spec + kPoints);
    EXPECT_GE(outcome.computed, outcome.fresh);
    if (row.policy_of_spec > 0.1) continue;  // More at work than there are anchors.
    EXPECT_LT(outcome.computed, outcome.fresh + kPoints);
  }
}

TEST(PrefixCachePolicy, HoldsForOtherSeedsAndKnownHistories) {
  for (const Seed seed : seeds_of_this_run()) {
    SCOPED_TRACE(repeat_hint(seed));
    for (const bool continues_known : {false, true}) {
      const PolicyOutcome outcome = simulate_policy({4, 8, 1}, SimulatedPolicy::warmpath, continues_known, seed);
      EXPECT_LT(outcome.computed, outcome.fresh + kPoints);
    }
  }
}

// The comparison means something: plain LRU loses what the specification says it loses.
TEST(PrefixCachePolicy, LruLosesAsTheSpecificationSimulated) {
  for (const PolicyRow& row : policy_rows()) {
    SCOPED_TRACE(text(row.scenario));
    const PolicyOutcome outcome = simulate_policy(row.scenario, SimulatedPolicy::lru, false, 1);
    EXPECT_NEAR(outcome.computed, row.lru_of_spec, row.lru_of_spec < 0.1 ? kPoints : 0.06);
  }
}

}  // namespace
}  // namespace wp::testing
