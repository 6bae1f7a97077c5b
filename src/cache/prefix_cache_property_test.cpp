// Histories at random, everything checked after every operation, and the proof that the checks bite.
#include <gtest/gtest.h>

#include "testing/cache_machine.h"
#include "testing/seeds.h"

namespace wp::testing {
namespace {

constexpr int kSteps = 400;

TEST(PrefixCacheProperty, ContentsAndAnswersSurviveAnyHistory) {
  // Over all seeds of the run: a rare branch ("hold denied") may be missed by the fresh one, never by the fixed one.
  Marks marks(CacheMachine::mark_names());
  for (const Seed seed : seeds_of_this_run()) {
    SCOPED_TRACE(repeat_hint(seed));
    for (Seed history = 0; history < 150; ++history) {
      CacheMachine machine(Chooser(splitmix64(seed) + history));
      for (int step = 0; step < kSteps && machine.failure().empty(); ++step) machine.step();
      machine.finish();
      ASSERT_EQ(machine.failure(), "") << "history " << history;
      for (const std::string& name : CacheMachine::mark_names())
        if (machine.marks().reached(name)) marks.reach(name);
    }
  }
  EXPECT_TRUE(marks.all_reached()) << marks.missing();  // A property nobody exercised is not tested.
}

struct Caught {
  int broken = 0, caught = 0;
};

Caught run_broken(CacheFault fault, int histories) {
  Caught result;
  for (Seed history = 0; history < static_cast<Seed>(histories); ++history) {
    CacheMachine machine(Chooser(history), fault);
    for (int step = 0; step < kSteps && machine.failure().empty(); ++step) machine.step();
    result.broken += machine.broken();
    result.caught += !machine.failure().empty();
  }
  return result;
}

TEST(PrefixCacheProperty, WrongContentsAndWrongAnswersAreCaught) {
  const std::pair<CacheFault, const char*> faults[] = {
      {CacheFault::anchor_off_by_a_page, "anchor off by a page"},
      {CacheFault::stale_page, "stale page"},
      {CacheFault::writes_a_shared_page, "write into a shared page"},
      {CacheFault::domains_ignored, "domains ignored"},
      {CacheFault::hit_at_the_prompt_end, "hit at the prompt's end"},
      {CacheFault::gap_page_not_recomputed, "gap page not recomputed"},
      {CacheFault::anchor_of_another_prompt, "anchor of another prompt"},
  };
  for (const auto& [fault, name] : faults) {
    const Caught result = run_broken(fault, 20);
    EXPECT_GE(result.broken, 15) << name;
    EXPECT_GE(result.caught * 10, result.broken * 7) << name;  // Not all: what broke may never be read again.
  }
}

TEST(PrefixCachePropertyDeathTest, BrokenCountsAreCaught) {
  const auto run = [](CacheFault fault) { run_broken(fault, 20); };
  EXPECT_DEATH(run(CacheFault::page_freed_twice), "count == 1");
  EXPECT_DEATH(run(CacheFault::page_lost), "count == 1");
  EXPECT_DEATH(run(CacheFault::anchor_freed_twice), "is_free");
  EXPECT_DEATH(run(CacheFault::promise_miscounted), "owed == pages_owed");
  EXPECT_DEATH(run(CacheFault::holder_forgotten), "holders|unheld");
  EXPECT_DEATH(run(CacheFault::reader_forgotten), "readers");
  EXPECT_DEATH(run(CacheFault::position_mislabelled), "position");
}

}  // namespace
}  // namespace wp::testing
