#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "core/json.h"
#include "core/rng.h"
#include "testing/seeds.h"
#include "text/normalize.h"
#include "text/read_file.h"
#include "text/split_pattern.h"
#include "text/utf8.h"

namespace wp {
namespace {

using testing::seeds_of_this_run;

std::string source(const std::string& path) { return testing::source_directory() + "/" + path; }

const Tokenizer& mini() {
  static const Tokenizer tokenizer = [] {
    auto loaded = Tokenizer::load(source("models/flash-next-mini"));
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return std::move(loaded).value();
  }();
  return tokenizer;
}

std::string small_json() { return *read_text_file(source("testdata/text/tokenizer_small.json"), 1 << 20); }
const Tokenizer& small() {
  static const Tokenizer tokenizer = Tokenizer::parse(small_json()).value();
  return tokenizer;
}

// NFC of the valid runs, which is what encode() keeps of a text.
std::string kept(std::string_view text) {
  std::string out, buffer;
  for (size_t at = 0; at < text.size();) {
    const size_t end = utf8_valid_until(text, at);
    out += to_nfc(text.substr(at, end - at), buffer);
    at = end;
    if (at == text.size()) break;
    const int length = utf8_step(text, at).length;
    out += text.substr(at, length);
    at += length;
  }
  return out;
}

TEST(Tokenizer, AgreesWithTheReferencePrompts) {
  const auto prompts = parse_json(*read_text_file(source("models/flash-next-mini/reference/prompts.json"), 1 << 20));
  ASSERT_TRUE(prompts.ok());
  ASSERT_EQ(prompts->size(), 6u);
  for (const Json& prompt : *prompts) {
    const auto ids = mini().encode_with_special(prompt["text"].get_ref<const std::string&>());
    EXPECT_EQ(Json(ids), prompt["ids"]) << prompt["name"];
    EXPECT_EQ(mini().decode(ids), prompt["text"].get_ref<const std::string&>());
  }
}

TEST(Tokenizer, AgreesWithHuggingFace) {
  std::ifstream file(source("testdata/text/tokenizer_golden.jsonl"));
  std::string line;
  int mini_count = 0, small_count = 0;
  while (std::getline(file, line)) {
    const Json golden = *parse_json(line);
    const bool is_mini = golden["tokenizer"] == "mini";
    ++(is_mini ? mini_count : small_count);
    const Tokenizer& tokenizer = is_mini ? mini() : small();
    const auto& text = golden["text"].get_ref<const std::string&>();
    EXPECT_EQ(Json(tokenizer.encode_with_special(text)), golden["ids"]) << line;
    if (is_mini) {
      EXPECT_EQ(Json(tokenizer.encode_plain(text)), golden["plain"]) << line;
    }
  }
  EXPECT_EQ(mini_count, 200);
  EXPECT_EQ(small_count, 200);
}

TEST(Tokenizer, UserTextNeverBecomesAnAddedToken) {
  for (const Tokenizer* tokenizer : {&mini(), &small()}) {
    int added_count = 0;
    for (TokenId id = 0; id < tokenizer->vocabulary_count(); ++id) {
      if (!tokenizer->is_added(id)) continue;
      ++added_count;
      const std::string content(tokenizer->bytes(id));
      EXPECT_EQ(tokenizer->find(content), id);
      const auto trusted = tokenizer->encode_with_special(content);
      EXPECT_EQ(trusted, std::vector<TokenId>{id});
      for (const TokenId token : tokenizer->encode_plain("a" + content + content))
        EXPECT_FALSE(tokenizer->is_added(token)) << content;
      EXPECT_EQ(tokenizer->decode(tokenizer->encode_plain(content)), kept(content));
    }
    EXPECT_GE(added_count, 9);
  }
  EXPECT_EQ(mini().find("<|im_end|>"), 2);
  EXPECT_FALSE(mini().find("hello").has_value());
}

TEST(Tokenizer, SkipsSpecialTokensOnly) {
  const auto ids = small().encode_with_special("<|im_start|>caf\u00e9");
  EXPECT_EQ(small().decode(ids), "<|im_start|>caf\u00e9");
  EXPECT_EQ(small().decode(ids, true), "caf\u00e9");  // Added, not special.
  EXPECT_TRUE(small().is_added(ids.back()));
  EXPECT_FALSE(small().is_special(ids.back()));
}

TEST(Tokenizer, IdsWithoutATokenGiveNothing) {
  EXPECT_EQ(mini().vocabulary_count(), 8192);
  for (const TokenId id : {-1, 8192, 1 << 30}) {
    EXPECT_EQ(mini().bytes(id), "");
    EXPECT_FALSE(mini().is_added(id));
    EXPECT_FALSE(mini().is_special(id));
    EXPECT_EQ(mini().decode(std::vector<TokenId>{id}), "");
  }
}

TEST(Tokenizer, InvalidUtf8GoesByteByByteAndComesBack) {
  for (const std::string text :
       {"\xE2\x82", "a\xC0\x80z", "\xED\xA0\x80", "\xF5\x80", "\xFF", "caf\xC3", "\xF0\x9F\x98"}) {
    const auto ids = mini().encode_plain(text);
    EXPECT_EQ(mini().decode(ids), text);
    EXPECT_EQ(mini().decode(mini().encode_with_special(text)), text);
  }
  EXPECT_EQ(mini().encode_plain("\xE2\x82").size(), 2u);
  // Invalid bytes divide the text into runs; each is normalized by itself, none across a byte between.
  EXPECT_EQ(mini().decode(mini().encode_plain("e\u0301\xFF\u0301")), "\u00e9\xFF\u0301");
}

std::string random_text(Rng& rng, testing::Marks& marks) {
  static const std::vector<std::string> kPieces = {
      "e\u0301",      "\u0344", "<|im_start|>", "<|im_end|>", "<left>", " word ", "'S",       "\r\n", "   ",
      "\u180e",       "\u00a0", "\u212b",       "\u0f73",     "12345",  "hello",  "\u4f60",   "\t\t", "\uac01",
      "\u1112\u1161", "!?",     "\xED\xA0",     "\xF0\x9F",   "\xC3",   "\x80",   "caf\u00e9"};
  std::string out;
  for (int64_t left = rng.between(0, 40); left > 0; --left) {
    const int64_t kind = rng.between(0, 9);
    if (kind < 5) out += kPieces[rng.between(0, static_cast<int64_t>(kPieces.size()) - 1)];
    else if (kind < 7) out += static_cast<char>(rng.between(0, 255));
    else if (kind < 9) out.append(rng.between(1, 8), static_cast<char>(rng.between(9, 126)));
    else {
      const int64_t character = rng.between(0x80, 0x10FFFF);
      if (character < 0xD800 || character > 0xDFFF) append_utf8(out, static_cast<uint32_t>(character));
    }
  }
  marks.reach(utf8_valid_until(out, 0) == out.size() ? "valid" : "invalid");
  if (kept(out) != out) marks.reach("normalized");
  return out;
}

TEST(TokenizerProperty, DecodeInvertsEncode) {
  for (const Seed seed : seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    testing::Marks marks({"valid", "invalid", "normalized"});
    for (int round = 0; round < 3000; ++round) {
      const std::string text = random_text(rng, marks);
      for (const Tokenizer* tokenizer : {&mini(), &small()}) {
        const auto ids = tokenizer->encode_plain(text);
        ASSERT_EQ(tokenizer->decode(ids), kept(text)) << Json(ids);
        for (const TokenId id : ids) ASSERT_FALSE(tokenizer->is_added(id));
      }
      // With added tokens recognised the text is cut at them before it is normalized; none of it is lost.
      std::string buffer;
      const std::string decoded = mini().decode(mini().encode_with_special(text));
      if (utf8_valid_until(text, 0) == text.size()) {
        ASSERT_EQ(std::string(to_nfc(decoded, buffer)), kept(text));
      }
    }
    EXPECT_TRUE(marks.all_reached()) << marks.missing();
  }
}

TEST(Tokenizer, IsLinearOnTextsThatInviteQuadraticWork) {
  const auto repeated = [](std::string_view piece) {
    std::string out;
    while (out.size() < 1'000'000) out += piece;
    return out;
  };
  // Generous for sanitizers on a shared machine; quadratic work takes minutes on any of these.
  for (const std::string_view piece : {"a", " ", "internationalization", "\u0301\u0316", "\u0f73", "\n \t", "1",
                                       "<|im_start|", "\xFF", "e\u0316\u0301", "' ", "\u180e"}) {
    const std::string text = repeated(piece);
    const auto begin = std::chrono::steady_clock::now();
    const auto ids = mini().encode_with_special(text);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << piece;
    EXPECT_EQ(mini().decode(ids), kept(text));
  }
}

TEST(Tokenizer, EncodesFromManyThreads) {
  const std::string text = *read_text_file(source("models/flash-next-mini/eval/code.txt"), 1 << 20);
  const auto expected = mini().encode_plain(text);
  std::vector<std::vector<TokenId>> found(4);
  std::vector<std::thread> threads;
  for (auto& ids : found) threads.emplace_back([&ids, &text] { ids = mini().encode_plain(text); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : found) EXPECT_EQ(ids, expected);
}

TEST(Tokenizer, FingerprintIsOfTheContent) {
  EXPECT_EQ(Tokenizer::parse(small_json())->fingerprint(), small().fingerprint());
  EXPECT_NE(Tokenizer::parse(small_json() + " ")->fingerprint(), small().fingerprint());
}

std::string refusal(const std::function<void(Json&)>& change) {
  Json root = *parse_json(small_json());
  change(root);
  const auto parsed = Tokenizer::parse(dump_json(root));
  return parsed.ok() ? "accepted" : parsed.error().message;
}

TEST(Tokenizer, RefusesByNameWhatItDoesNotImplement) {
  EXPECT_EQ(refusal([](Json&) {}), "accepted");
  EXPECT_EQ(refusal([](Json& root) { root["normalizer"] = nullptr; }), "accepted");
  EXPECT_EQ(refusal([](Json& root) { root["model"]["type"] = "Unigram"; }), "model.type: expected BPE, found Unigram");
  EXPECT_EQ(refusal([](Json& root) {
              root["normalizer"] = {{"type", "NFKC"}};
            }),
            "normalizer: expected none or NFC, found NFKC");
  EXPECT_EQ(refusal([](Json& root) { root["model"]["dropout"] = 0.1; }),
            "model.dropout: expected none, found 0.1, which is not implemented");
  EXPECT_EQ(refusal([](Json& root) {
              root["post_processor"] = {{"type", "TemplateProcessing"}};
            }),
            "post_processor: expected ByteLevel, found TemplateProcessing");
  EXPECT_EQ(refusal([](Json& root) {
              root["pre_tokenizer"] = {{"type", "Metaspace"}};
            }),
            "pre_tokenizer: expected Sequence [Split, ByteLevel], found Metaspace");
  EXPECT_EQ(refusal([](Json& root) { root["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; }),
            "pre_tokenizer.Split: expected behavior Isolated, not inverted, found another");
  EXPECT_EQ(refusal([](Json& root) { root["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = true; }),
            "pre_tokenizer.ByteLevel.use_regex: expected none, found true, which is not implemented");
}

TEST(Tokenizer, RefusesDamagedFiles) {
  EXPECT_EQ(Tokenizer::parse("{").ok(), false);
  EXPECT_EQ(Tokenizer::parse("[]").error().message, "model: expected an object, found none");
  EXPECT_EQ(refusal([](Json& root) { root["model"]["vocab"].erase("a"); }),
            "model.vocab: expected a token for every byte, found none for byte 97");
  EXPECT_EQ(refusal([](Json& root) { root["model"]["vocab"]["a"] = -1; }),
            "token \"a\": expected an id from 0 to 4194303, found -1");
  EXPECT_EQ(refusal([](Json& root) { root["model"]["vocab"]["a"] = 5000000000; }),
            "token \"a\": expected an id from 0 to 4194303, found 5000000000");
  EXPECT_EQ(refusal([](Json& root) { root["model"]["vocab"]["a"] = 3; }).substr(0, 30),
            "token \"a\": expected an id of i");
  EXPECT_EQ(refusal([](Json& root) { root["model"]["merges"][0] = {"a"}; }),
            "model.merges[0]: expected two tokens whose join is a token, found [\"a\"]");
  EXPECT_EQ(refusal([](Json& root) { root["added_tokens"][0]["content"] = "a"; }).substr(0, 32),
            "added token \"a\": expected id 64 ");
  EXPECT_EQ(Tokenizer::load("/nonexistent").error().code, ErrorCode::not_found);
}

TEST(Tokenizer, TakesMergesAsStringsToo) {
  Json root = *parse_json(small_json());
  for (Json& merge : root["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  const auto parsed = Tokenizer::parse(dump_json(root));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->encode_plain("the function returns"), small().encode_plain("the function returns"));
}

std::vector<std::string> pieces(std::string_view pattern, const std::string& text) {
  const auto split = SplitPattern::compile(pattern);
  EXPECT_TRUE(split.ok()) << split.error().message;
  std::vector<size_t> ends;
  split->split(text, ends);
  std::vector<std::string> out;
  size_t begin = 0;
  for (const size_t end : ends) {
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

TEST(SplitPattern, MatchesAndWhatLiesBetweenArePieces) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces("b+", "abbcb"), (Pieces{"a", "bb", "c", "b"}));
  EXPECT_EQ(pieces("x*", "axxb"), (Pieces{"a", "xx", "b"}));  // Empty matches end pieces and go on.
  EXPECT_EQ(pieces("z", "ab"), (Pieces{"ab"}));
  EXPECT_EQ(pieces("z", ""), Pieces{});
  EXPECT_EQ(pieces("\\s+", "a\u180eb\u2003c"), (Pieces{"a\u180eb", "\u2003", "c"}));  // U+180E is no white space.
  EXPECT_EQ(pieces("[^\\S\\n]+", "a \nb"), (Pieces{"a", " ", "\nb"}));
}

TEST(SplitPattern, RefusesWhatTheDialectsReadDifferently) {
  for (const char* pattern : {"^a", "a$", "a.", "\\w+", "\\bq", "[a[b]]", "[a&&b]", "(?<=x)a", "(?m:a)", "a{1,2}+",
                              "\\h", "(*UTF)a", "\\1", "[]a]", "\\x41", "a\\"})
    EXPECT_FALSE(SplitPattern::compile(pattern).ok()) << pattern;
  EXPECT_FALSE(SplitPattern::compile("(").ok());
  EXPECT_FALSE(SplitPattern::compile(std::string(1000, '(')).ok());
  EXPECT_FALSE(SplitPattern::compile("\\p{Nonsense}").ok());
}

TEST(SplitPattern, ARunawayPatternLeavesOnePiece) {
  const std::string text = std::string(60, 'a') + "b";  // Exponential: the match limit ends it.
  EXPECT_EQ(pieces("(?:a|a|aa)+c", text), std::vector<std::string>{text});
}

TEST(Utf8, DividesAsPythonDoes) {
  const auto steps = [](std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const Utf8Step step = utf8_step(text, at);
      out += cat(step.kind == Utf8Kind::valid ? 'v' : step.kind == Utf8Kind::cut ? 'c' : 'i', step.length);
      at += step.length;
    }
    return out;
  };
  EXPECT_EQ(steps("a\u00e9\u20ac\U0001f600"), "v1v2v3v4");
  EXPECT_EQ(steps("\xE2\x82"), "c2");
  EXPECT_EQ(steps("\xE2\x82"
                  "A"),
            "i2v1");
  EXPECT_EQ(steps("\xC0\x80"), "i1i1");
  EXPECT_EQ(steps("\xED\xA0\x80"), "i1i1i1");
  EXPECT_EQ(steps("\xE0\x80\x80"), "i1i1i1");
  EXPECT_EQ(steps("\xF0\x9F\x98"), "c3");
  EXPECT_EQ(steps("\xF4\x90\x80\x80\xF5"), "i1i1i1i1i1");
}

}  // namespace
}  // namespace wp
