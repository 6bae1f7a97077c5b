// The engine over a disk that fails: each read and write in turn. Whatever happens there is a counted miss; every
// answer is the tokens' own, and the server goes on.
#include <gtest/gtest.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>

#include "core/log.h"
#include "engine/core.h"
#include "testing/fake_answer.h"
#include "testing/fake_clock.h"
#include "testing/fake_model.h"
#include "testing/safetensors_writer.h"

namespace wp {

namespace {

enum class Fault : uint8_t { fail, short_count, end, stall };

// The k-th call, of reads or of writes, goes wrong. A stalled one goes on when release() is called.
class FaultyFiles final : public FileLayer {
 public:
  FaultyFiles(Fault fault, bool writes, int64_t at) : fault_(fault), writes_(writes), at_(at) {}
  int64_t read(int file, void* to, int64_t size_bytes, int64_t offset) override {
    return strikes(false) ? wrong(size_bytes, [&](int64_t n) { return FileLayer::read(file, to, n, offset); })
                          : FileLayer::read(file, to, size_bytes, offset);
  }
  int64_t write(int file, const void* from, int64_t size_bytes, int64_t offset) override {
    return strikes(true) ? wrong(size_bytes, [&](int64_t n) { return FileLayer::write(file, from, n, offset); })
                         : FileLayer::write(file, from, size_bytes, offset);
  }
  void release() {
    const std::lock_guard guard(mutex_);
    released_ = true;
    wake_.notify_all();
  }
  bool struck() {
    const std::lock_guard guard(mutex_);
    return count_ > at_;
  }

 private:
  bool strikes(bool write) {
    const std::lock_guard guard(mutex_);
    return write == writes_ && count_++ == at_;
  }
  template <class Move>
  int64_t wrong(int64_t size_bytes, Move move) {
    switch (fault_) {
      case Fault::fail: errno = EIO; return -1;
      case Fault::short_count: return move(size_bytes > 1 ? size_bytes / 2 : 1);
      case Fault::end: return 0;
      case Fault::stall: break;
    }
    std::unique_lock guard(mutex_);
    wake_.wait(guard, [&] { return released_; });
    guard.unlock();
    return move(size_bytes);
  }

  const Fault fault_;
  const bool writes_;
  const int64_t at_;
  std::mutex mutex_;
  std::condition_variable wake_;
  int64_t count_ = 0;
  bool released_ = false;
};

class TierFaults : public ::testing::Test {
 protected:
  void SetUp() override { configure_log({.level = LogLevel::error}); }

  std::vector<TokenId> prompt(Seed seed) const {
    Rng rng(seed);
    std::vector<TokenId> tokens;
    for (int i = 0; i < 300; ++i) tokens.push_back(static_cast<TokenId>(rng.between(0, 59)));
    return tokens;
  }
  // Under a clock that jumps while nothing moves: a disk that does not answer is given up.
  RequestStats ask(EngineCore& core, const std::vector<TokenId>& tokens) {
    GenerateRequest request{.id = "r", .tokens = tokens, .max_tokens = 3, .ignore_stop_tokens = true};
    request.cache.captures = {{256, CaptureClass::tail}};
    const GenerateRequest same{.tokens = tokens, .max_tokens = 3, .ignore_stop_tokens = true};
    const auto channel = core.submit(std::move(request)).value();
    while (!core.idle()) {
      if (core.step()) continue;
      core.bell().wait_within(5'000'000);
      clock_.advance(100'000'000);
    }
    std::vector<TokenId> got;
    RequestStats stats;
    while (const auto event = channel->try_next()) {
      if (event->kind == TokenEvent::Kind::token) got.push_back(event->token);
      if (event->kind == TokenEvent::Kind::finished) {
        EXPECT_EQ(event->finish, FinishReason::length);
        stats = event->stats;
      }
    }
    EXPECT_EQ(got, testing::fake_answer(model_, same).tokens);
    core.check();
    return stats;
  }
  static void empty_device(EngineCore& core) {
    core.flush_cache();
    while (core.step()) continue;
  }
  std::unique_ptr<EngineCore> make(DiskTier* disk, int64_t ram_bytes) {
    const EngineLimits limits{
        .context_tokens = 1024, .sequences = 2, .pages = 64, .anchors = 6, .ram_bytes = ram_bytes};
    return EngineCore::make(model_, *device_, limits, clock_, disk).value();
  }
  // Whether there was such a call at all.
  bool live_through(Fault fault, bool writes, int64_t at) {
    const testing::TemporaryFolder folder;
    FaultyFiles files(fault, writes, at);
    auto disk = DiskTier::open({.folder = folder.path(),
                                .origin = {1, 1},
                                .page_bytes = model_.info().page_bytes,
                                .anchor_bytes = model_.info().anchor_bytes,
                                .files = &files})
                    .value();
    auto core = make(disk.get(), 0);
    int64_t warm = 0;
    for (int round = 0; round < 2; ++round) {
      for (Seed seed = 1; seed <= 2; ++seed) warm += ask(*core, prompt(seed)).tier == Tier::disk;
      if (fault != Fault::stall || !writes) disk->flush();
      empty_device(*core);
    }
    const bool struck = files.struck();
    const DiskTierStats stats = disk->stats();
    if (fault != Fault::stall || !writes) {
      // While a read stalls nothing else is read: the other prompt is a miss too, if it comes later.
      const bool lost = struck && fault != Fault::short_count;
      EXPECT_LE(warm, lost ? 1 : 2);
      EXPECT_GE(warm, fault == Fault::stall && lost ? 0 : lost ? 1 : 2);
      EXPECT_EQ(stats.read_errors + stats.write_errors > 0, struck && fault != Fault::short_count);
    }
    files.release();
    disk->flush();
    for (Seed seed = 1; seed <= 2; ++seed) ask(*core, prompt(seed));  // What was lost is computed, and kept again.
    disk->flush();
    bool answers = false;  // A read that was given up may still be on its way back.
    for (int tries = 0; tries < 1000 && !answers; ++tries) {
      empty_device(*core);
      answers = ask(*core, prompt(1)).tier == Tier::disk && ask(*core, prompt(2)).tier == Tier::disk;
    }
    EXPECT_TRUE(answers);
    EXPECT_EQ(model_.violation(), "");
    return files.struck();
  }

  testing::FakeModel model_{testing::FakeModelOptions{}};
  std::unique_ptr<Device> device_ = Device::make(DeviceKind::ref, 1).value();
  testing::FakeClock clock_;
};

TEST_F(TierFaults, EachReadAndWriteInTurn) {
  for (const Fault fault : {Fault::fail, Fault::short_count, Fault::end, Fault::stall}) {
    for (const bool writes : {false, true}) {
      int64_t at = 0;
      for (; live_through(fault, writes, at) && !HasFailure(); at += fault == Fault::stall ? 3 : 1) ASSERT_LT(at, 200);
      EXPECT_GE(at, 20) << "fault " << static_cast<int>(fault) << " writes " << writes;
    }
  }
}

}  // namespace
}  // namespace wp
