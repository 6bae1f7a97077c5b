// The simulation of spec/prefix_cache.md 10.3: agents take turns, each with a prompt that grows, and side calls push.
// What counts is the share of prompt tokens that had to be computed again, beside what is new and had to be in any
// case. Drives the real PrefixCache, or plain LRU over the same captures to compare with; KV is assumed to fit. Pure,
// and the same for the same seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/rng.h"

namespace wp {

struct PolicyScenario {
  int conversations = 1;
  int anchors = 4;
  int side_calls = 0;  // After each turn: 1,500 to 4,000 tokens that nobody has seen or will see again.
};

enum class SimulatedPolicy : uint8_t { lru, warmpath };

struct PolicyOutcome {
  double computed = 0;  // Share of the conversations' prompt tokens; side calls are new altogether and do not count.
  double fresh = 0;     // The floor: tokens of which nothing was known, and the part of a page behind a turn.
};

// Where `continues_known`, the request says that its history goes on; else returning must prove itself.
PolicyOutcome simulate_policy(const PolicyScenario& scenario, SimulatedPolicy policy, bool continues_known, Seed seed);

// Scenarios of the specification's table, with what it found.
struct PolicyRow {
  PolicyScenario scenario;
  double lru_of_spec, policy_of_spec;
};
const std::vector<PolicyRow>& policy_rows();
// The table: one line a scenario, LRU and policy, each beside the specification's.
std::string policy_table(Seed seed);

}  // namespace wp
