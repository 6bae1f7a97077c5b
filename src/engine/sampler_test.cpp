#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "testing/seeds.h"

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
                  int64_t position) {
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
    const bool stops = std::count(request.stop_tokens.begin(), request.stop_tokens.end(), id) > 0;
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
