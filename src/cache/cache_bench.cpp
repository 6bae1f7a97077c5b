// What the cache costs the engine thread: a lookup, a whole warm turn (acquire, capture, publish, end) and an eviction,
// by prompt length. Limits: a lookup well under 1 ms per 10,000 tokens, beside tens of milliseconds of prefill.
#include <benchmark/benchmark.h>

#include "core/assert.h"
#include "testing/bench.h"
#include "testing/cache_machine.h"

namespace wp::testing {
namespace {

Tokens random_tokens(int64_t count, Rng& rng) {
  Tokens tokens;
  for (; count > 0; --count) tokens.push_back(static_cast<TokenId>(rng.between(0, 200'000)));
  return tokens;
}

int64_t prompt_tokens(const benchmark::State& run) { return smoke() ? 1000 : run.range(0); }

CacheLimits limits_for(int64_t tokens_count, int32_t anchors) {
  return {
      .pages = static_cast<int32_t>(pages_for(tokens_count) * (anchors + 4)), .anchors = anchors, .nodes_max = 1 << 18};
}

// Whether a T anchor below the prompt's end went into the tree.
bool publish_tail(PrefixCache& cache, Lease& lease, const Tokens& tokens) {
  const int64_t position = (static_cast<int64_t>(tokens.size()) - 1) / kPageTokens * kPageTokens;
  lease.extend(static_cast<int64_t>(tokens.size()));
  const auto anchor = cache.reserve_anchor(lease, position, CaptureClass::tail);
  return anchor && cache.publish(lease, tokens, position, *anchor);
}

void prompt_published(PrefixCache& cache, const Tokens& tokens) {
  auto lease = cache.acquire({.tokens = tokens, .continues = true}, static_cast<int64_t>(tokens.size()));
  WP_ASSERT(lease && publish_tail(cache, *lease, tokens));
}

void find_whole_prompt(benchmark::State& run) {
  Rng rng(1);
  ManualClock clock;
  const Tokens tokens = random_tokens(prompt_tokens(run), rng);
  PrefixCache cache(limits_for(prompt_tokens(run), 8), clock);
  prompt_published(cache, tokens);
  int64_t restored = 0;
  for (auto _ : run) restored += cache.find({.tokens = tokens}).anchor_position;
  WP_ASSERT(restored > 0);
  run.SetItemsProcessed(run.iterations() * prompt_tokens(run));
}

// A conversation grows by 300 tokens, again and again.
void warm_turn(benchmark::State& run) {
  Rng rng(1);
  ManualClock clock;
  PrefixCache cache(limits_for(prompt_tokens(run) * 4, 8), clock);
  const Tokens start = random_tokens(prompt_tokens(run), rng);
  Tokens tokens = start;
  prompt_published(cache, tokens);
  for (auto _ : run) {
    if (tokens.size() > start.size() + 30'000) tokens = start;
    const Tokens more = random_tokens(300, rng);
    tokens.insert(tokens.end(), more.begin(), more.end());
    auto lease = cache.acquire({.tokens = tokens, .continues = true}, static_cast<int64_t>(tokens.size()) + 1000);
    WP_ASSERT(lease);
    publish_tail(cache, *lease, tokens);
  }
}

// Each publication of a new prompt evicts one of many equals: the value of every anchor is worked out.
void publish_evicting(benchmark::State& run) {
  Rng rng(1);
  ManualClock clock;
  const int32_t anchors = static_cast<int32_t>(smoke() ? 4 : run.range(1));
  CacheLimits limits = limits_for(prompt_tokens(run), anchors);
  limits.ghosts_max = 64;
  PrefixCache cache(limits, clock);
  std::vector<Tokens> prompts;
  for (int32_t i = 0; i < anchors + 2; ++i) prompts.push_back(random_tokens(prompt_tokens(run), rng));
  // A newcomer worth less than all that is there is refused: that is work too.
  const auto publish = [&](const Tokens& prompt) {
    clock.advance_ns(60'000'000'000);
    auto lease = cache.acquire({.tokens = prompt, .continues = true}, static_cast<int64_t>(prompt.size()));
    WP_ASSERT(lease);
    publish_tail(cache, *lease, prompt);
  };
  for (const Tokens& prompt : prompts) publish(prompt);
  size_t next = 0;
  for (auto _ : run) {
    Tokens& prompt = prompts[next++ % prompts.size()];
    prompt.front() = static_cast<TokenId>(next % (1u << 30));  // New from its first token on.
    publish(prompt);
  }
  run.counters["evictions"] = static_cast<double>(cache.stats().evictions_for(static_cast<EvictionReason>(3)));
}

BENCHMARK(find_whole_prompt)->Arg(1000)->Arg(10'000)->Arg(100'000)->Arg(200'000)->Unit(benchmark::kMicrosecond);
BENCHMARK(warm_turn)->Arg(1000)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMicrosecond);
BENCHMARK(publish_evicting)
    ->Args({1000, 12})
    ->Args({10'000, 12})
    ->Args({100'000, 12})
    ->Args({10'000, 256})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace wp::testing
