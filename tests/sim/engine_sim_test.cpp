#include <gtest/gtest.h>

#include <cstdio>

#include "testing/seeds.h"
#include "world.h"

namespace wp::sim {
namespace {

using testing::Fault;

constexpr int64_t kOperations = 3000;
constexpr int64_t kAllOperations = 12 * kOperations;  // Of a seed; --runs=N: N.

Seed world_seed(Seed seed, int world) { return splitmix64(seed) + static_cast<Seed>(world); }

TEST(EngineSim, AnyHistoryGivesTheAnswersOfThePrompts) {
  const int64_t all = testing::runs_of_this_run(kAllOperations);
  testing::Marks marks(World::all_marks());  // Over all seeds: the fixed one reaches what a fresh one may miss.
  std::map<std::string, int64_t> counts;
  for (Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    std::printf("seed %llu: %lld operations\n", static_cast<unsigned long long>(seed), static_cast<long long>(all));
    for (int i = 0; i * kOperations < all; ++i) {
      World world(world_seed(seed, i), {.scarce_anchors = i % 2 == 0});
      world.run(kOperations);
      ASSERT_EQ(world.problem(), "") << "world " << i;
      for (const auto& [name, count] : world.marks()) {
        counts[name] += count;
        if (count > 0) marks.reach(name);
      }
    }
  }
  for (const auto& [name, count] : counts) std::printf("%12lld  %s\n", static_cast<long long>(count), name.c_str());
  EXPECT_TRUE(marks.all_reached()) << marks.missing();
}

TEST(EngineSim, WithoutTheCacheTheAnswersAreTheSame) {
  for (Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    World world(world_seed(seed, 0), {.cache = false});
    world.run(kOperations);
    EXPECT_EQ(world.problem(), "");
    EXPECT_EQ(world.stats().cache.restores, 0);
  }
}

TEST(EngineSim, OneSeedRepeatsARun) {
  for (Seed seed : testing::seeds_of_this_run()) {
    World first(world_seed(seed, 1)), second(world_seed(seed, 1)), other(world_seed(seed, 2));
    first.run(500);
    second.run(500);
    other.run(500);
    EXPECT_EQ(first.trace(), second.trace());
    EXPECT_NE(first.trace(), other.trace());
  }
}

// A harness that finds nothing may be looking at nothing: each of these breaks the model, and must be seen.
class EngineSimControl : public ::testing::TestWithParam<Fault> {};

TEST_P(EngineSimControl, ABrokenModelIsCaught) {
  bool caught = false;
  for (int i = 0; i < 4 && !caught; ++i) {
    World world(world_seed(1, i), {.fault = GetParam()});
    world.run(kOperations);
    caught = !world.problem().empty();
  }
  EXPECT_TRUE(caught);
}

INSTANTIATE_TEST_SUITE_P(Faults, EngineSimControl,
                         ::testing::Values(Fault::silent_partial_capture, Fault::capture_off_by_64,
                                           Fault::capture_at_pass_end, Fault::row_not_written, Fault::slot_not_written,
                                           Fault::anchor_written, Fault::rows_reused, Fault::pending_row_dropped));

TEST(EngineSimSabotage, ADomainThatIsSharedIsCaught) {
  bool caught = false;
  for (int i = 0; i < 4 && !caught; ++i) {
    World world(world_seed(1, i), {.sabotage = Sabotage::share_domains});
    world.run(kOperations);
    caught = world.problem().find("more than its domain knows") != std::string::npos;
  }
  EXPECT_TRUE(caught);
}

TEST(EngineSimSabotage, ADiskThatGivesOtherBytesIsCaught) {
  std::string problem;
  for (int i = 0; i < 4 && problem.empty(); ++i) {
    World world(world_seed(1, i), {.sabotage = Sabotage::lying_disk});
    world.run(kOperations);
    problem = world.problem();
  }
  EXPECT_NE(problem, "");
}

// By the cache's own check at the next step, and without it by the model, which reads another's rows. A debug build's
// cache checks itself always.
void run_evicting_what_is_read(bool check) {
  for (int i = 0; i < 4; ++i) {
    World world(world_seed(1, i), {.sabotage = Sabotage::evict_a_read_path, .check = check});
    world.run(kOperations);
    if (world.problem().empty()) continue;
    std::fprintf(stderr, "the model found: %s\n", world.problem().c_str());
    std::abort();
  }
}

TEST(EngineSimSabotageDeathTest, AnEvictedPageThatIsReadIsCaught) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(run_evicting_what_is_read(true), "assertion failed");
  EXPECT_DEATH(run_evicting_what_is_read(false), "the model found|assertion failed");
}

TEST(EngineSim, AnAnchorWithoutAllReceiptsIsNeverPublished) {
  int64_t incomplete = 0;
  for (int i = 0; i < 3; ++i) {
    World world(world_seed(1, i), {.fault = Fault::honest_partial_capture});
    world.run(kOperations);
    EXPECT_EQ(world.problem(), "");
    EXPECT_EQ(world.stats().cache.published(), 0);
    EXPECT_EQ(world.stats().cache.restores, 0);
    incomplete += world.stats().captures_incomplete;
  }
  EXPECT_GT(incomplete, 0);
}

}  // namespace
}  // namespace wp::sim
