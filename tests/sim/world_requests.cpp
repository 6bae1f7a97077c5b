// What clients ask for: invented from what was asked before.
#include <algorithm>

#include "world.h"

namespace wp::sim {

// A new conversation on one of the stems, or an old prompt: extended, cut and continued, or as it was.
std::vector<TokenId> World::invent_prompt(GenerateRequest& request) {
  const int64_t kind = past_.empty() ? 0 : rng_.between(0, 99);
  if (kind >= 30) {
    const GenerateRequest& old = past_[static_cast<size_t>(rng_.between(0, static_cast<int64_t>(past_.size()) - 1))];
    std::vector<TokenId> prompt = old.tokens;
    request.cache = old.cache;
    if (rng_.percent(5)) {
      request.cache.domain = static_cast<uint64_t>(rng_.between(0, 2));
      mark("other domain");
    }
    if (kind >= 85) {
      mark("repeated");
      return prompt;
    }
    if (kind < 70) {
      const auto answer = testing::fake_answer(*model_, old).tokens;
      prompt.insert(prompt.end(), answer.begin(), answer.end());
      request.cache.continues = true;
      mark("extended");
    } else {
      prompt.resize(static_cast<size_t>(rng_.between(1, static_cast<int64_t>(prompt.size()))));
      mark("branched");
    }
    const auto more = tokens(rng_.between(1, rng_.percent(70) ? 130 : 400));
    prompt.insert(prompt.end(), more.begin(), more.end());
    if (static_cast<int64_t>(prompt.size()) < kContext) return prompt;
  }
  request.cache = {};
  const int64_t domain = rng_.between(0, 99);
  request.cache.domain = domain < 60 ? 0 : domain < 94 ? static_cast<uint64_t>(1 + domain % 2) : next_salt_++;
  request.cache.conversation = rng_.percent(70) ? cat("conversation-", rng_.between(0, 5)) : "";
  std::vector<TokenId> prompt = rng_.percent(80) ? stems_[static_cast<size_t>(rng_.between(0, 2))] : tokens(1);
  const auto more = tokens(rng_.between(0, rng_.percent(60) ? 100 : 600));
  prompt.insert(prompt.end(), more.begin(), more.end());
  return prompt;
}

void World::invent_captures(GenerateRequest& request, int64_t stem) {
  const auto n = static_cast<int64_t>(request.tokens.size());
  auto& points = request.cache.captures;
  points.clear();
  if (rng_.percent(80)) points.push_back({stem / 64 * 64, CaptureClass::system});
  if (rng_.percent(90)) points.push_back({std::max<int64_t>(0, n - rng_.between(1, 40)) / 64 * 64, CaptureClass::tail});
  for (int i = 0; i < 3; ++i)
    if (rng_.percent(40)) points.push_back({rng_.between(0, n) / 64 * 64, CaptureClass::user});
  if (rng_.percent(5)) points.push_back({rng_.between(-100, n + 100), CaptureClass::user});  // Off the grid, mostly.
  if (rng_.percent(10)) points.push_back({rng_.between(0, n) / 64 * 64, CaptureClass::ladder});  // Of longer contexts.
  for (CapturePoint& point : points)
    if (rng_.percent(10)) point.pin_ns = rng_.between(1'000'000, 60'000'000'000);
}

void World::invent_sampling(GenerateRequest& request) {
  SamplingParams& sampling = request.sampling;
  if (rng_.percent(50)) {
    sampling.temperature = static_cast<float>(rng_.between(1, 20)) / 10;
    sampling.seed = rng_.next();
    if (rng_.percent(50)) sampling.top_k = static_cast<int32_t>(rng_.between(1, 80));
    if (rng_.percent(50)) sampling.top_p = static_cast<float>(rng_.real());
    if (rng_.percent(30)) sampling.min_p = static_cast<float>(rng_.real()) / 4;
    mark("sampled");
  }
  if (rng_.percent(30)) sampling.repetition_penalty = 1.0f + static_cast<float>(rng_.real());
  if (rng_.percent(30)) sampling.presence_penalty = static_cast<float>(rng_.real());
  if (rng_.percent(30)) sampling.frequency_penalty = static_cast<float>(rng_.real());
  if (rng_.percent(20)) sampling.logit_bias = {{token(), 5.0f}, {token(), -5.0f}};
  if (rng_.percent(30)) {
    sampling.top_logprobs = static_cast<int32_t>(rng_.between(0, 5));
    mark("log-probs");
  }
}

GenerateRequest World::invent() {
  GenerateRequest request;
  request.tokens = invent_prompt(request);
  const auto n = static_cast<int64_t>(request.tokens.size());
  if (rng_.percent(1)) request.tokens.back() = kPoisonToken;
  request.id = cat("r-", ++arrivals_);
  request.max_tokens = std::max<int64_t>(1, std::min(rng_.between(1, rng_.percent(80) ? 30 : 200), kContext - n));
  if (rng_.percent(2)) request.max_tokens = kContext + 1 - n;  // One too many.
  if (rng_.percent(80)) request.stop_tokens = {kEndToken};
  request.min_tokens = rng_.percent(20) ? rng_.between(0, 20) : 0;
  request.vocabulary_limit = rng_.percent(20) ? 40 : 0;
  request.progress = rng_.percent(30);
  request.cache.enabled = !rng_.percent(5);
  if (rng_.percent(3)) {
    request.prompt_logprobs = true;
    mark("prompt log-probs");
  }
  invent_captures(request, static_cast<int64_t>(stems_[0].size()));
  invent_sampling(request);
  return request;
}

}  // namespace wp::sim
