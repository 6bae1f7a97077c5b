// The bundled model behind the engine: turns that begin at a consolidated anchor have the bits of turns computed whole,
// alone and four at a time.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/log.h"
#include "engine/engine.h"
#include "testing/seeds.h"

namespace wp::measure {
namespace {

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  RequestStats stats;
};

class Consolidated : public ::testing::Test {
 protected:
  void SetUp() override {
    configure_log({.level = LogLevel::error});
    device_ = std::move(Device::make(DeviceKind::cpu, 2)).value();
    model_ = load_model(testing::source_directory() + "/models/flash-next-mini", *device_).value();
  }

  std::unique_ptr<Engine> engine(bool cache) {
    return Engine::make(*model_, *device_, {.context_tokens = 2048, .sequences = 4, .anchors = 16, .cache = cache},
                        system_clock())
        .value();
  }

  static Answer read(TokenStream stream) {
    Answer answer;
    while (const auto event = stream.next()) {
      if (event->kind == TokenEvent::Kind::finished) answer.stats = event->stats;
      if (event->kind != TokenEvent::Kind::token) continue;
      answer.tokens.push_back(event->token);
      answer.logprobs.push_back(event->logprob);
      for (const TokenLogprob& other : event->top) answer.logprobs.push_back(other.logprob);
    }
    return answer;
  }

  static std::vector<Answer> ask(Engine& engine, const std::vector<std::vector<TokenId>>& prompts) {
    std::vector<TokenStream> streams;
    for (const auto& tokens : prompts) {
      GenerateRequest request{.id = cat("r", streams.size()), .tokens = tokens, .max_tokens = 70};
      request.ignore_stop_tokens = true;
      request.sampling.top_logprobs = 3;
      request.cache.captures = {{(static_cast<int64_t>(tokens.size()) - 1) / 64 * 64, CaptureClass::tail}};
      streams.push_back(engine.submit(std::move(request)).value());
    }
    std::vector<Answer> answers;
    for (TokenStream& stream : streams) answers.push_back(read(std::move(stream)));
    return answers;
  }

  std::vector<TokenId> random_tokens(Rng& rng, int64_t count) const {
    std::vector<TokenId> tokens;
    for (; count > 0; --count) tokens.push_back(static_cast<TokenId>(rng.between(0, 4000)));
    return tokens;
  }

  // Three turns of `batch` conversations at once; all but the first begin at a consolidated anchor.
  void compare(int batch) {
    const auto warm = engine(true), cold = engine(false);
    Rng rng(static_cast<Seed>(batch));
    std::vector<std::vector<TokenId>> prompts;
    for (int i = 0; i < batch; ++i) prompts.push_back(random_tokens(rng, 300 + 57 * i));
    for (int turn = 0; turn < 3; ++turn) {
      const auto got = ask(*warm, prompts), expected = ask(*cold, prompts);
      for (size_t i = 0; i < prompts.size(); ++i) {
        SCOPED_TRACE(cat("turn ", turn, " of conversation ", i));
        EXPECT_EQ(got[i].tokens, expected[i].tokens);
        EXPECT_EQ(got[i].logprobs, expected[i].logprobs);
        EXPECT_EQ(got[i].stats.cached_tokens, turn > 0 ? consolidated_[i] : 0);
        prompts[i].insert(prompts[i].end(), got[i].tokens.begin(), got[i].tokens.end());
        warm->consolidate({.tokens = prompts[i]});
      }
      while (warm->stats().consolidation.waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      consolidated_.clear();
      for (auto& prompt : prompts) {
        consolidated_.push_back(static_cast<int64_t>(prompt.size()) / 64 * 64);
        const auto added = random_tokens(rng, 33);
        prompt.insert(prompt.end(), added.begin(), added.end());
      }
    }
    EXPECT_EQ(warm->stats().consolidation.done, 3 * batch);
  }

  std::vector<int64_t> consolidated_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
};

TEST_F(Consolidated, OneAtATimeHasTheBitsOfTheWholePrompt) { compare(1); }
TEST_F(Consolidated, FourAtATimeHaveTheBitsOfTheWholePrompt) { compare(4); }

}  // namespace
}  // namespace wp::measure
