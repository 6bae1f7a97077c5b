// The bundled model behind the engine, conversations cut short: each tier restores what it should with equal answers,
// and after a restart the first turn of each conversation is warm from disk.
#include "measure/tiers.h"

#include <gtest/gtest.h>

#include "core/log.h"
#include "testing/safetensors_writer.h"
#include "testing/seeds.h"
#include "text/chat_template.h"

namespace wp::measure {
namespace {

class Tiers : public ::testing::Test {
 protected:
  static constexpr size_t kConversations = 4, kTurns = 2;

  void SetUp() override {
    configure_log({.level = LogLevel::error});
    const std::string path = testing::source_directory() + "/models/flash-next-mini";
    device_ = std::move(Device::make(DeviceKind::cpu, 2)).value();
    model_ = load_model(path, *device_).value();
    tokenizer_.emplace(Tokenizer::load(path).value());
    template_.emplace(ChatTemplate::load(path).value());
    prompter_.emplace(ChatPrompter::make(*template_, *tokenizer_).value());
    conversations_ = read_conversations(path + "/replay/agentic-200.jsonl").value();
    conversations_.resize(kConversations);
    for (Conversation& conversation : conversations_) conversation.turns.resize(kTurns);
  }
  TierParts parts() {
    const ModelInfo& info = model_->info();
    return {.model = model_.get(),
            .device = device_.get(),
            .tokenizer = &*tokenizer_,
            .prompter = &*prompter_,
            .stop_tokens = {},
            .clock = &system_clock(),
            .limits = {.context_tokens = 4096},
            .disk = {.folder = folder_.path(), .page_bytes = info.page_bytes, .anchor_bytes = info.anchor_bytes}};
  }

  const testing::TemporaryFolder folder_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::optional<ChatPrompter> prompter_;
  std::vector<Conversation> conversations_;
};

TEST_F(Tiers, AfterARestartTheFirstTurnOfEachConversationIsWarmFromDisk) {
  auto runs = run_tiers(parts(), conversations_);
  ASSERT_TRUE(runs.ok()) << runs.error().message;
  EXPECT_EQ(tier_fault(*runs), "");
  ASSERT_EQ(runs->size(), 4u);
  const auto warm_from = [&](size_t run, const std::string& tier) {
    size_t count = 0;
    for (const TurnResult& turn : (*runs)[run].turns) count += turn.warm && turn.tier == tier;
    return count;
  };
  EXPECT_EQ(warm_from(0, ""), kConversations);
  EXPECT_EQ(warm_from(1, "device"), kConversations);
  EXPECT_GE(warm_from(2, "ram"), 1u);  // Three anchors cannot serve four conversations.
  EXPECT_EQ(warm_from(3, "disk"), kConversations);
  for (const size_t run : {1, 3})  // Where three anchors are all there is, a capture may find none.
    for (const TurnResult& turn : (*runs)[run].turns) {
      if (!turn.warm) continue;
      EXPECT_LE(turn.prompt_tokens - turn.cached_tokens - turn.added_tokens, 64) << turn.conversation;
    }
  EXPECT_NE(tier_table(*runs).find("| 4 of 4 | 0 / 0 / 4 |"), std::string::npos) << tier_table(*runs);

  // Negative controls: one bit of an answer, and a turn that the disk did not serve.
  const auto bits = (*runs)[2].turns[1].logprob_hash++;
  EXPECT_NE(tier_fault(*runs).find("logprob_hash"), std::string::npos) << tier_fault(*runs);
  (*runs)[2].turns[1].logprob_hash = bits;
  (*runs)[3].turns[1].tier = "device";
  EXPECT_NE(tier_fault(*runs).find("expected it warm from disk"), std::string::npos) << tier_fault(*runs);
}

}  // namespace
}  // namespace wp::measure
