// Recorded conversations against the tree, over a model without arithmetic: who restores what, and what is said of it.
#include "measure/why.h"

#include <gtest/gtest.h>

#include "core/log.h"
#include "measure/hollow_model.h"
#include "measure/replay_report.h"
#include "testing/seeds.h"

namespace wp::measure {
namespace {

class Why : public ::testing::Test {
 protected:
  static std::string folder() { return testing::source_directory() + "/models/flash-next-mini"; }

  std::vector<TurnResult> play(const std::vector<Conversation>& conversations, const ReplayOptions& options,
                               const EngineLimits& limits) {
    configure_log({.level = LogLevel::error});
    const TokenId end = *tokenizer_.find("<|im_end|>");
    const HollowModel model(tokenizer_.vocabulary_count(), 32768, end);
    const auto device = Device::make(DeviceKind::ref, 1).value();
    const auto engine = Engine::make(model, *device, limits, system_clock()).value();
    const auto target = make_local_target({.engine = engine.get(),
                                           .tokenizer = &tokenizer_,
                                           .prompter = &prompter_,
                                           .stop_tokens = {end},
                                           .clock = &system_clock()});
    return run_replay(*target, conversations, options);
  }
  static std::vector<Conversation> recorded() {
    return read_conversations(folder() + "/replay/agentic-200.jsonl").value();
  }

  Tokenizer tokenizer_ = Tokenizer::load(folder()).value();
  ChatTemplate template_ = ChatTemplate::load(folder()).value();
  ChatPrompter prompter_ = ChatPrompter::make(template_, tokenizer_).value();
};

// With time to consolidate, a warm turn computes what the client added and at most a page.
TEST_F(Why, ConsolidatedTurnsComputeTheClientsTokens) {
  auto conversations = recorded();
  conversations.resize(4);
  const auto turns = play(conversations, {.pace = true}, {.anchors = 12});
  const ReplaySummary summary = summarize_replay(turns, 1);
  EXPECT_EQ(summary.restored, summary.warm);
  EXPECT_LE(summary.beyond_added_max, 64);
  EXPECT_GT(summary.warm, 40);
}

// Without, at most a page beyond the last answer and that.
TEST_F(Why, TurnsWithoutConsolidationComputeTheLastAnswerToo) {
  auto conversations = recorded();
  conversations.resize(4);
  const auto turns = play(conversations, {}, {.anchors = 12, .consolidate = false});
  const ReplaySummary summary = summarize_replay(turns, 1);
  EXPECT_EQ(summary.restored, summary.warm);
  EXPECT_LE(summary.beyond_answer_max, 64);
  EXPECT_GT(summary.beyond_added_max, 64);
}

// Threads decide the order, so this is a little below what single runs show (README).
TEST_F(Why, FewAnchorsKeepTheConversationsThatAreAtWork) {
  const auto conversations = recorded();
  const struct {
    int64_t parallel;
    int32_t anchors;
  } scenarios[] = {{4, 8}, {20, 24}};
  for (const auto& [parallel, anchors] : scenarios) {
    const auto turns = play(conversations, {.parallel = parallel, .pace = true}, {.anchors = anchors});
    const ReplaySummary summary = summarize_replay(turns, 1);
    EXPECT_GE(static_cast<double>(summary.restored), 0.95 * static_cast<double>(summary.warm)) << why_summary(turns);
  }
}

TEST_F(Why, SaysWhereAPromptLeftItsPath) {
  Json record = {{"id", "edited"}, {"messages", Json::array()}};
  std::string words;
  for (int i = 0; i < 400; ++i) words += cat("w", i, " ");
  const auto message = [](const char* role, const std::string& text) {
    return Json{{"role", role}, {"content", text}};
  };
  record["messages"] = Json::array({message("system", "at 10:41:07 " + words), message("user", "hello"),
                                    message("assistant", "hi"), message("user", "more"), message("assistant", "so")});
  auto first = parse_conversation(dump_json(record)).value();
  record["messages"][0] = message("system", "at 10:44:59 " + words);
  auto second = parse_conversation(dump_json(record)).value();
  second.turns.erase(second.turns.begin());
  const auto turns = play({first, second}, {}, {.anchors = 12});
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns[0].miss, "cold");
  EXPECT_EQ(turns[1].miss, "none");
  EXPECT_EQ(turns[2].miss, "diverged");
  EXPECT_NE(turns[2].had.find("41:07"), std::string::npos) << turns[2].had;
  EXPECT_NE(turns[2].got.find("44:59"), std::string::npos) << turns[2].got;
  const std::string lines = why_lines(turns[2]);
  EXPECT_NE(lines.find("leaves the known path"), std::string::npos) << lines;
  EXPECT_EQ(why_json(turns)[2]["miss"], "diverged");
  EXPECT_NE(why_summary(turns).find("miss=diverged"), std::string::npos);
}

}  // namespace
}  // namespace wp::measure
