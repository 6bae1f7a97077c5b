#include "measure/replay.h"

#include <gtest/gtest.h>

#include "measure/http_client.h"
#include "measure/replay_report.h"
#include "testing/seeds.h"

namespace wp::measure {
namespace {

constexpr const char* kRecord =
    R"({"id":"c1","tools":[],"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
    R"({"role":"user","content":"c"},{"role":"assistant","content":"d"}],"chat_template_kwargs":{"enable_thinking":false},)"
    R"("expected":[{"index":1,"content":"b","text":"b<|im_end|>"},{"index":3,"content":"d","text":"d<|im_end|>"}]})";

TEST(Conversation, Parses) {
  const auto made = parse_conversation(kRecord);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->turns.size(), 2u);
  EXPECT_EQ(made->turns[1].text, "d<|im_end|>");
  const Json variables = made->template_variables(made->turns[1]);
  EXPECT_EQ(variables["messages"].size(), 3u);  // The history as recorded, without the turn itself.
  EXPECT_EQ(variables["enable_thinking"], false);
  EXPECT_EQ(variables["add_generation_prompt"], true);
  EXPECT_FALSE(variables.contains("tools"));  // An empty list is none.
  EXPECT_EQ(made->request_body(made->turns[0])["chat_template_kwargs"]["enable_thinking"], false);
}

TEST(Conversation, SaysWhatIsMissing) {
  EXPECT_EQ(parse_conversation(R"({"messages":[]})").error().message, "expected an id, found none");
  EXPECT_FALSE(parse_conversation(R"({"id":"x","messages":3})").ok());
  EXPECT_FALSE(parse_conversation(R"({"id":"x","messages":[],"expected":[{"index":4}]})").ok());
  EXPECT_FALSE(parse_conversation("[1").ok());
  EXPECT_FALSE(read_conversations("/nowhere.jsonl").ok());
}

TEST(Conversation, F2HostileLinesAreErrorsOfOneLine) {
  const std::string deep(200'000, '[');
  const std::string hostile[] = {"",
                                 "\0",
                                 "cposix\nsystem\n(S'id'\ntR.",
                                 std::string("\x80\x04\x95", 3),
                                 deep,
                                 R"({"id":)" + deep,
                                 "{}",
                                 "null",
                                 "3",
                                 R"({"id":{"__reduce__":"os.system"},"messages":[]})",
                                 R"({"id":"x","messages":[null]})",
                                 R"({"id":"x","messages":{"0":1}})",
                                 R"({"id":"x","messages":[],"expected":[{"index":-1}]})",
                                 R"({"id":"x","messages":[],"expected":[{"index":1e300}]})",
                                 R"({"id":"x","messages":[],"expected":"all"})",
                                 R"({"id":"x","messages":[],"tools":7})",
                                 R"({"id":"x","messages":[],"chat_template_kwargs":[1]})",
                                 "{\"id\":\"\xFF\xFE\",\"messages\":[]}"};
  for (const std::string& line : hostile) {
    const auto parsed = parse_conversation(line);
    ASSERT_FALSE(parsed.ok()) << line.substr(0, 80);
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos) << line.substr(0, 80);
    EXPECT_LT(parsed.error().message.size(), 400u) << line.substr(0, 80);
  }
}

TEST(Conversation, ReadsTheBundledReplay) {
  const auto read =
      read_conversations(testing::source_directory() + "/models/flash-next-mini/replay/agentic-200.jsonl");
  ASSERT_TRUE(read.ok()) << read.error().message;
  size_t turns = 0;
  for (const Conversation& conversation : *read) turns += conversation.turns.size();
  EXPECT_EQ(read->size(), 20u);
  EXPECT_EQ(turns, 256u);
}

// Answers with a hash of the prompt and counts.
class EchoTarget : public ReplayTarget {
 public:
  TurnResult answer(const TurnPrompt& prompt, TurnTokens* tokens) override {
    TurnResult result{.conversation = prompt.label, .turn = prompt.turn, .warm = prompt.turn > 0};
    const size_t count = prompt.conversation ? 64 * (static_cast<size_t>(prompt.turn) + 1) : prompt.tokens.size();
    tokens->prompt.assign(count, 1);
    tokens->answered.assign(count + 16, 1);
    result.prompt_tokens = static_cast<int64_t>(count);
    result.cached_tokens = prompt.turn > 0 ? 64 * prompt.turn - 32 : 0;
    result.restored = prompt.turn > 0;
    result.generated_tokens = 3;
    result.ttft_s = 0.5;
    result.decode_s = 1;
    result.text_hash = static_cast<uint64_t>(prompt.turn);
    result.has_expected = true;
    result.exact = prompt.turn == 0;
    return result;
  }
};

std::vector<TurnResult> echo_turns(int64_t parallel) {
  std::vector<Conversation> conversations;
  for (int i = 0; i < 5; ++i) {
    conversations.push_back(*parse_conversation(kRecord));
    conversations.back().id = cat("c", i);
  }
  EchoTarget target;
  return run_replay(target, conversations, {.parallel = parallel});
}

TEST(Replay, KeepsTheOrderOfTheFile) {
  for (const int64_t parallel : {1, 3}) {
    const auto turns = echo_turns(parallel);
    ASSERT_EQ(turns.size(), 10u);
    for (size_t i = 0; i < turns.size(); ++i) {
      EXPECT_EQ(turns[i].conversation, cat("c", i / 2));
      EXPECT_EQ(turns[i].turn, static_cast<int64_t>(i % 2));
      EXPECT_EQ(turns[i].shared_tokens, i % 2 ? 64 : -1);
    }
  }
}

TEST(Replay, SummaryByHand) {
  const ReplaySummary s = summarize_replay(echo_turns(1), 2);
  EXPECT_EQ(s.turns, 10);
  EXPECT_EQ(s.warm, 5);
  EXPECT_EQ(s.restored, 5);
  EXPECT_EQ(s.prompt_tokens, 5 * (64 + 128));
  EXPECT_EQ(s.shared_tokens, 5 * 64);
  EXPECT_EQ(s.reused_tokens, 5 * 32);
  EXPECT_EQ(s.beyond_added_max, 128 - 32 - 48);  // 16 of the new prompt's last 64 tokens are the answer.
  EXPECT_EQ(s.beyond_answer_max, 64 - 32);
  EXPECT_EQ(s.exact, 5);
  EXPECT_DOUBLE_EQ(s.decode_tokens_per_s, 2);
  EXPECT_DOUBLE_EQ(s.ttft_p50_s, 0.5);
}

TEST(Compare, IdenticalAndTheFirstDifference) {
  auto turns = echo_turns(1);
  const Json a = replay_json({}, summarize_replay(turns, 1), turns);
  ASSERT_TRUE(compare_replays(a, a)->identical);
  EXPECT_EQ(compare_replays(a, a)->turns, 10);

  // Negative control: one bit of one turn's log-probabilities.
  turns[7].logprob_hash ^= 1;
  const Json b = replay_json({}, summarize_replay(turns, 1), turns);
  const auto found = compare_replays(a, b);
  EXPECT_FALSE(found->identical);
  EXPECT_NE(found->difference.find("turn 8 (\"c3\" turn 1) differs in logprob_hash"), std::string::npos)
      << found->difference;

  turns.pop_back();
  turns[7].logprob_hash ^= 1;
  EXPECT_FALSE(compare_replays(a, replay_json({}, summarize_replay(turns, 1), turns))->identical);
  EXPECT_FALSE(compare_replays(a, Json::object()).ok());
  EXPECT_FALSE(compare_replays(a, {{"turns", {{{"turn", 1}}}}}).ok());
}

TEST(Compare, RatioOfLongRestoredTurns) {
  std::vector<TurnResult> warm(3), cold(3);
  for (int i = 0; i < 3; ++i) {
    warm[i] = {.prompt_tokens = i == 0 ? 100 : 5000, .cached_tokens = 4992, .ttft_s = 0.1 * (i + 1)};
    cold[i] = {.prompt_tokens = i == 0 ? 100 : 5000, .ttft_s = 1};
  }
  const Json a = replay_json({}, summarize_replay(warm, 1), warm), b = replay_json({}, summarize_replay(cold, 1), cold);
  EXPECT_NEAR(compare_replays(a, b)->warm_to_cold, 0.25, 1e-12);  // Of 0.2 and 0.3; the short one does not count.
  EXPECT_NEAR(compare_replays(b, a)->warm_to_cold, 0.25, 1e-12);
  EXPECT_EQ(compare_replays(a, b)->warm_to_cold_turns, 2);
}

TEST(Synthetic, ShapeAndGrowth) {
  EXPECT_EQ(parse_synthetic("turns=3,start=100,new=7")->added, 7);
  EXPECT_FALSE(parse_synthetic("turns=3,begin=100").ok());
  EXPECT_FALSE(parse_synthetic("turns=0").ok());
  EXPECT_FALSE(parse_synthetic("turns").ok());
  const auto tokenizer = Tokenizer::load(testing::source_directory() + "/models/flash-next-mini");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto prompts = synthetic_prompts({.turns = 3, .start = 100, .added = 7}, *tokenizer, 8192);
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[2].tokens.size(), 114u);
  for (size_t i = 0; i < 107; ++i) EXPECT_EQ(prompts[2].tokens[i], prompts[1].tokens[i]);
  for (TokenId token : prompts[2].tokens) EXPECT_FALSE(tokenizer->is_added(token));
}

TEST(Url, Parts) {
  EXPECT_EQ(parse_url("http://127.0.0.1:8080")->port, "8080");
  EXPECT_EQ(parse_url("http://h/v1/")->prefix, "");
  EXPECT_EQ(parse_url("http://h/api")->prefix, "/api");
  EXPECT_EQ(parse_url("http://[::1]:81")->host, "::1");
  EXPECT_FALSE(parse_url("https://h").ok());
  EXPECT_FALSE(parse_url("http://:80").ok());
  EXPECT_FALSE(parse_url("http://h:x").ok());
}

TEST(Sse, AnyCutGivesTheSameEvents) {
  const std::string stream = ": ping\r\n\r\ndata: {\"a\":1}\n\nevent: x\ndata: one\ndata:two\r\n\r\ndata: [DONE]\n\n";
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    std::vector<std::string> events;
    SseParser parser;
    const SseParser::Sink sink = [&](std::string_view data) { events.emplace_back(data); };
    ASSERT_TRUE(parser.push(stream.substr(0, cut), sink) && parser.push(stream.substr(cut), sink));
    EXPECT_EQ(events, (std::vector<std::string>{"{\"a\":1}", "one\ntwo", "[DONE]"})) << cut;
  }
}

}  // namespace
}  // namespace wp::measure
