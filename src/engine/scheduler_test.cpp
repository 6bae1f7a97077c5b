#include "engine/scheduler.h"

#include <gtest/gtest.h>

namespace wp {
namespace {

ModelInfo info_of_work() {
  ModelInfo info;
  info.multiply_adds_per_token = 1e6;
  return info;
}

EngineLimits limits_of_test() { return {.sequences = 4, .pass_tokens = 512, .stall_ns = 100'000'000}; }

SequenceView prefill(int32_t index, int64_t position, int64_t prompt, int64_t waited = 0) {
  return {.index = index,
          .position = position,
          .prompt = prompt,
          .steps_waited = waited,
          .order = static_cast<uint64_t>(index)};
}
SequenceView decode(int32_t index, int64_t position, bool ready = true) {
  return {.index = index, .decoding = true, .ready = ready, .position = position, .prompt = 10};
}

class SchedulerTest : public ::testing::Test {
 protected:
  StepPlan decide(const std::vector<SequenceView>& views) {
    StepPlan plan;
    scheduler_.decide(views, plan);
    return plan;
  }
  // Tells the scheduler that passes take `pass_ns` and `row_ns` for each row.
  void measure(int64_t rows, int64_t pass_ns, int64_t row_ns) {
    StepPlan plan;
    plan.kind = StepPlan::Kind::prefill;
    plan.rows = rows;
    plan.pieces = {{0, 0, static_cast<int32_t>(rows)}};
    scheduler_.measured(plan, pass_ns + rows * row_ns);
  }
  Scheduler scheduler_{limits_of_test(), info_of_work()};
};

TEST_F(SchedulerTest, NothingToDo) {
  EXPECT_EQ(decide({}).kind, StepPlan::Kind::none);
  EXPECT_EQ(decide({decode(0, 20, false)}).kind, StepPlan::Kind::none);
}

TEST_F(SchedulerTest, DecodeTakesAllThatAreReady) {
  const StepPlan plan = decide({decode(0, 20), decode(1, 30, false), decode(3, 40)});
  EXPECT_EQ(plan.kind, StepPlan::Kind::decode);
  ASSERT_EQ(plan.pieces.size(), 2u);
  EXPECT_EQ(plan.pieces[0].sequence, 0);
  EXPECT_EQ(plan.pieces[1].sequence, 3);
  EXPECT_EQ(plan.pieces[1].position, 40);
}

TEST_F(SchedulerTest, PiecesAreWholePassesWhenNobodyWaits) {
  const StepPlan plan = decide({prefill(0, 0, 5000)});
  EXPECT_EQ(plan.kind, StepPlan::Kind::prefill);
  EXPECT_EQ(plan.rows, 512);
  EXPECT_EQ(decide({prefill(0, 4992, 5000)}).rows, 8);
}

TEST_F(SchedulerTest, BesideStreamsTheyAlternateAndBeginSmall) {
  const std::vector<SequenceView> views = {decode(0, 20), prefill(1, 0, 5000)};
  const StepPlan first = decide(views);
  EXPECT_EQ(first.kind, StepPlan::Kind::prefill);
  EXPECT_EQ(first.rows, 64);  // Nothing is known of the speed.
  EXPECT_EQ(decide(views).kind, StepPlan::Kind::decode);
  EXPECT_EQ(decide(views).kind, StepPlan::Kind::prefill);
}

TEST_F(SchedulerTest, G4PiecesFillTheTimeLimitAndNoMore) {
  const int64_t pass_ns = 5'000'000, row_ns = 300'000;  // 64 rows: 24 ms, 256: 82 ms, 320: 101 ms.
  int64_t rows = 64;
  for (int i = 0; i < 20; ++i) {
    measure(rows, pass_ns, row_ns);
    rows = scheduler_.rows_within_stall(0, 1);
    EXPECT_LE(pass_ns + rows * row_ns, 100'000'000);
  }
  EXPECT_EQ(rows, 256);
  StepPlan step;
  step.kind = StepPlan::Kind::decode;
  step.rows = 2;
  scheduler_.measured(step, 40'000'000);  // The decode pass is part of the gap.
  EXPECT_LE(pass_ns + scheduler_.rows_within_stall(0, 2) * row_ns, 60'000'000);
  step.rows = 1;
  scheduler_.measured(step, 90'000'000);
  EXPECT_EQ(scheduler_.rows_within_stall(0, 1), 64);  // Never less, or nothing would move.
}

TEST_F(SchedulerTest, OneSlowPassIsForgotten) {
  for (int64_t rows = 64; rows <= 512; rows += 64) measure(rows, 0, 100'000);
  EXPECT_EQ(scheduler_.rows_within_stall(0, 1), 512);
  measure(512, 900'000'000, 0);
  EXPECT_LT(scheduler_.rows_within_stall(0, 1), 512);
  for (int i = 0; i < 200; ++i) measure(scheduler_.rows_within_stall(0, 1), 0, 100'000);
  EXPECT_EQ(scheduler_.rows_within_stall(0, 1), 512);
}

TEST_F(SchedulerTest, DeepContextsGetSmallerPieces) {
  ModelInfo info = info_of_work();
  info.multiply_adds_per_token_and_key = 1e3;
  Scheduler scheduler(limits_of_test(), info);
  StepPlan plan;
  plan.kind = StepPlan::Kind::prefill;
  plan.rows = 64;
  plan.pieces = {{0, 0, 64}};
  scheduler.measured(plan, 10'000'000);
  EXPECT_GT(scheduler.rows_within_stall(0, 1), scheduler.rows_within_stall(3000, 1));
}

TEST_F(SchedulerTest, ShortPromptsGoFirstAndShareThePass) {
  const StepPlan plan = decide({prefill(0, 0, 100'000), prefill(1, 64, 264), prefill(2, 0, 100)});
  ASSERT_EQ(plan.pieces.size(), 3u);
  EXPECT_EQ(plan.pieces[0].sequence, 2);
  EXPECT_EQ(plan.pieces[0].rows, 100);
  EXPECT_EQ(plan.pieces[1].sequence, 1);
  EXPECT_EQ(plan.pieces[1].rows, 200);
  EXPECT_EQ(plan.pieces[2].sequence, 0);
  EXPECT_EQ(plan.pieces[2].rows, 192);  // What is left of 512, down to the grid.
  EXPECT_EQ(plan.rows, 492);
}

TEST_F(SchedulerTest, WhoWaitedLongGoesFirstWithHalf) {
  const StepPlan plan = decide({prefill(0, 0, 100'000, 7), prefill(1, 0, 5000)});
  ASSERT_EQ(plan.pieces.size(), 2u);
  EXPECT_EQ(plan.pieces[0].sequence, 0);
  EXPECT_EQ(plan.pieces[0].rows, 256);
  EXPECT_EQ(plan.pieces[1].rows, 256);
}

// A stream, one long prompt, and short ones without end: the long one has a piece within 8 steps all the same.
TEST_F(SchedulerTest, G5ALongPromptAlwaysMovesOn) {
  int64_t waited = 0, longest = 0, position = 0;
  for (int step = 0; step < 400; ++step) {
    const StepPlan plan = decide({decode(0, 20), prefill(1, position, 100'000, waited), prefill(2, 0, 64)});
    ++waited;
    longest = std::max(longest, waited);
    if (plan.kind != StepPlan::Kind::prefill) continue;
    EXPECT_EQ(plan.rows, 64);
    for (const Piece& piece : plan.pieces) {
      if (piece.sequence != 1) continue;
      waited = 0;
      position += piece.rows;
    }
  }
  EXPECT_LE(longest, 8);
  EXPECT_GT(position, 0);
}

TEST_F(SchedulerTest, RowsNeverExceedTheBudgetWhateverWaits) {
  const StepPlan plan = decide({decode(0, 20), prefill(1, 0, 40, 9), prefill(2, 0, 5000, 8), prefill(3, 0, 5000, 7)});
  EXPECT_EQ(plan.rows, 40);  // 64 are allowed; what is left is less than a page.
}

TEST_F(SchedulerTest, PromptLogprobsComeInSmallPiecesOneSequenceAtATime) {
  SequenceView first = prefill(0, 0, 400), second = prefill(1, 0, 400);
  first.all_logits = second.all_logits = true;
  const StepPlan plan = decide({first, second, prefill(2, 0, 300)});
  ASSERT_EQ(plan.pieces.size(), 2u);
  EXPECT_EQ(plan.pieces[0].sequence, 2);
  EXPECT_EQ(plan.pieces[1].sequence, 0);
  EXPECT_EQ(plan.pieces[1].rows, 64);
}

}  // namespace
}  // namespace wp
