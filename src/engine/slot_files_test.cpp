// Slots saved to files and restored: the same bits and the same cached tokens as memory gave, or a refusal that says
// why.
#include "engine/slot_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/log.h"
#include "engine/path_transfer.h"
#include "testing/answered.h"
#include "testing/fake_model.h"
#include "testing/safetensors_writer.h"
#include "testing/seeds.h"

namespace wp {
namespace {

using testing::Answered;
using testing::FakeModel;
using testing::FakeModelOptions;
using testing::random_prompt;
using testing::TemporaryFolder;

class Life {
 public:
  Life(const Model& model, Device& device, const std::string& folder, Origin origin = {7, 1}) {
    configure_log({.level = LogLevel::error});
    const EngineLimits limits{.context_tokens = 1024, .sequences = 2, .pages = 64, .anchors = 6};
    engine = Engine::make(model, device, limits, system_clock()).value();
    files = SlotFiles::open(*engine, folder, origin).value();
  }
  Answered ask(const std::vector<TokenId>& tokens) {
    const auto n = static_cast<int64_t>(tokens.size());
    return testing::ask(*engine, tokens, 8,
                        {{128, CaptureClass::system}, {(n - 1) / kPageTokens * kPageTokens, CaptureClass::tail}});
  }
  std::unique_ptr<Engine> engine;
  std::unique_ptr<SlotFiles> files;
};

void expect_equal_after_restore(const Model& model, Device& device) {
  const TemporaryFolder folder;
  const auto tokens = random_prompt(470, 3, model.info().vocabulary);
  Answered cold, warm;
  int64_t bytes = 0;
  {
    Life life(model, device, folder.path());
    cold = life.ask(tokens);
    warm = life.ask(tokens);
    const auto saved = life.files->save(warm.stats.slot, "a.slot", std::nullopt);
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(saved->tokens, warm.stats.cached_tokens);
    bytes = saved->bytes;
  }
  EXPECT_EQ(warm, cold);
  EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(folder.path() + "/a.slot")), bytes);
  for (const bool flushed : {false, true}) {
    Life life(model, device, folder.path());
    if (flushed) life.engine->flush_cache();
    const auto restored = life.files->restore(1, "a.slot", std::nullopt);
    ASSERT_TRUE(restored.ok()) << restored.error().message;
    EXPECT_EQ(restored->tokens, 448);
    EXPECT_EQ(restored->bytes, bytes);
    const Answered again = life.ask(tokens);
    EXPECT_EQ(again, cold);
    EXPECT_EQ(again.stats.cached_tokens, warm.stats.cached_tokens);
    EXPECT_EQ(again.stats.miss, MissReason::none);
    EXPECT_EQ(again.stats.slot, 1);                                    // The slot that it continues.
    ASSERT_TRUE(life.files->restore(0, "a.slot", std::nullopt).ok());  // What is there stays.
    EXPECT_EQ(life.ask(tokens), cold);
  }
}

TEST(SlotFiles, TheFakeModelFindsNoWrongRow) { testing::with_fake_model(expect_equal_after_restore); }

TEST(SlotFiles, TheMiniModelAnswersWithTheSameBits) { testing::with_mini_model(expect_equal_after_restore); }

TEST(SlotFiles, F11WhatCannotBeRestoredIsRefusedByItsReason) {
  const FakeModel model{FakeModelOptions{}};
  const auto device = Device::make(DeviceKind::ref, 1).value();
  const TemporaryFolder folder;
  const auto tokens = random_prompt(470, 3, model.info().vocabulary);
  Life life(model, *device, folder.path());
  EXPECT_EQ(life.files->save(0, "a", std::nullopt).error().code, ErrorCode::bad_request);  // Nothing ran.
  const Answered cold = life.ask(tokens);
  ASSERT_TRUE(life.files->save(cold.stats.slot, "a", std::nullopt).ok());
  EXPECT_EQ(life.files->save(cold.stats.slot, "a", uint64_t{5}).error().code, ErrorCode::bad_request);
  std::ifstream in(folder.path() + "/a", std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  const auto why = [&](Life& by, const std::string& name) {
    const auto restored = by.files->restore(0, name, std::nullopt);
    return restored.ok() ? std::string("restored") : restored.error().message;
  };
  const auto says = [&](const std::string& text, std::string_view expected) {
    EXPECT_NE(text.find(expected), std::string::npos) << text;
  };
  Life foreign(model, *device, folder.path(), {8, 1}), other(model, *device, folder.path(), {7, 2});
  says(why(foreign, "a"), "found another's");
  says(why(other, "a"), "expected numerics");
  says(why(life, "none"), "expected a saved slot, found none");
  folder.write("short", good.substr(0, good.size() - 1));
  says(why(life, "short"), "(truncated)");
  folder.write("text", std::string(200, 'x'));
  says(why(life, "text"), "found other bytes");
  std::filesystem::create_symlink(folder.path() + "/a", folder.path() + "/link");
  says(why(life, "link"), "expected a plain file");
  for (const char* name : {"../../x", "../a", "/a", "", ".a", "a\\b", "a\nb"})
    says(why(life, name), "filename: expected");
  says(why(life, std::string(300, 'a')), "filename: expected");
  says(why(life, std::string("a\0b", 3)), "filename: expected");
  // Any damaged byte: whatever it names, nothing wrong is ever restored.
  for (const Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    for (int i = 0; i < 60; ++i) {
      std::string bad = good;
      bad[static_cast<size_t>(rng.between(0, static_cast<int64_t>(bad.size()) - 1))] ^=
          static_cast<char>(1 << rng.between(0, 7));
      folder.write("bad", bad);
      life.engine->flush_cache();
      EXPECT_NE(why(life, "bad"), "restored");
    }
  }
  EXPECT_EQ(life.ask(tokens), cold);
  EXPECT_EQ(model.violation(), "");
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_NE(entry.path().extension(), ".part");
}

TEST(SlotFiles, AnErasedPathIsComputedAgain) {
  const FakeModel model{FakeModelOptions{}};
  const auto device = Device::make(DeviceKind::ref, 1).value();
  const TemporaryFolder folder;
  Life life(model, *device, folder.path());
  const auto tokens = random_prompt(470, 3, model.info().vocabulary);
  const Answered cold = life.ask(tokens);
  const auto erased =
      life.engine->transfer({PathTransferOrder::Kind::erase, cold.stats.slot, std::nullopt, {}})->finish();
  ASSERT_TRUE(erased.ok());
  EXPECT_EQ(*erased, 448 - 128);  // The system block may be anybody's.
  const Answered again = life.ask(tokens);
  EXPECT_EQ(again, cold);
  EXPECT_EQ(again.stats.cached_tokens, 128);
  EXPECT_EQ(again.stats.miss, MissReason::evicted);
}

}  // namespace
}  // namespace wp
