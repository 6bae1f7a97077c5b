// The engine with its thread, as connection threads see it.
#include "engine/engine.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>

#include "core/log.h"
#include "engine/core.h"
#include "testing/fake_answer.h"
#include "testing/fake_model.h"
#include "testing/seeds.h"

namespace wp {
namespace {

using testing::fake_answer;
using testing::FakeAnswer;
using testing::FakeModel;
using testing::FakeModelOptions;

struct Collected {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool started = false;
  TokenEvent finished;
  std::vector<float> prompt_logprobs;
  int64_t progress_events = 0;
};

Collected collect(TokenStream& stream) {
  Collected out;
  while (auto event = stream.next()) {
    switch (event->kind) {
      case TokenEvent::Kind::started:
        EXPECT_FALSE(out.started);
        out.started = true;
        out.prompt_logprobs = event->prompt_logprobs;
        break;
      case TokenEvent::Kind::progress: ++out.progress_events; break;
      case TokenEvent::Kind::token:
        EXPECT_TRUE(out.started);
        out.tokens.push_back(event->token);
        out.logprobs.push_back(event->logprob);
        break;
      case TokenEvent::Kind::finished: out.finished = *event; break;
    }
  }
  return out;
}

std::vector<TokenId> random_tokens(Rng& rng, int64_t count, int64_t vocabulary = 60) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(rng.between(0, vocabulary - 1)));
  return tokens;
}

class EngineTest : public ::testing::Test {
 protected:
  static EngineLimits small_limits() {
    return {.context_tokens = 2048, .sequences = 4, .pages = 128, .pass_tokens = 256, .events_max = 16};
  }
  void start(const EngineLimits& limits = small_limits(), const FakeModelOptions& options = {.end_token = 1}) {
    configure_log({.level = LogLevel::error});
    device_ = std::move(Device::make(DeviceKind::ref, 1)).value();
    model_ = std::make_unique<FakeModel>(options);
    auto engine = Engine::make(*model_, *device_, limits, system_clock());
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = std::move(engine).value();
  }
  void TearDown() override {
    engine_.reset();
    if (!model_) return;
    EXPECT_EQ(model_->violation(), "");
  }
  GenerateRequest request(int64_t prompt, int64_t max_tokens, Seed seed = 1) {
    Rng rng(seed);
    GenerateRequest request;
    request.id = cat("r-", seed);
    request.tokens = random_tokens(rng, prompt);
    request.max_tokens = max_tokens;
    request.stop_tokens = {1};
    return request;
  }
  Collected run(const GenerateRequest& request) {
    auto stream = engine_->submit(request);
    EXPECT_TRUE(stream.ok()) << stream.error().message;
    return collect(*stream);
  }
  void expect_answer(const GenerateRequest& request, const Collected& got) {
    const FakeAnswer expected = fake_answer(*model_, request);
    EXPECT_EQ(got.tokens, expected.tokens);
    EXPECT_EQ(got.finished.finish, expected.finish);
    const RequestStats& stats = got.finished.stats;
    EXPECT_EQ(stats.cached_tokens + stats.computed_tokens, stats.prompt_tokens);
    EXPECT_EQ(stats.prompt_tokens, static_cast<int64_t>(request.tokens.size()));
  }
  // One that ends by itself only when all its tokens are generated: no reader, so never.
  GenerateRequest endless(int64_t prompt, int64_t max_tokens, Seed seed) {
    GenerateRequest asked = request(prompt, max_tokens, seed);
    asked.ignore_stop_tokens = true;
    return asked;
  }
  void wait_until_idle() {
    for (int i = 0; i < 5000 && !engine_->idle(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(engine_->idle());
  }

  void wait_until_consolidated() {
    const auto waiting = [&] { return engine_->stats().consolidation.waiting; };
    for (int i = 0; i < 5000 && waiting() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(waiting(), 0);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, AnswersAreThoseOfThePrompt) {
  start();
  for (const int64_t prompt : {1, 2, 63, 64, 65, 127, 128, 200, 256, 257, 700, 1900}) {
    const GenerateRequest asked = request(prompt, 40, static_cast<Seed>(prompt));
    expect_answer(asked, run(asked));
  }
}

TEST_F(EngineTest, WithoutCacheTheReasonIsBypass) {
  EngineLimits limits = small_limits();
  limits.cache = false;
  start(limits);
  const GenerateRequest asked = request(600, 5);
  for (int i = 0; i < 2; ++i) {
    const Collected got = run(asked);
    expect_answer(asked, got);
    EXPECT_EQ(got.finished.stats.cached_tokens, 0);
    EXPECT_EQ(got.finished.stats.miss, MissReason::bypass);
    EXPECT_EQ(got.finished.stats.miss_detail, "bypass=server");
  }
}

TEST_F(EngineTest, SecondIdenticalRequestIsRestored) {
  start();
  GenerateRequest asked = request(600, 5);
  asked.cache.captures = {{128, CaptureClass::system}, {576, CaptureClass::tail}};
  const Collected cold = run(asked), warm = run(asked), third = run(asked);
  expect_answer(asked, cold);
  expect_answer(asked, warm);
  EXPECT_EQ(cold.finished.stats.cached_tokens, 0);
  EXPECT_FALSE(cold.finished.stats.restored);
  EXPECT_EQ(warm.finished.stats.cached_tokens, 576);
  EXPECT_TRUE(warm.finished.stats.restored);
  EXPECT_EQ(warm.finished.stats.miss, MissReason::none);
  EXPECT_EQ(third.finished.stats.cached_tokens, 576);
}

TEST_F(EngineTest, CaptureOffTheGridIsDroppedAndCounted) {
  start();
  GenerateRequest asked = request(600, 5);
  asked.cache.captures = {{100, CaptureClass::tail}, {640, CaptureClass::tail}, {0, CaptureClass::user}};
  expect_answer(asked, run(asked));
  wait_until_idle();
  EXPECT_EQ(engine_->stats().captures_dropped, 3);
  EXPECT_EQ(engine_->stats().cache.published(), 0);
}

TEST_F(EngineTest, LogprobsAreOfTheRawLogits) {
  start();
  GenerateRequest asked = request(100, 20);
  asked.sampling.top_logprobs = 3;
  asked.sampling.temperature = 1.5f;
  asked.sampling.seed = 7;
  const FakeAnswer expected = fake_answer(*model_, asked);
  auto stream = engine_->submit(asked);
  const Collected got = collect(*stream);
  EXPECT_EQ(got.tokens, expected.tokens);
  EXPECT_EQ(got.logprobs, expected.logprobs);
}

TEST_F(EngineTest, PromptLogprobsComeForEveryTokenAfterTheFirst) {
  start();
  for (const int64_t max_tokens : {0, 3}) {
    GenerateRequest asked = request(333, max_tokens);
    asked.prompt_logprobs = true;
    const Collected got = run(asked);
    ASSERT_EQ(got.prompt_logprobs.size(), 332u);
    EXPECT_EQ(got.finished.stats.miss, MissReason::bypass);
    if (max_tokens > 0) expect_answer(asked, got);
    std::vector<float> row(64);
    for (size_t i = 0; i < 332; i += 37) {
      const std::span<const TokenId> before = std::span(asked.tokens).first(i + 1);
      model_->write_logits(FakeModel::history(before), before.back(), row);
      double sum = 0;
      for (float x : row) sum += std::exp(static_cast<double>(x));
      EXPECT_NEAR(got.prompt_logprobs[i], row[static_cast<size_t>(asked.tokens[i + 1])] - std::log(sum), 1e-5);
    }
  }
}

TEST_F(EngineTest, RefusesWhatCannotBe) {
  EngineLimits limits = small_limits();
  limits.context_tokens = 1024;
  start(limits);
  const auto message = [&](GenerateRequest bad) {
    auto result = engine_->submit(std::move(bad));
    return result.ok() ? std::string("accepted") : result.error().message;
  };
  EXPECT_EQ(message(request(900, 200)), "prompt 900 + max_tokens 200 > context 1024");
  EXPECT_EQ(engine_->submit(request(900, 200)).error().code, ErrorCode::too_long);
  GenerateRequest bad = request(10, 5);
  bad.tokens[3] = 64;
  EXPECT_EQ(message(bad), "prompt token 3: expected 0..63, found 64");
  bad = request(10, 0);
  EXPECT_NE(message(bad).find("max_tokens: expected 1.."), std::string::npos);
  bad = request(10, 5);
  bad.tokens.clear();
  EXPECT_NE(message(bad), "accepted");
  bad = request(10, 5);
  bad.sampling.temperature = std::nanf("");
  EXPECT_NE(message(bad), "accepted");
  bad = request(10, 5);
  bad.sampling.top_p = 1.5f;
  EXPECT_NE(message(bad), "accepted");
  EXPECT_EQ(message(request(824, 200)), "accepted");
}

TEST_F(EngineTest, NumbersThatAreNotFiniteEndOneRequestOnly) {
  start(small_limits(), {.end_token = 1, .poison_token = 63});
  GenerateRequest poisoned = request(300, 50, 5), healthy = request(300, 50, 6);
  poisoned.tokens.back() = 63;
  auto first = engine_->submit(healthy), second = engine_->submit(poisoned);
  const Collected bad = collect(*second), good = collect(*first);
  EXPECT_EQ(bad.finished.finish, FinishReason::error);
  EXPECT_EQ(bad.finished.error.substr(0, 8), "numeric:");
  EXPECT_EQ(good.tokens, fake_answer(*model_, healthy).tokens);
}

TEST_F(EngineTest, QueueHasALimit) {
  EngineLimits limits = small_limits();
  limits.sequences = 1;
  limits.queue_max = 2;
  limits.events_max = 1;
  start(limits, {});
  std::vector<TokenStream> streams;
  bool overloaded = false;
  for (int i = 0; i < 10 && !overloaded; ++i) {
    auto stream = engine_->submit(endless(10, 1000, static_cast<Seed>(i)));
    if (stream.ok()) streams.push_back(std::move(stream).value());
    else overloaded = stream.error().code == ErrorCode::overloaded;
  }
  EXPECT_TRUE(overloaded);
  EXPECT_LE(streams.size(), 4u);
}

TEST_F(EngineTest, DrainTakesNothingNewAndFinishesTheRest) {
  start();
  const GenerateRequest asked = request(500, 30);
  auto stream = engine_->submit(asked);
  engine_->drain();
  auto late = engine_->submit(asked);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::unavailable);
  expect_answer(asked, collect(*stream));
  wait_until_idle();
}

TEST_F(EngineTest, CancelAllEndsEverything) {
  EngineLimits limits = small_limits();
  limits.sequences = 2;
  start(limits, {});
  std::vector<TokenStream> streams;
  for (int i = 0; i < 6; ++i) streams.push_back(engine_->submit(endless(300, 1500, static_cast<Seed>(i))).value());
  engine_->cancel_all();
  for (TokenStream& stream : streams) EXPECT_EQ(collect(stream).finished.finish, FinishReason::cancelled);
  wait_until_idle();
  EXPECT_EQ(engine_->stats().running, 0);
  EXPECT_EQ(engine_->stats().cache.pages_leased, 0);
}

TEST_F(EngineTest, SlowReaderPausesItsSequenceOnly) {
  start(small_limits(), {});
  const GenerateRequest slow = request(100, 500, 1), quick = request(100, 500, 2);
  auto unread = engine_->submit(slow), read = engine_->submit(quick);
  expect_answer(quick, collect(*read));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  expect_answer(slow, collect(*unread));  // Nothing was lost, and it goes on once it is read.
}

TEST_F(EngineTest, NextWithinGivesUp) {
  EngineLimits limits = small_limits();
  limits.sequences = 1;
  limits.events_max = 1;
  start(limits, {});
  auto holder = engine_->submit(request(10, 100, 1)), waits = engine_->submit(request(10, 100, 2));
  bool timed_out = false;
  EXPECT_FALSE(waits->next_within(2'000'000, &timed_out).has_value());
  EXPECT_TRUE(timed_out);
  holder->cancel();
  EXPECT_TRUE(waits->next_within(5'000'000'000, &timed_out).has_value());
  EXPECT_FALSE(timed_out);
}

TEST_F(EngineTest, StreamsOutliveTheEngine) {
  start(small_limits(), {});
  std::vector<TokenStream> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(engine_->submit(endless(400, 1000, static_cast<Seed>(i))).value());
  engine_.reset();
  for (TokenStream& stream : streams) EXPECT_EQ(collect(stream).finished.finish, FinishReason::cancelled);
}

TEST_F(EngineTest, ManyThreadsSubmitReadAndLeave) {
  start();
  constexpr int kThreads = 4, kRequests = 40;
  std::atomic<int> completed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Rng rng(static_cast<Seed>(t) + 100);
      for (int i = 0; i < kRequests; ++i) {
        // Few prompts, of one stem: restores, dedupes and branches among the threads.
        GenerateRequest asked = request(rng.between(1, 900), rng.between(1, 60), static_cast<Seed>(rng.between(1, 3)));
        asked.cache.captures = {{static_cast<int64_t>(asked.tokens.size()) / 64 * 64 - 64, CaptureClass::tail}};
        auto stream = engine_->submit(asked);
        if (!stream.ok()) continue;
        if (rng.percent(25)) {  // Gone after a few events, or at once.
          for (int64_t reads = rng.between(0, 5); reads > 0; --reads)
            if (!stream->next()) break;
          continue;
        }
        expect_answer(asked, collect(*stream));
        ++completed;
      }
    });
  for (int i = 0; i < 50; ++i) {
    (void)engine_->stats();
    if (i % 10 == 0) engine_->flush_cache();
    engine_->hold_conversation("c");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::thread& thread : threads) thread.join();
  wait_until_idle();
  const EngineStats stats = engine_->stats();
  EXPECT_GT(completed, 0);
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.cache.pages_leased, 0);
  EXPECT_EQ(stats.requests_total, stats.finished_stop + stats.finished_length + stats.finished_stuck +
                                      stats.finished_error + stats.cancelled_queued + stats.cancelled_prefill +
                                      stats.cancelled_decode);
}

// A conversation of which every turn adds an answer and a message, with the time between turns that lets the finished
// turn be consolidated: computed are the message and less than a page.
TEST_F(EngineTest, AConsolidatedTurnLeavesTheNextOneItsNewTokens) {
  start();
  GenerateRequest asked = request(300, 70, 7);
  asked.ignore_stop_tokens = true;
  int64_t consolidated = 0;
  for (Seed turn = 1; turn <= 6; ++turn) {
    const auto n = static_cast<int64_t>(asked.tokens.size());
    asked.cache.captures = {{(n - 1) / 64 * 64, CaptureClass::tail}};
    const Collected got = run(asked);
    expect_answer(asked, got);
    if (turn > 1) {
      EXPECT_EQ(got.finished.stats.cached_tokens, consolidated);
      EXPECT_EQ(got.finished.stats.miss, MissReason::none);
    }
    asked.tokens.insert(asked.tokens.end(), got.tokens.begin(), got.tokens.end());
    engine_->consolidate({.tokens = asked.tokens});
    consolidated = static_cast<int64_t>(asked.tokens.size()) / 64 * 64;
    wait_until_consolidated();
    Rng rng(100 + turn);
    const auto message = random_tokens(rng, 90);
    asked.tokens.insert(asked.tokens.end(), message.begin(), message.end());
    asked.cache.continues = true;
  }
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.consolidation.done, 6);
  EXPECT_EQ(stats.consolidation.tokens_request, 0);
  EXPECT_GE(stats.consolidation.tokens_idle, 6 * 64);
  EXPECT_GT(stats.consolidation.ns_idle, 0);
  EXPECT_EQ(stats.cache.lookups, 6);  // Consolidations are not counted among them.
}

TEST_F(EngineTest, ATurnThatNobodyHadTimeForIsTheNextOnes) {
  start();
  GenerateRequest asked = request(600, 100, 3);
  asked.ignore_stop_tokens = true;
  asked.cache.captures = {{576, CaptureClass::tail}};
  const Collected first = run(asked);
  asked.tokens.insert(asked.tokens.end(), first.tokens.begin(), first.tokens.end());
  // Another request keeps the engine from ever idling until the next turn is in the queue.
  auto busy = engine_->submit(endless(64, 1500, 9));
  ASSERT_TRUE(busy.ok());
  ASSERT_EQ(busy->next()->kind, TokenEvent::Kind::started);
  engine_->consolidate({.tokens = asked.tokens});
  EXPECT_EQ(engine_->stats().consolidation.waiting, 1);
  asked.tokens.push_back(5);
  const Collected second = run(asked);
  expect_answer(asked, second);
  EXPECT_EQ(second.finished.stats.cached_tokens, 576);
  const ConsolidationStats stats = engine_->stats().consolidation;
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.tokens_request, 700 / 64 * 64 - 576);
  EXPECT_GT(stats.ns_request, 0);
  EXPECT_EQ(stats.tokens_idle, 0);
  busy->cancel();
}

TEST_F(EngineTest, WithoutConsolidationATurnIsLeftAsItIs) {
  EngineLimits limits = small_limits();
  limits.consolidate = false;
  start(limits);
  engine_->consolidate({.tokens = request(600, 1).tokens});
  run(request(64, 1));
  EXPECT_EQ(engine_->stats().consolidation.waiting + engine_->stats().consolidation.done, 0);
  EXPECT_EQ(engine_->stats().cache.published(), 0);
}

TEST_F(EngineTest, TurnsThatCannotBeConsolidatedAreDropped) {
  start();
  auto tokens = request(600, 1).tokens;
  tokens[300] = 1 << 30;
  engine_->consolidate({.tokens = tokens});
  engine_->consolidate({.tokens = request(200, 1).tokens});  // Too short for an anchor.
  engine_->consolidate({.tokens = request(4000, 1).tokens});
  EXPECT_EQ(engine_->stats().consolidation.waiting, 0);
  engine_->drain();
  engine_->consolidate({.tokens = request(600, 1).tokens});
  EXPECT_EQ(engine_->stats().consolidation.waiting, 0);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlopeMax = 200'000;  // A sanitizer keeps what was freed, to see who still uses it.
#else
constexpr double kSlopeMax = 2048;
#endif

// Without what the allocator keeps of freed memory: how much depends on how far threads ran apart.
int64_t resident_bytes() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  int64_t total_pages = 0, resident_pages = 0;
  file >> total_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

// Prompts that never come again, each under a label of its own, with turns to consolidate and many evictions: what is
// remembered of them is bounded.
TEST_F(EngineTest, MemoryDoesNotGrowWithTheNumberOfRequests) {
  EngineLimits limits = small_limits();
  limits.anchors = 12;
  start(limits);
  constexpr int64_t kRequests = 5000, kWarmUp = 500;
  int64_t before = 0;
  for (int64_t i = 0; i < kRequests; ++i) {
    if (i == kWarmUp) {
      wait_until_consolidated();
      before = resident_bytes();
    }
    GenerateRequest asked = request(1500 + i % 400, 3, static_cast<Seed>(i));
    asked.cache.conversation = cat("a conversation of its own, ", i);
    asked.cache.captures = {{64, CaptureClass::system}, {1472, CaptureClass::tail}};
    const Collected got = run(asked);
    ASSERT_TRUE(got.finished.finish == FinishReason::length || got.finished.finish == FinishReason::stop);
    engine_->consolidate({.tokens = asked.tokens, .conversation = asked.cache.conversation});
  }
  wait_until_consolidated();
  EXPECT_GT(engine_->stats().cache.ghosts, 0);
  const double slope = static_cast<double>(resident_bytes() - before) / (kRequests - kWarmUp);
  EXPECT_LT(slope, kSlopeMax) << "bytes per request";
  RecordProperty("bytes_per_request", std::to_string(slope));
  std::printf("%.0f bytes per request\n", slope);
}

// Steps by hand, so that all are in the queue before the first is admitted.
class SharedPrefill : public ::testing::Test {
 protected:
  void start(const EngineLimits& limits) {
    configure_log({.level = LogLevel::error});
    device_ = std::move(Device::make(DeviceKind::ref, 1)).value();
    core_ = EngineCore::make(model_, *device_, limits, clock_).value();
  }
  std::shared_ptr<EventChannel> submit(std::vector<TokenId> tokens, uint64_t domain = 0) {
    GenerateRequest request{.id = cat("s-", ++submitted_), .tokens = std::move(tokens), .max_tokens = 3};
    request.cache.domain = domain;
    return core_->submit(std::move(request)).value();
  }
  void run_all() {
    while (core_->step()) core_->check();
    EXPECT_EQ(model_.violation(), "");
    EXPECT_TRUE(core_->idle());
  }
  static std::vector<TokenId> with(std::vector<TokenId> head, int64_t count, Seed seed) {
    Rng rng(seed);
    for (TokenId token : random_tokens(rng, count)) head.push_back(token);
    return head;
  }

  testing::FakeClock clock_;
  FakeModel model_{FakeModelOptions{.end_token = 1, .clock = &clock_, .pass_ns = 1000}};
  std::unique_ptr<Device> device_;
  std::unique_ptr<EngineCore> core_;
  int submitted_ = 0;
};

TEST_F(SharedPrefill, RequestsThatBeginAlikeComputeItOnce) {
  start({.context_tokens = 2048, .sequences = 4, .pages = 256, .anchors = 16, .pass_tokens = 256});
  const auto common = with({}, 1000, 1);
  for (Seed seed = 2; seed <= 5; ++seed) submit(with(common, 100, seed));
  run_all();
  // 960 of the 1000 are whole pages.
  EXPECT_EQ(core_->stats().computed_tokens, 1100 + 3 * (1100 - 960));
  EXPECT_EQ(core_->stats().shared_prefills, 3);
}

TEST_F(SharedPrefill, TheSamePromptSeveralTimesIsReadOnce) {
  start({.context_tokens = 2048, .sequences = 4, .pages = 256, .anchors = 16, .pass_tokens = 256});
  for (int i = 0; i < 4; ++i) submit(with({}, 1000, 1));
  run_all();
  EXPECT_EQ(core_->stats().computed_tokens, 1000 + 3 * (1000 - 960));
}

TEST_F(SharedPrefill, BranchesOfABranchShareEachAsFarAsTheyGo) {
  start({.context_tokens = 2048, .sequences = 4, .pages = 256, .anchors = 16, .pass_tokens = 128});
  const auto trunk = with({}, 640, 1), branch = with(trunk, 640, 2);
  submit(with(branch, 70, 3));
  submit(with(trunk, 500, 4));
  submit(with(branch, 80, 5));
  run_all();
  EXPECT_EQ(core_->stats().computed_tokens, 1350 + (1140 - 640) + (1360 - 1280));
}

TEST_F(SharedPrefill, OtherDomainsAreNeverWaitedFor) {
  start({.context_tokens = 2048, .sequences = 4, .pages = 256, .anchors = 16, .pass_tokens = 256});
  submit(with({}, 1000, 1), 3);
  submit(with({}, 1000, 1), 5);
  run_all();
  EXPECT_EQ(core_->stats().computed_tokens, 2000);
  EXPECT_EQ(core_->stats().shared_prefills, 0);
}

TEST_F(SharedPrefill, WhoWaitsForACancelledOneComputesItself) {
  start({.context_tokens = 2048, .sequences = 4, .pages = 256, .anchors = 16, .pass_tokens = 128});
  const auto first = submit(with({}, 1000, 1));
  submit(with({}, 1000, 1));
  submit(with({}, 300, 7));  // Nobody's: goes past the one that waits.
  core_->step();
  EXPECT_EQ(core_->stats().running, 2);
  first->cancel();
  run_all();
  EXPECT_EQ(core_->stats().finished_length + core_->stats().finished_stop, 2);
}

}  // namespace
}  // namespace wp
