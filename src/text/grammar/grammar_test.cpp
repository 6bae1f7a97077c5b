// Compiled grammars against the languages that their expressions denote, written out as sets of strings: no automaton
// is in the reference. Masks of vocabularies against reading each token byte by byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "testing/seeds.h"
#include "text/grammar/grammar_builder.h"
#include "text/grammar/grammar_matcher.h"

namespace wp {
namespace {

using Language = std::set<std::string>;
constexpr size_t kLengthMax = 6;

struct Expression {
  enum class Kind { text, sequence, choice, repeat, call } kind = Kind::text;
  std::string text;
  std::vector<Expression> parts;
  int low = 0, high = 0;  // call: low is the rule.
};

std::string random_text(Rng& rng, int64_t low, int64_t high) {
  std::string text;
  for (int64_t i = rng.between(low, high); i > 0; --i) text += static_cast<char>('a' + rng.between(0, 2));
  return text;
}

Expression random_expression(Rng& rng, int depth, int rules) {
  Expression made;
  const int64_t kind = depth == 0 ? 0 : rng.between(0, 9);
  if (kind < 3) {
    made.text = random_text(rng, 0, 2);
  } else if (kind < 8) {
    made.kind = kind < 6 ? Expression::Kind::sequence : Expression::Kind::choice;
    for (int64_t i = rng.between(1, 3); i > 0; --i) made.parts.push_back(random_expression(rng, depth - 1, rules));
  } else if (kind == 8) {
    made.kind = Expression::Kind::repeat;
    made.low = static_cast<int>(rng.between(0, 2));
    made.high = rng.percent(40) ? -1 : made.low + static_cast<int>(rng.between(0, 2));
    made.parts.push_back(random_expression(rng, depth - 1, rules));
  } else {
    made.kind = Expression::Kind::call;
    made.low = static_cast<int>(rng.between(0, rules - 1));
  }
  return made;
}

Language joined(const Language& left, const Language& right) {
  Language out;
  for (const std::string& a : left)
    for (const std::string& b : right)
      if (a.size() + b.size() <= kLengthMax) out.insert(a + b);
  return out;
}

// The strings of at most kLengthMax bytes, with what is known of the rules so far.
Language language_of(const Expression& expression, const std::vector<Language>& rules) {
  switch (expression.kind) {
    case Expression::Kind::text: return {expression.text};
    case Expression::Kind::call: return rules[static_cast<size_t>(expression.low)];
    case Expression::Kind::choice: {
      Language out;
      for (const Expression& part : expression.parts) out.merge(language_of(part, rules));
      return out;
    }
    case Expression::Kind::sequence: {
      Language out = {""};
      for (const Expression& part : expression.parts) out = joined(out, language_of(part, rules));
      return out;
    }
    case Expression::Kind::repeat: break;
  }
  const Language part = language_of(expression.parts[0], rules);
  Language out = {""};
  for (int i = 0; i < expression.low; ++i) out = joined(out, part);
  const int more = expression.high < 0 ? static_cast<int>(kLengthMax) : expression.high - expression.low;
  for (int i = 0; i < more; ++i) {
    Language longer = joined(out, part);
    longer.merge(out);
    out = std::move(longer);
  }
  return out;
}

GrammarBuilder::Node build(GrammarBuilder& builder, const Expression& expression) {
  std::vector<GrammarBuilder::Node> parts;
  for (const Expression& part : expression.parts) parts.push_back(build(builder, part));
  switch (expression.kind) {
    case Expression::Kind::text: return builder.literal(expression.text);
    case Expression::Kind::call: return builder.call(expression.low);
    case Expression::Kind::choice: return builder.choice(parts);
    case Expression::Kind::sequence: return builder.sequence(parts);
    case Expression::Kind::repeat: return builder.repeat(parts[0], expression.low, expression.high);
  }
  return builder.empty();
}

struct RandomGrammar {
  std::vector<Language> rules;
  Result<Grammar> grammar;
};

RandomGrammar random_grammar(Rng& rng) {
  const int count = static_cast<int>(rng.between(1, 3));
  std::vector<Expression> expressions;
  GrammarBuilder builder;
  for (int i = 0; i < count; ++i) expressions.push_back(random_expression(rng, 4, count));
  for (int i = 0; i < count; ++i) builder.declare(cat("r", i));
  for (int i = 0; i < count; ++i) builder.define(i, build(builder, expressions[static_cast<size_t>(i)]));
  std::vector<Language> rules(static_cast<size_t>(count));
  for (size_t before = 1, now = 0; before != now;) {
    before = now;
    now = 0;
    for (size_t i = 0; i < rules.size(); ++i) {
      rules[i] = language_of(expressions[i], rules);
      now += rules[i].size();
    }
  }
  return {std::move(rules), builder.compile(0)};
}

int32_t read(GrammarRun& run, int32_t at, std::string_view text) {
  for (size_t i = 0; i < text.size() && at != GrammarRun::kDead; ++i) at = run.step(at, static_cast<uint8_t>(text[i]));
  return at;
}

bool accepts(const Grammar& grammar, std::string_view text) {
  GrammarRun run(grammar);
  const int32_t at = read(run, run.start(), text);
  return at != GrammarRun::kDead && run.ends(at);
}

void for_each_text(size_t length, const auto& visit) {
  for (size_t n = 0; n <= length; ++n) {
    std::string text(n, 'a');
    for (;;) {
      visit(text);
      size_t i = 0;
      for (; i < n && text[i] == 'c'; ++i) text[i] = 'a';
      if (i == n) break;
      ++text[i];
    }
  }
}

TEST(Grammar, AcceptsTheLanguageOfItsExpressions) {
  for (const Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    testing::Marks marks({"accepted", "refused", "left recursion", "nothing fulfils it", "recursive"});
    for (int round = 0; round < 400; ++round) {
      const RandomGrammar made = random_grammar(rng);
      if (!made.grammar.ok()) {
        const std::string& message = made.grammar.error().message;
        const bool left = message.find("left recursion") != std::string::npos;
        marks.reach(left ? "left recursion" : "nothing fulfils it");
        EXPECT_TRUE(left || made.rules[0].empty()) << message;
        continue;
      }
      GrammarRun run(*made.grammar);
      if (made.rules.size() > 1) marks.reach("recursive");
      for_each_text(4, [&](const std::string& text) {
        const int32_t at = read(run, run.start(), text);
        const bool known = made.rules[0].count(text) > 0;
        ASSERT_EQ(at != GrammarRun::kDead && run.ends(at), known) << text << " in round " << round;
        marks.reach(known ? "accepted" : "refused");
        const auto longer = made.rules[0].lower_bound(text);
        const bool begins = longer != made.rules[0].end() && longer->compare(0, text.size(), text) == 0;
        ASSERT_TRUE(!begins || at != GrammarRun::kDead) << text << " in round " << round;
      });
    }
    EXPECT_TRUE(marks.all_reached()) << marks.missing();
  }
}

// Each token that a mask allows can be read, no other can; whatever the vocabulary, and after forgetting the past too.
TEST(Grammar, MasksAreWhatReadingEachTokenSays) {
  for (const Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    testing::Marks marks({"some", "none", "all bits", "ended"});
    for (int round = 0; round < 150; ++round) {
      RandomGrammar made = random_grammar(rng);
      if (!made.grammar.ok()) continue;
      std::vector<std::string> texts = {"a", "b", "c", ""};
      for (int64_t i = rng.between(0, 90); i > 0; --i) texts.push_back(random_text(rng, 1, 5));
      const std::vector<std::string_view> views(texts.begin(), texts.end());
      const auto trie = std::make_shared<TokenTrie>(views);
      const auto shared = std::make_shared<TokenGrammar>(*made.grammar, trie);
      if (rng.percent(50)) shared->warm_up(1000);
      GrammarMatcher matcher(shared);
      GrammarRun run(shared->grammar());
      int32_t at = run.start();
      for (int step = 0; step < 12; ++step) {
        const std::span<const uint64_t> bits = matcher.allowed();
        std::vector<int32_t> allowed;
        for (size_t token = 0; token < texts.size(); ++token) {
          const bool bit = bits[token / 64] >> (token % 64) & 1;
          const bool reads = !texts[token].empty() && read(run, at, texts[token]) != GrammarRun::kDead;
          ASSERT_EQ(bit, reads) << texts[token] << " in round " << round;
          if (bit) allowed.push_back(static_cast<int32_t>(token));
        }
        ASSERT_EQ(matcher.may_end(), run.ends(at));
        marks.reach(allowed.empty() ? "none" : "some");
        if (allowed.size() * 4 > texts.size()) marks.reach("all bits");
        if (allowed.empty()) {
          ASSERT_TRUE(matcher.may_end()) << "stuck in round " << round;
          ASSERT_FALSE(matcher.advance(0));
          marks.reach("ended");
          break;
        }
        const int32_t token = allowed[static_cast<size_t>(rng.between(0, static_cast<int64_t>(allowed.size()) - 1))];
        ASSERT_TRUE(matcher.advance(token));
        at = read(run, at, texts[static_cast<size_t>(token)]);
        if (rng.percent(20)) at = run.forget(at);
      }
    }
    EXPECT_TRUE(marks.all_reached()) << marks.missing();
  }
}

TEST(Grammar, UntilEndsAtTheFirstOccurrence) {
  GrammarBuilder builder;
  const auto grammar =
      builder.compile(builder.add("root", builder.sequence({builder.until("aab"), builder.literal("c")})));
  ASSERT_TRUE(grammar.ok());
  for_each_text(6, [&](const std::string& text) {
    const bool want = text.size() >= 4 && text.find("aab") == text.size() - 4 && text.back() == 'c';
    ASSERT_EQ(accepts(*grammar, text), want) << text;
  });
}

TEST(Grammar, CharactersAreUtf8) {
  GrammarBuilder builder;
  const auto grammar = builder.compile(builder.add("root", builder.characters(CodeSet(0x80, 0x10FFFF))));
  ASSERT_TRUE(grammar.ok());
  EXPECT_TRUE(accepts(*grammar, "\xC3\xA4"));
  EXPECT_TRUE(accepts(*grammar, "\xF0\x9F\x98\x80"));
  for (const char* bad : {"a", "\xC0\x80", "\xED\xA0\x80", "\xC3", "\xF5\x80\x80\x80"})
    EXPECT_FALSE(accepts(*grammar, bad));
}

TEST(Grammar, DeepNestingIsForgottenAndKept) {
  GrammarBuilder builder;
  const auto rule = builder.declare("nested");
  builder.define(rule,
                 builder.choice({builder.sequence({builder.literal("("), builder.call(rule), builder.literal(")")}),
                                 builder.literal("x")}));
  const auto grammar = builder.compile(rule);
  ASSERT_TRUE(grammar.ok());
  GrammarRun run(*grammar);
  int32_t at = run.start();
  const auto read_some = [&](char byte, int count) {
    for (int i = 0; i < count && at != GrammarRun::kDead; ++i) {
      at = run.step(at, static_cast<uint8_t>(byte));
      if (i % 7 == 0 && at != GrammarRun::kDead) at = run.forget(at);
    }
    return at != GrammarRun::kDead;
  };
  ASSERT_TRUE(read_some('(', 1000) && read_some('x', 1) && read_some(')', 999));
  EXPECT_FALSE(run.ends(at));
  ASSERT_TRUE(read_some(')', 1));
  EXPECT_TRUE(run.ends(at));
  EXPECT_FALSE(read_some(')', 1));
  at = run.start();
  EXPECT_FALSE(read_some('(', 2000));  // Deeper than any reader goes.
}

TEST(Grammar, WhatIsTooLargeIsRefused) {
  const auto refusal = [](const auto& write) {
    GrammarBuilder builder;
    const auto root = builder.declare("root");
    builder.define(root, write(builder));
    const auto made = builder.compile(root);
    return made.ok() ? std::string()
                     : cat(made.error().code == ErrorCode::too_long ? "large: " : "", made.error().message);
  };
  const auto is_large = [&](const auto& write) { return refusal(write).rfind("large: ", 0) == 0; };
  EXPECT_TRUE(is_large([](GrammarBuilder& b) { return b.repeat(b.literal("a"), 1, 1'000'000'000); }));
  EXPECT_TRUE(is_large([](GrammarBuilder& b) { return b.repeat(b.repeat(b.empty(), 1'000'000'000), 1'000'000'000); }));
  EXPECT_TRUE(is_large([](GrammarBuilder& b) {  // 2^40 states.
    const auto either = b.choice({b.literal("a"), b.literal("b")});
    return b.sequence({b.repeat(either, 0), b.literal("a"), b.repeat(either, 40, 40)});
  }));
  EXPECT_TRUE(is_large([](GrammarBuilder& b) {
    auto node = b.literal("a");
    for (int i = 0; i < 300; ++i) node = b.optional(node);
    return node;
  }));
  EXPECT_TRUE(is_large([](GrammarBuilder& b) {
    auto before = b.add("last", b.literal("a"));
    for (int i = 0; i < 5000; ++i) before = b.add(cat("r", i), b.call(before));
    return b.call(before);
  }));
  EXPECT_EQ(refusal([](GrammarBuilder& b) { return b.repeat(b.literal("a"), 1, 1000); }), "");
  EXPECT_NE(refusal([](GrammarBuilder& b) { return b.call(b.declare("lost")); }).find("lost"), std::string::npos);
  const auto left = [](GrammarBuilder& b) {
    return b.choice({b.sequence({b.optional(b.literal("b")), b.call(0)}), b.literal("a")});
  };
  EXPECT_NE(refusal(left).find("left recursion"), std::string::npos);
  EXPECT_NE(refusal([](GrammarBuilder& b) {
              return b.sequence({b.literal("a"), b.call(0)});
            }).find("fulfils"),
            std::string::npos);
}

}  // namespace
}  // namespace wp
