// Answers under a grammar, from a whole engine over the fake model.
#include <gtest/gtest.h>

#include "core/log.h"
#include "engine/engine.h"
#include "testing/fake_answer.h"
#include "text/grammar/grammar_builder.h"

namespace wp {
namespace {

using testing::fake_answer;
using testing::FakeAnswer;
using testing::FakeModel;

// The fake model's 64 tokens as texts: brackets, then one or two digits (or what stands in their place). Token 1 ends.
// The answer: four to eight digits in brackets.
std::shared_ptr<const TokenGrammar> number_grammar(char zero = '0') {
  GrammarBuilder builder;
  const auto digit = builder.characters(CodeSet('0', '9'));
  auto grammar = builder.compile(
      builder.add("root", builder.sequence({builder.literal("["), builder.repeat(digit, 4, 8), builder.literal("]")})));
  std::vector<std::string> texts = {"[", "", "]", "]]"};
  for (int i = 4; i < 64; ++i) {
    const char first = static_cast<char>(zero + i % 10);
    texts.push_back(i < 34 ? std::string(1, first) : std::string{first, static_cast<char>('0' + i / 2 % 10)});
  }
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return std::make_shared<TokenGrammar>(std::move(*grammar), std::make_shared<TokenTrie>(views));
}

struct Answer {
  std::vector<TokenId> tokens;
  TokenEvent finished;
};

class GrammarAnswer : public ::testing::Test {
 protected:
  void SetUp() override {
    configure_log({.level = LogLevel::error});
    device_ = std::move(Device::make(DeviceKind::ref, 1)).value();
    auto engine =
        Engine::make(model_, *device_, {.context_tokens = 2048, .sequences = 4, .pages = 128}, system_clock());
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = std::move(engine).value();
  }
  void TearDown() override {
    engine_.reset();
    EXPECT_EQ(model_.violation(), "");
  }

  static GenerateRequest request(int64_t prompt, int64_t max_tokens, Seed seed) {
    Rng rng(seed);
    GenerateRequest made;
    for (int64_t i = 0; i < prompt; ++i) made.tokens.push_back(static_cast<TokenId>(rng.between(0, 59)));
    made.max_tokens = max_tokens;
    made.stop_tokens = {1};
    return made;
  }
  TokenStream submit(const GenerateRequest& request) {
    auto stream = engine_->submit(request);
    EXPECT_TRUE(stream.ok()) << stream.error().message;
    return std::move(stream).value();
  }
  static Answer collect(TokenStream stream) {
    Answer answer;
    while (auto event = stream.next()) {
      if (event->kind == TokenEvent::Kind::token) answer.tokens.push_back(event->token);
      if (event->kind == TokenEvent::Kind::finished) answer.finished = *event;
    }
    return answer;
  }
  void expect_as_alone(const GenerateRequest& request, const Answer& answer) {
    const FakeAnswer expected = fake_answer(model_, request);
    EXPECT_EQ(answer.tokens, expected.tokens);
    EXPECT_EQ(answer.finished.finish, expected.finish);
  }

  std::unique_ptr<Device> device_;
  FakeModel model_{{.end_token = 1}};
  std::unique_ptr<Engine> engine_;
};

TEST_F(GrammarAnswer, KeepsToItAndTheNeighbourDoesNotNotice) {
  const auto grammar = number_grammar();
  for (Seed seed = 1; seed < 30; ++seed) {
    GenerateRequest asked = request(70, 40, seed);
    asked.grammar = grammar;
    asked.sampling.temperature = seed % 2 == 0 ? 0.0f : 1.5f;
    asked.sampling.seed = seed;
    TokenStream stream = submit(asked);
    const GenerateRequest neighbour = request(90, 12, seed + 100);
    expect_as_alone(neighbour, collect(submit(neighbour)));
    const Answer answer = collect(std::move(stream));
    expect_as_alone(asked, answer);
    EXPECT_EQ(answer.finished.finish, FinishReason::stop);
    std::string text;
    for (const TokenId token : answer.tokens) text += grammar->trie().bytes(token);
    ASSERT_TRUE(text.size() >= 6 && text.size() <= 10 && text.front() == '[' && text.back() == ']') << text;
    EXPECT_EQ(text.find_first_not_of("0123456789", 1), text.size() - 1) << text;
    asked.grammar = nullptr;  // Without it the model says something else.
    EXPECT_NE(collect(submit(asked)).tokens, answer.tokens);
  }
}

TEST_F(GrammarAnswer, EndsAsStuckWhereNoTokenFollows) {
  GenerateRequest asked = request(70, 40, 1);
  asked.grammar = number_grammar('a');  // No token is a digit.
  const Answer answer = collect(submit(asked));
  EXPECT_EQ(answer.finished.finish, FinishReason::stuck);
  EXPECT_EQ(answer.finished.error, "");
  EXPECT_EQ(answer.tokens, std::vector<TokenId>{0});
  EXPECT_EQ(engine_->stats().finished_stuck, 1);
  EXPECT_EQ(engine_->stats().finished_error, 0);
}

TEST_F(GrammarAnswer, EndsByItselfWhereNothingMayFollowAndNoTokenSaysSo) {
  GenerateRequest asked = request(70, 40, 1);
  asked.grammar = number_grammar();
  asked.ignore_stop_tokens = true;
  const Answer answer = collect(submit(asked));
  EXPECT_EQ(answer.finished.finish, FinishReason::stop);
  EXPECT_EQ(answer.tokens.back(), 2);
}

TEST_F(GrammarAnswer, OfAnotherVocabularyIsRefused) {
  const std::vector<std::string_view> too_many(100, "a");
  GrammarBuilder builder;
  GenerateRequest asked = request(70, 40, 1);
  asked.grammar = std::make_shared<TokenGrammar>(*builder.compile(builder.add("root", builder.literal("a"))),
                                                 std::make_shared<TokenTrie>(too_many));
  const auto refused = engine_->submit(asked);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("grammar vocabulary"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace wp
