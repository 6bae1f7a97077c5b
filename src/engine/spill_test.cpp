// The engine over a disk tier: what one engine computed, the next one on the same folder restores, to the bit.
#include "engine/spill.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "core/log.h"
#include "engine/engine.h"
#include "testing/answered.h"
#include "testing/fake_answer.h"
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

// A server's life: an engine and its tier, from start to end.
class Life {
 public:
  Life(const Model& model, Device& device, const std::string& folder, uint64_t numerics = 1, int32_t anchors = 6,
       int64_t ram_bytes = 0) {
    configure_log({.level = LogLevel::error});
    if (!folder.empty())
      tier_ = DiskTier::open({.folder = folder,
                              .origin = {model.info().fingerprint, numerics},
                              .page_bytes = model.info().page_bytes,
                              .anchor_bytes = model.info().anchor_bytes})
                  .value();
    const EngineLimits limits{
        .context_tokens = 1024, .sequences = 2, .pages = 64, .anchors = anchors, .ram_bytes = ram_bytes};
    engine_ = Engine::make(model, device, limits, system_clock(), tier_.get()).value();
  }
  Answered ask(const std::vector<TokenId>& tokens) {
    const auto n = static_cast<int64_t>(tokens.size());
    return testing::ask(*engine_, tokens, 12, {{(n - 1) / kPageTokens * kPageTokens, CaptureClass::tail}});
  }
  Engine& engine() { return *engine_; }
  DiskTier& tier() { return *tier_; }

 private:
  std::unique_ptr<DiskTier> tier_;
  std::unique_ptr<Engine> engine_;
};

// Cold, warm after everything was evicted, and warm after a restart: the same bits, and a restore each time.
void expect_equal_over_lives(const Model& model, Device& device) {
  const TemporaryFolder folder;
  const std::string cache = folder.path() + "/cache";
  std::vector<std::vector<TokenId>> prompts;
  for (Seed seed = 1; seed <= 3; ++seed)
    prompts.push_back(random_prompt(300 + 65 * static_cast<int64_t>(seed), seed, model.info().vocabulary));
  std::vector<Answered> cold;
  {
    Life without(model, device, "");
    for (const auto& prompt : prompts) cold.push_back(without.ask(prompt));
  }
  {
    Life first(model, device, cache);
    for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(first.ask(prompts[i]), cold[i]);
    first.tier().flush();
    first.engine().flush_cache();
    for (size_t i = 0; i < prompts.size(); ++i) {
      const Answered warm = first.ask(prompts[i]);
      EXPECT_EQ(warm, cold[i]);
      EXPECT_EQ(warm.stats.tier, Tier::disk);
      EXPECT_GE(warm.stats.cached_tokens, static_cast<int64_t>(prompts[i].size()) - kPageTokens);
    }
  }
  {
    Life second(model, device, cache);
    for (size_t i = 0; i < prompts.size(); ++i) {
      for (const bool from_disk : {true, false}) {
        const Answered warm = second.ask(prompts[i]);
        EXPECT_EQ(warm, cold[i]);
        EXPECT_TRUE(warm.stats.restored);
        EXPECT_EQ(warm.stats.tier, from_disk ? Tier::disk : Tier::device);
        EXPECT_EQ(warm.stats.miss, MissReason::none);
        EXPECT_EQ(warm.stats.cached_tokens + warm.stats.computed_tokens, warm.stats.prompt_tokens);
      }
    }
    EXPECT_EQ(second.engine().stats().disk_restores, 3);
  }
  Life other(model, device, cache, 2);  // Other numerics: all of it is foreign.
  EXPECT_EQ(other.ask(prompts[0]), cold[0]);
  EXPECT_EQ(other.engine().stats().disk_restores, 0);
  EXPECT_GT(other.tier().stats().foreign, 0);
}

TEST(Spill, TheFakeModelFindsNoWrongRow) { testing::with_fake_model(expect_equal_over_lives); }

TEST(Spill, TheMiniModelAnswersWithTheSameBits) { testing::with_mini_model(expect_equal_over_lives); }

// Far more than the pools hold comes and goes; every answer is the tokens' own.
TEST(Spill, MoreThanTheDeviceHoldsComesBackFromTheDisk) {
  const FakeModel model{FakeModelOptions{}};
  const auto device = Device::make(DeviceKind::ref, 1).value();
  const TemporaryFolder folder;
  Life life(model, *device, folder.path() + "/cache", 1, 4);
  for (const Seed seed : testing::seeds_of_this_run()) {
    for (int round = 0; round < 3; ++round) {
      for (Seed conversation = 0; conversation < 12; ++conversation) {
        const auto tokens = random_prompt(400, seed + conversation, 60);
        const GenerateRequest same{.tokens = tokens, .max_tokens = 12, .ignore_stop_tokens = true};
        const Answered got = life.ask(tokens);
        EXPECT_EQ(got.tokens, testing::fake_answer(model, same).tokens);
        EXPECT_EQ(got.stats.cached_tokens, round > 0 ? 384 : 0);
        life.tier().flush();
      }
    }
  }
  EXPECT_GT(life.engine().stats().disk_restores, 10);
  EXPECT_EQ(model.violation(), "");
}

// Room in host memory for a number of conversations of 400 tokens.
int64_t ram_for(const Model& model, int64_t conversations) {
  const int64_t block = std::max<int64_t>(model.info().page_bytes, 4096) + 64;
  return conversations * (7 + 2 * (model.info().anchor_bytes / block + 1)) * block;
}

void expect_equal_from_ram(const Model& model, Device& device) {
  std::vector<std::vector<TokenId>> prompts;
  for (Seed seed = 1; seed <= 3; ++seed) prompts.push_back(random_prompt(400, seed, model.info().vocabulary));
  Life without(model, device, "");
  Life life(model, device, "", 1, 6, ram_for(model, 8));
  std::vector<Answered> cold;
  for (const auto& prompt : prompts) {
    cold.push_back(without.ask(prompt));
    EXPECT_EQ(life.ask(prompt), cold.back());
  }
  life.engine().flush_cache();
  for (const Tier tier : {Tier::ram, Tier::device}) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      const Answered warm = life.ask(prompts[i]);
      EXPECT_EQ(warm, cold[i]);
      EXPECT_TRUE(warm.stats.restored);
      EXPECT_EQ(warm.stats.tier, tier);
      EXPECT_EQ(warm.stats.miss, MissReason::none);
      EXPECT_EQ(warm.stats.cached_tokens, 384);
    }
  }
  EXPECT_EQ(life.engine().stats().ram_restores, 3);
  EXPECT_EQ(life.engine().stats().ram.corrupt, 0);
}

TEST(Spill, WhatWasEvictedComesBackFromHostMemory) {
  const FakeModel model{FakeModelOptions{}};
  const auto device = Device::make(DeviceKind::ref, 1).value();
  expect_equal_from_ram(model, *device);
  EXPECT_EQ(model.violation(), "");
}

TEST(Spill, TheMiniModelAnswersWithTheSameBitsFromHostMemory) {
  auto device = Device::make(DeviceKind::cpu, 2);
  if (!device.ok()) device = Device::make(DeviceKind::ref, 2);  // No AVX2 here.
  const auto model = load_model(testing::source_directory() + "/models/flash-next-mini", **device);
  ASSERT_TRUE(model.ok()) << model.error().message;
  expect_equal_from_ram(**model, **device);
}

// Host memory holds some of what the disk holds: it is asked first, and what came from the disk is kept there.
TEST(Spill, HostMemoryIsAskedBeforeTheDisk) {
  const FakeModel model{FakeModelOptions{}};
  const auto device = Device::make(DeviceKind::ref, 1).value();
  const TemporaryFolder folder;
  Life life(model, *device, folder.path() + "/cache", 1, 4, ram_for(model, 4));
  int64_t from[3] = {};
  for (int round = 0; round < 3; ++round) {
    for (Seed conversation = 0; conversation < 12; ++conversation) {
      const auto tokens = random_prompt(400, 1000 + conversation, 60);
      const GenerateRequest same{.tokens = tokens, .max_tokens = 12, .ignore_stop_tokens = true};
      const Answered got = life.ask(tokens);
      EXPECT_EQ(got.tokens, testing::fake_answer(model, same).tokens);
      EXPECT_EQ(got.stats.cached_tokens, round > 0 ? 384 : 0);
      if (round > 0) ++from[static_cast<size_t>(got.stats.tier)];
      life.tier().flush();
    }
  }
  EXPECT_GT(from[static_cast<size_t>(Tier::ram)], 0);
  EXPECT_GT(from[static_cast<size_t>(Tier::disk)], 0);
  const auto back_to_back = random_prompt(400, 1000, 60);  // What the disk gave is in host memory from then on.
  life.ask(back_to_back);
  life.engine().flush_cache();
  EXPECT_EQ(life.ask(back_to_back).stats.tier, Tier::ram);
  EXPECT_GT(life.engine().stats().ram.evicted, 0);
  EXPECT_EQ(model.violation(), "");
}

// Killed at any moment, in the middle of a write too: what had reached the disk is restored by the next start, and all
// answers are the tokens' own.
TEST(Spill, AKilledServerIsWarmAfterItsRestart) {
  constexpr int kKills = 5;
  const TemporaryFolder folder;
  const std::string cache = folder.path() + "/cache";
  Rng rng(testing::seeds_of_this_run().back());
  int64_t known = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    int written[2];
    ASSERT_EQ(pipe(written), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const FakeModel model{FakeModelOptions{}};
      const auto device = Device::make(DeviceKind::ref, 1).value();
      Life life(model, *device, cache);
      for (Seed seed = static_cast<Seed>(known); seed < 100000; ++seed) {
        life.ask(random_prompt(400, seed, 60));
        life.tier().flush();
        if (write(written[1], "x", 1) != 1) break;
      }
      _exit(0);
    }
    close(written[1]);
    char byte = 0;  // At least one, then a random time.
    ASSERT_EQ(read(written[0], &byte, 1), 1);
    ++known;
    std::this_thread::sleep_for(std::chrono::microseconds(rng.between(0, 30'000)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    while (read(written[0], &byte, 1) == 1) ++known;
    close(written[0]);

    const FakeModel model{FakeModelOptions{}};
    const auto device = Device::make(DeviceKind::ref, 1).value();
    Life life(model, *device, cache);
    for (int64_t seed = std::max<int64_t>(0, known - 40); seed < known; ++seed) {
      const auto tokens = random_prompt(400, static_cast<Seed>(seed), 60);
      const GenerateRequest same{.tokens = tokens, .max_tokens = 12, .ignore_stop_tokens = true};
      const Answered got = life.ask(tokens);
      EXPECT_EQ(got.tokens, testing::fake_answer(model, same).tokens);
      EXPECT_EQ(got.stats.tier, Tier::disk) << "prompt " << seed << " of " << known;
      EXPECT_EQ(got.stats.cached_tokens, 384);
    }
    EXPECT_EQ(model.violation(), "");
  }
}

// A damaged part is a miss with its reason, and the answer is the same.
TEST(Spill, DamageIsAMissAndNothingElse) {
  const FakeModel model{FakeModelOptions{}};
  const auto device = Device::make(DeviceKind::ref, 1).value();
  const TemporaryFolder folder;
  const std::string cache = folder.path() + "/cache";
  const auto tokens = random_prompt(400, 5, 60);
  Answered cold;
  {
    Life life(model, *device, cache);
    cold = life.ask(tokens);
  }
  {
    std::fstream file(cache + "/1.segment", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(sizeof(RecordHeader)) + 5);
    file.put('\x5a');
  }
  Life life(model, *device, cache);
  const Answered got = life.ask(tokens);
  EXPECT_EQ(got, cold);
  EXPECT_EQ(got.stats.cached_tokens, 0);
  EXPECT_EQ(got.stats.miss, MissReason::tier_fail);
  EXPECT_EQ(life.tier().stats().corrupt, 1);
  EXPECT_EQ(model.violation(), "");
}

}  // namespace
}  // namespace wp
