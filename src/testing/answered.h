// A whole answer of an engine, and models to ask: what tests of restores share. Test programs only.
#pragma once

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "testing/seeds.h"

namespace wp::testing {

struct Answered {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  RequestStats stats;
  bool operator==(const Answered& other) const { return tokens == other.tokens && logprobs == other.logprobs; }
};

// Waits for the end. With these captures; the stop tokens end nothing.
Answered ask(Engine& engine, const std::vector<TokenId>& tokens, int64_t max_tokens,
             std::vector<CapturePoint> captures);
std::vector<TokenId> random_prompt(int64_t count, Seed seed, int64_t vocabulary);

// `test` with the fake model, which must see no wrong row; with the bundled one.
void with_fake_model(const std::function<void(const Model&, Device&)>& test);
void with_mini_model(const std::function<void(const Model&, Device&)>& test);

}  // namespace wp::testing
