#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "testing/seeds.h"
#include "text/grammar/grammar_builder.h"

namespace wp {
namespace {

GenerateRequest request_with(const SamplingParams& sampling) {
  GenerateRequest request;
  request.tokens = {0};
  request.max_tokens = 100;
  request.sampling = sampling;
  return request;
}

std::vector<float> random_row(Rng& rng, int64_t vocabulary, double spread) {
  std::vector<float> row;
  for (int64_t i = 0; i < vocabulary; ++i) row.push_back(static_cast<float>(rng.normal() * spread));
  // Equal logits, so that the order of ids matters.
  for (int64_t i = 0; i < vocabulary / 8; ++i)
    row[static_cast<size_t>(rng.between(0, vocabulary - 1))] = row[static_cast<size_t>(rng.between(0, vocabulary - 1))];
  return row;
}

// The rules of sampler.h once more, by sorting everything and in double throughout.
TokenId reference(const GenerateRequest& request, const std::vector<TokenId>& generated, const std::vector<float>& row,
                  int64_t position, const std::set<TokenId>* allowed = nullptr) {
  const SamplingParams& s = request.sampling;
  std::map<TokenId, int> counts;
  for (TokenId id : generated) ++counts[id];
  struct Entry {
    float logit;
    TokenId id;
    double p = 0;
  };
  std::vector<Entry> all;
  for (size_t i = 0; i < row.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (request.vocabulary_limit > 0 && id >= request.vocabulary_limit) continue;
    if (allowed && allowed->count(id) == 0) continue;
    const bool stops =
        !request.ignore_stop_tokens && std::count(request.stop_tokens.begin(), request.stop_tokens.end(), id) > 0;
    if (stops && static_cast<int64_t>(generated.size()) < request.min_tokens) continue;
    float logit = row[i];
    for (const auto& [biased, bias] : s.logit_bias)
      if (biased == id) logit += bias;
    const bool in_prompt = std::count(request.tokens.begin(), request.tokens.end(), id) > 0;
    if (s.repetition_penalty != 1.0f && (in_prompt || counts.count(id)))
      logit = logit > 0 ? logit / s.repetition_penalty : logit * s.repetition_penalty;
    if (counts.count(id)) logit -= s.frequency_penalty * static_cast<float>(counts[id]) + s.presence_penalty;
    all.push_back({logit, id});
  }
  std::stable_sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.logit > b.logit; });
  if (s.temperature == 0) return all[0].id;
  const auto renormalise = [&] {
    double sum = 0;
    for (const Entry& entry : all) sum += entry.p;
    for (Entry& entry : all) entry.p /= sum;
  };
  for (Entry& entry : all) entry.p = std::exp((static_cast<double>(entry.logit) - all[0].logit) / s.temperature);
  if (s.top_k > 0 && static_cast<size_t>(s.top_k) < all.size()) all.resize(static_cast<size_t>(s.top_k));
  renormalise();
  size_t kept = 0;
  for (double sum = 0; kept < all.size() && (kept == 0 || sum < s.top_p); ++kept) sum += all[kept].p;
  if (s.top_p < 1.0f) all.resize(kept);
  const double best = all[0].p;
  std::erase_if(all, [&](const Entry& entry) { return entry.p < s.min_p * best; });
  renormalise();
  double left = uniform(s.seed, static_cast<uint64_t>(position));
  for (const Entry& entry : all) {
    left -= entry.p;
    if (left < 0) return entry.id;
  }
  return all.back().id;
}

TEST(Sampler, AgreesWithAStraightforwardReference) {
  for (Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    testing::Marks marks({"greedy", "top_k", "top_p", "min_p", "penalties", "bias", "limit", "masked stop", "flat"});
    for (int round = 0; round < 400; ++round) {
      const int64_t vocabulary = rng.between(2, 700);
      SamplingParams s;
      if (rng.percent(85)) s.temperature = static_cast<float>(rng.between(1, 30)) / 10;
      else marks.reach("greedy");
      s.seed = rng.next();
      if (rng.percent(40)) s.top_k = static_cast<int32_t>(rng.between(1, vocabulary + 5)), marks.reach("top_k");
      if (rng.percent(40)) s.top_p = static_cast<float>(rng.real()), marks.reach("top_p");
      if (rng.percent(40)) s.min_p = static_cast<float>(rng.real()) / 3, marks.reach("min_p");
      if (rng.percent(40)) {
        s.repetition_penalty = 0.5f + static_cast<float>(rng.real());
        s.presence_penalty = static_cast<float>(rng.normal());
        s.frequency_penalty = static_cast<float>(rng.normal());
        marks.reach("penalties");
      }
      if (rng.percent(30)) s.logit_bias = {{1, 3.0f}, {0, -2.0f}}, marks.reach("bias");
      GenerateRequest request = request_with(s);
      request.tokens = {0, static_cast<TokenId>(vocabulary - 1), 0};
      if (rng.percent(30))
        request.vocabulary_limit = static_cast<TokenId>(rng.between(1, vocabulary)), marks.reach("limit");
      if (rng.percent(30) && request.vocabulary_limit != 1)
        request.stop_tokens = {1}, request.min_tokens = 4, marks.reach("masked stop");
      const double spread = rng.percent(20) ? 0.01 : 4.0;
      if (spread < 1) marks.reach("flat");
      Sampler sampler(request);
      SamplerScratch scratch(vocabulary);
      std::vector<TokenId> generated;
      for (int64_t i = 0; i < 8; ++i) {
        const std::vector<float> row = random_row(rng, vocabulary, spread);
        const auto sampled = sampler.sample(row, 3 + i, scratch);
        ASSERT_TRUE(sampled.has_value());
        ASSERT_EQ(sampled->token, reference(request, generated, row, 3 + i)) << "round " << round << ", token " << i;
        generated.push_back(sampled->token);
      }
    }
    EXPECT_TRUE(marks.all_reached()) << marks.missing();
  }
}

std::shared_ptr<const TokenGrammar> token_grammar(const std::vector<std::string>& texts, const auto& write) {
  GrammarBuilder builder;
  const auto root = builder.declare("root");
  builder.define(root, write(builder));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return std::make_shared<TokenGrammar>(*builder.compile(root), std::make_shared<TokenTrie>(views));
}

// One character of "x", then words of "ab", "ca" and "b", then perhaps "!"; by hand, so that no automaton is asked.
bool begins_a_text(std::string text, bool* whole) {
  *whole = false;
  if (text.empty()) return true;
  if (text[0] != 'x') return false;
  text.erase(0, 1);
  bool words = false;
  for (; !text.empty(); words = true) {
    if (text == "a" || text == "c") return true;
    if (text[0] == 'b') text.erase(0, 1);
    else if (text.substr(0, 2) == "ab" || text.substr(0, 2) == "ca") text.erase(0, 2);
    else break;
  }
  *whole = words && (text.empty() || text == "!");
  return text.empty() || *whole;
}

TEST(Sampler, UnderAGrammarTheReferenceAmongWhatItAllows) {
  for (Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    testing::Marks marks({"greedy", "stopped", "whole", "stuck", "penalties", "limit", "min_tokens", "row has more"});
    for (int round = 0; round < 300; ++round) {
      std::vector<std::string> texts = {"", "x", "a", "b", "c", "ab", "!", "b!", "cab", "bb", "xab", "a!", "cc"};
      const bool spelled_stop = rng.percent(20);
      if (rng.percent(20)) texts[2] = texts[3] = texts[5] = texts[11] = "c";  // Nothing follows a "c".
      for (int64_t i = rng.between(0, 200); i > 0; --i) texts.push_back(texts[1 + static_cast<size_t>(i) % 12]);
      const auto grammar = token_grammar(texts, [](GrammarBuilder& b) {
        const auto word = b.choice({b.literal("ab"), b.literal("ca"), b.literal("b")});
        return b.sequence({b.literal("x"), b.repeat(word, 1), b.optional(b.literal("!"))});
      });
      int64_t vocabulary = static_cast<int64_t>(texts.size());
      if (rng.percent(30)) vocabulary += 70, marks.reach("row has more");
      SamplingParams s;
      if (rng.percent(70)) s.temperature = static_cast<float>(rng.between(1, 30)) / 10;
      else marks.reach("greedy");
      s.seed = rng.next();
      if (rng.percent(30)) s.top_p = static_cast<float>(rng.real());
      if (rng.percent(30)) s.repetition_penalty = 1.3f, s.frequency_penalty = 0.5f, marks.reach("penalties");
      GenerateRequest request = request_with(s);
      request.grammar = grammar;
      request.stop_tokens = {0};
      if (spelled_stop) request.stop_tokens.push_back(3);
      request.ignore_stop_tokens = rng.percent(30);
      if (rng.percent(30)) request.vocabulary_limit = 14, marks.reach("limit");
      if (rng.percent(30)) request.min_tokens = 4, marks.reach("min_tokens");
      Sampler sampler(request);
      SamplerScratch scratch(vocabulary);
      std::vector<TokenId> generated;
      std::string text;
      for (int64_t i = 0; i < 14; ++i) {
        bool whole = false, after = false;
        begins_a_text(text, &whole);
        std::set<TokenId> allowed;
        for (TokenId id = 0; id < static_cast<TokenId>(texts.size()); ++id) {
          if (request.vocabulary_limit > 0 && id >= request.vocabulary_limit) continue;
          const auto& stop = request.stop_tokens;
          const bool stops = !request.ignore_stop_tokens && std::count(stop.begin(), stop.end(), id) > 0;
          const bool fits =
              !texts[static_cast<size_t>(id)].empty() && begins_a_text(text + texts[static_cast<size_t>(id)], &after);
          if (stops ? whole && i >= request.min_tokens : fits) allowed.insert(id);
        }
        const std::vector<float> row = random_row(rng, vocabulary, 3.0);
        const auto sampled = sampler.sample(row, 3 + i, scratch);
        ASSERT_TRUE(sampled.has_value());
        if (allowed.empty()) {
          ASSERT_EQ(sampled->end, whole ? Sampled::End::whole : Sampled::End::stuck) << text;
          marks.reach(whole ? "whole" : "stuck");
          break;
        }
        ASSERT_EQ(sampled->end, Sampled::End::none);
        ASSERT_EQ(sampled->token, reference(request, generated, row, 3 + i, &allowed)) << round << ": " << text;
        generated.push_back(sampled->token);
        const auto& stop = request.stop_tokens;
        if (!request.ignore_stop_tokens && std::count(stop.begin(), stop.end(), sampled->token) > 0) {
          marks.reach("stopped");
          break;
        }
        text += texts[static_cast<size_t>(sampled->token)];
      }
    }
    EXPECT_TRUE(marks.all_reached()) << marks.missing();
  }
}

TEST(Sampler, UnderAGrammarLogprobsAreOfTheWholeRow) {
  GenerateRequest request = request_with({});
  request.sampling.top_logprobs = 3;
  const std::vector<float> row = {1.0f, 3.0f, 2.0f, 0.5f};
  SamplerScratch scratch(4);
  const auto free = Sampler(request).sample(row, 1, scratch);
  request.grammar = token_grammar({"a", "b", "c", "d"}, [](GrammarBuilder& b) { return b.literal("d"); });
  const auto held = Sampler(request).sample(row, 1, scratch);
  EXPECT_EQ(free->token, 1);
  EXPECT_EQ(held->token, 3);
  EXPECT_NEAR(held->logprob, free->logprob - 2.5f, 1e-6);
  ASSERT_EQ(held->top.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(held->top[i].token, free->top[i].token);
    EXPECT_EQ(held->top[i].logprob, free->top[i].logprob);
  }
}

// A mask may hold a token with which the answer is deeper than any reader goes: no crash, and no word of numbers.
TEST(Sampler, UnderAGrammarTooDeepIsStuck) {
  GenerateRequest request = request_with({});
  request.grammar = token_grammar({"(((", "x"}, [](GrammarBuilder& b) {
    return b.choice({b.sequence({b.literal("("), b.call(0), b.literal(")")}), b.literal("x")});
  });
  Sampler sampler(request);
  SamplerScratch scratch(2);
  int64_t tokens = 0;
  for (;; ++tokens) {
    ASSERT_LT(tokens, 400);
    const auto sampled = sampler.sample(std::vector<float>{2.0f, 1.0f}, tokens + 1, scratch);
    ASSERT_TRUE(sampled.has_value());
    if (sampled->end == Sampled::End::none) continue;
    EXPECT_EQ(sampled->end, Sampled::End::stuck);
    break;
  }
  EXPECT_GT(tokens, 300);
}

TEST(Sampler, GreedyTakesTheLowerIdOfEquals) {
  SamplerScratch scratch(5);
  Sampler sampler(request_with({}));
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 7, 7, 3, 7}, 1, scratch)->token, 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{0, 0, 0, 0, 0}, 1, scratch)->token, 0);
}

TEST(Sampler, ADrawDependsOnSeedAndPositionAlone) {
  Rng rng(3);
  const std::vector<float> row = random_row(rng, 1000, 1.0);
  const std::vector<float> other = random_row(rng, 1000, 1.0);
  SamplerScratch scratch(1000);
  SamplingParams s{.temperature = 1.0f};
  s.seed = 11;
  Sampler first(request_with(s)), second(request_with(s));
  for (int i = 0; i < 5; ++i) (void)second.sample(other, 100 + i, scratch);  // History and neighbours do not matter.
  EXPECT_EQ(first.sample(row, 7, scratch)->token, second.sample(row, 7, scratch)->token);
  std::map<TokenId, int> seen;
  for (int position = 0; position < 50; ++position) ++seen[first.sample(row, position, scratch)->token];
  EXPECT_GT(seen.size(), 20u);
}

TEST(Sampler, FrequenciesAreTheProbabilities) {
  SamplerScratch scratch(4);
  const std::vector<float> row = {0.0f, std::log(2.0f), std::log(4.0f), std::log(3.0f)};
  SamplingParams s{.temperature = 1.0f};
  s.seed = 5;
  Sampler sampler(request_with(s));
  std::vector<int> counts(4);
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sampler.sample(row, i, scratch)->token)];
  const double expected[] = {0.1, 0.2, 0.4, 0.3};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(static_cast<double>(counts[i]) / kDraws, expected[i], 0.012);
}

TEST(Sampler, LogprobsAreOfTheRowAsItCame) {
  Rng rng(9);
  const std::vector<float> row = random_row(rng, 300, 3.0);
  SamplerScratch scratch(300);
  SamplingParams s{.temperature = 2.0f, .top_k = 1, .logit_bias = {{17, 100.0f}}};
  s.top_logprobs = 4;
  GenerateRequest request = request_with(s);
  Sampler sampler(request);
  const auto sampled = sampler.sample(row, 1, scratch);
  EXPECT_EQ(sampled->token, 17);
  long double sum = 0;
  for (float x : row) sum += std::exp(static_cast<long double>(x));
  EXPECT_NEAR(sampled->logprob, row[17] - static_cast<double>(std::log(sum)), 1e-6);
  std::vector<TokenId> order(300);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)]; });
  ASSERT_EQ(sampled->top.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sampled->top[i].token, order[i]);
    EXPECT_NEAR(sampled->top[i].logprob, row[static_cast<size_t>(order[i])] - static_cast<double>(std::log(sum)), 1e-6);
  }
}

TEST(Sampler, RefusesWhatIsNotFinite) {
  SamplerScratch scratch(40);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()})
    for (const size_t at : {size_t{0}, size_t{17}, size_t{39}}) {
      std::vector<float> row(40, 1.0f);
      row[at] = bad;
      EXPECT_FALSE(Sampler(request_with({})).sample(row, 1, scratch).has_value());
      row[at] = std::numeric_limits<float>::max();
      EXPECT_TRUE(Sampler(request_with({.temperature = 0.001f})).sample(row, 1, scratch).has_value());
    }
}

TEST(Sampler, EverythingMaskedGivesTheFirstId) {
  SamplerScratch scratch(2);
  GenerateRequest request = request_with({.temperature = 1.0f});
  request.stop_tokens = {0, 1};
  request.min_tokens = 1;
  EXPECT_EQ(Sampler(request).sample(std::vector<float>{1, 2}, 1, scratch)->token, 0);
}

}  // namespace
}  // namespace wp
