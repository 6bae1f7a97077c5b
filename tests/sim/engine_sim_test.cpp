#include <gtest/gtest.h>

#include "testing/seeds.h"
#include "world.h"

namespace wp::sim {
namespace {

using testing::Fault;

constexpr int kWorlds = 12;
constexpr int64_t kOperations = 3000;

Seed world_seed(Seed seed, int world) { return splitmix64(seed) + static_cast<Seed>(world); }

TEST(EngineSim, AnyHistoryGivesTheAnswersOfThePrompts) {
  testing::Marks marks(World::all_marks());  // Over all seeds: the fixed one reaches what a fresh one may miss.
  for (Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    for (int i = 0; i < kWorlds; ++i) {
      World world(world_seed(seed, i), {.scarce_anchors = i % 2 == 0});
      world.run(kOperations);
      ASSERT_EQ(world.problem(), "") << "world " << i;
      for (const auto& [name, count] : world.marks())
        if (count > 0) marks.reach(name);
    }
  }
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
                                           Fault::anchor_written));

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
