#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/json.h"
#include "testing/seeds.h"
#include "text/utf8.h"

namespace wp {
namespace {

std::string source(const std::string& path) { return testing::source_directory() + "/" + path; }

const Tokenizer& mini() {
  static const Tokenizer tokenizer = Tokenizer::load(source("models/flash-next-mini")).value();
  return tokenizer;
}

std::vector<TokenId> byte_tokens(std::string_view bytes) {
  static const std::vector<TokenId> of_byte = [] {
    std::vector<TokenId> out(256, -1);
    for (TokenId id = 0; id < mini().vocabulary_count(); ++id)
      if (mini().bytes(id).size() == 1 && !mini().is_added(id)) out[static_cast<uint8_t>(mini().bytes(id)[0])] = id;
    return out;
  }();
  std::vector<TokenId> out;
  for (const char byte : bytes) out.push_back(of_byte[static_cast<uint8_t>(byte)]);
  return out;
}

struct Streamed {
  std::vector<std::string> pushes;
  std::string text;  // All of them and what finish() gave.
  bool stopped;
  std::string stop;
};

Streamed stream(const std::vector<TokenId>& tokens, const std::vector<std::string>& stops, bool skip_special = true) {
  Detokenizer detokenizer(mini(), stops, skip_special);
  Streamed out;
  for (const TokenId token : tokens) {
    out.pushes.push_back(detokenizer.push(token));
    out.text += out.pushes.back();
  }
  out.text += detokenizer.finish();
  out.stopped = detokenizer.stopped();
  out.stop = detokenizer.stop();
  return out;
}

TEST(Detokenizer, ReplacesAsPythonDoes) {
  std::ifstream file(source("testdata/text/utf8_golden.jsonl"));
  int count = 0;
  for (std::string line; std::getline(file, line); ++count) {
    const Json golden = parse_json(line).value();
    const std::string hex = golden["hex"];
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    EXPECT_EQ(stream(byte_tokens(bytes), {}).text, golden["text"]) << line;
    EXPECT_EQ(stream(mini().encode_plain(bytes), {}).text, golden["text"]) << line;
  }
  EXPECT_GT(count, 400);
}

TEST(Detokenizer, HoldsBackHalfACharacter) {
  using Pushes = std::vector<std::string>;
  EXPECT_EQ(stream(byte_tokens("a\u20acb"), {}).pushes, (Pushes{"a", "", "", "\u20ac", "b"}));
  EXPECT_EQ(stream(byte_tokens("\xE2\x82"
                               "A"),
                   {})
                .pushes,
            (Pushes{"", "", "\uFFFDA"}));
  EXPECT_EQ(stream(byte_tokens("\xE2\x82"), {}).text, "\uFFFD");
  EXPECT_EQ(stream(byte_tokens("\xC0\x80"), {}).pushes, (Pushes{"\uFFFD", "\uFFFD"}));
  EXPECT_EQ(stream(byte_tokens("\xED\xA0\x80"), {}).pushes, (Pushes{"", "\uFFFD\uFFFD", "\uFFFD"}));
}

TEST(Detokenizer, StopsSpanTokens) {
  using Pushes = std::vector<std::string>;
  const Streamed found = stream(byte_tokens("go\n\nUser: x"), {"\n\nUser:"});
  EXPECT_EQ(found.text, "go");
  EXPECT_TRUE(found.stopped);
  EXPECT_EQ(found.stop, "\n\nUser:");
  // Held back while it may become one, given once it cannot.
  EXPECT_EQ(stream(byte_tokens("abax"), {"abc"}).pushes, (Pushes{"", "", "ab", "ax"}));
  EXPECT_EQ(stream(byte_tokens("aab"), {"ab"}).text, "a");
  EXPECT_EQ(stream(byte_tokens("ab"), {"abc"}).text, "ab");  // At the end it is text.
}

TEST(Detokenizer, TheFirstCompleteStopWins) {
  EXPECT_EQ(stream(byte_tokens("xabcd"), {"abcd", "bc"}).stop, "bc");
  EXPECT_EQ(stream(byte_tokens("xabcd"), {"abcd", "bc"}).text, "xa");
  EXPECT_EQ(stream(byte_tokens("xabc"), {"c", "bc", "abc"}).stop, "abc");  // They end together.
  EXPECT_EQ(stream(byte_tokens("xabc"), {"c", "bc", "abc"}).text, "x");
  EXPECT_EQ(stream(byte_tokens("xabc"), {"ab", "a"}).stop, "a");
}

TEST(Detokenizer, EmptyAndUnreachableStopsAreNone) {
  const Streamed found = stream(byte_tokens("h\u00e9llo"), {"", "\xA9", "\xFF"});
  EXPECT_EQ(found.text, "h\u00e9llo");
  EXPECT_FALSE(found.stopped);
  EXPECT_EQ(found.pushes[2], "\u00e9");
}

TEST(Detokenizer, NothingComesAfterAStop) {
  Detokenizer detokenizer(mini(), {"b"});
  std::string text;
  for (const TokenId token : byte_tokens("abab")) text += detokenizer.push(token);
  EXPECT_EQ(text, "a");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, SkipsSpecialTokensWhereAsked) {
  const auto tokens = mini().encode_with_special("a<|im_end|>b");
  EXPECT_EQ(stream(tokens, {}).text, "ab");
  EXPECT_EQ(stream(tokens, {}, false).text, "a<|im_end|>b");
  EXPECT_EQ(stream(tokens, {"im_"}, false).text, "a<|");
  EXPECT_EQ(stream({-1, 8192, 1 << 30}, {}).text, "");  // Ids without a token.
}

TEST(Detokenizer, StopsDoNotApplyInReasoning) {
  Detokenizer detokenizer(mini(), {"stop"});
  std::string text;
  detokenizer.ignore_stops(true);
  for (const TokenId token : byte_tokens("stop st")) text += detokenizer.push(token);
  EXPECT_EQ(text, "stop st");  // Nothing is held back either.
  detokenizer.ignore_stops(false);
  for (const TokenId token : byte_tokens("op ")) text += detokenizer.push(token);
  EXPECT_EQ(text, "stop stop ");  // Nor does a stop begin in what went before.
  EXPECT_FALSE(detokenizer.stopped());
  for (const TokenId token : byte_tokens("sto")) text += detokenizer.push(token);
  detokenizer.ignore_stops(true);
  for (const TokenId token : byte_tokens("p")) text += detokenizer.push(token);
  EXPECT_EQ(text, "stop stop stop");
  detokenizer.ignore_stops(false);
  for (const TokenId token : byte_tokens("!stop")) text += detokenizer.push(token);
  EXPECT_EQ(text, "stop stop stop!");
  EXPECT_TRUE(detokenizer.stopped());
}

// The whole text at once: U+FFFD for each maximal subpart, then the stop that is complete first.
struct Reference {
  std::string text;
  bool stopped = false;
  std::string stop;
};

std::string replaced(std::string_view bytes, bool at_end) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(bytes, at);
    if (step.kind == Utf8Kind::cut && !at_end) break;
    if (step.kind == Utf8Kind::valid) out += bytes.substr(at, step.length);
    else out += kReplacementCharacter;
    at += step.length;
  }
  return out;
}

Reference reference(std::string_view bytes, const std::vector<std::string>& stops) {
  const std::string text = replaced(bytes, true);
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string_view head = std::string_view(text).substr(0, end);
    std::string best;
    for (const std::string& stop : stops)
      if (head.ends_with(stop) && stop.size() > best.size()) best = stop;
    if (!best.empty()) return {text.substr(0, end - best.size()), true, best};
  }
  return {text, false, ""};
}

// The longest end of `text` that may become a stop: what must be held back, and all that may.
size_t held_bytes(std::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops)
    for (size_t length = 1; length < stop.size() && length <= text.size(); ++length)
      if (text.ends_with(std::string_view(stop).substr(0, length))) longest = std::max(longest, length);
  return longest;
}

std::string random_bytes(Rng& rng) {
  static const std::vector<std::string> kPieces = {"a",    "b",    "ab", "aab",    "\u00e9",     "\u20ac",  "\xE2\x82",
                                                   "\xC3", "\x80", "\n", "\uFFFD", "\U0001f600", "\xF0\x9F"};
  std::string out;
  for (int64_t left = rng.between(0, 24); left > 0; --left)
    out += kPieces[rng.between(0, static_cast<int64_t>(kPieces.size()) - 1)];
  return out;
}

TEST(DetokenizerProperty, EqualsTheWholeTextHoweverItIsCut) {
  for (const Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    testing::Marks marks({"stopped", "not stopped", "held at the end", "replaced"});
    for (int round = 0; round < 4000; ++round) {
      const std::string bytes = random_bytes(rng);
      std::vector<std::string> stops;
      for (int64_t left = rng.between(0, 3); left > 0; --left) {
        const std::string text = replaced(random_bytes(rng), true);
        const auto prefix = text.substr(0, rng.between(1, 9));
        if (!prefix.empty() && utf8_valid_until(prefix, 0) == prefix.size()) stops.push_back(prefix);
      }
      const Reference expected = reference(bytes, stops);
      for (const auto& tokens : {byte_tokens(bytes), mini().encode_plain(bytes)}) {
        const Streamed found = stream(tokens, stops);
        const std::string decoded = mini().decode(tokens);  // NFC may have changed what encode_plain was given.
        const Reference wanted = decoded == bytes ? expected : reference(decoded, stops);
        ASSERT_EQ(found.text, wanted.text) << Json(stops);
        ASSERT_EQ(found.stopped, wanted.stopped);
        ASSERT_EQ(found.stop, wanted.stop);
        std::string so_far, given;
        for (size_t i = 0; i < tokens.size(); ++i) {
          so_far += mini().bytes(tokens[i]);
          given += found.pushes[i];
          const std::string whole = replaced(so_far, false);
          if (reference(so_far, stops).stopped) break;
          ASSERT_EQ(given.size(), whole.size() - held_bytes(whole, stops)) << "more or less held back than needed";
          ASSERT_EQ(utf8_valid_until(found.pushes[i], 0), found.pushes[i].size());
        }
      }
      marks.reach(expected.stopped ? "stopped" : "not stopped");
      if (!expected.stopped && held_bytes(expected.text, stops) > 0) marks.reach("held at the end");
      if (expected.text.find(kReplacementCharacter) != std::string::npos) marks.reach("replaced");
    }
    EXPECT_TRUE(marks.all_reached()) << marks.missing();
  }
}

TEST(Detokenizer, LongStopsCostNoMoreThanTheirText) {
  const std::string stop = std::string(20000, 'a') + "b";
  Detokenizer detokenizer(mini(), {stop});
  std::string text;
  for (const TokenId token : byte_tokens(std::string(60000, 'a'))) text += detokenizer.push(token);
  EXPECT_EQ(text.size(), 40000u);
  EXPECT_EQ(detokenizer.finish().size(), 20000u);
}

}  // namespace
}  // namespace wp
