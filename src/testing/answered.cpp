#include "testing/answered.h"

#include <gtest/gtest.h>

#include "core/rng.h"
#include "testing/fake_model.h"

namespace wp::testing {

Answered ask(Engine& engine, const std::vector<TokenId>& tokens, int64_t max_tokens,
             std::vector<CapturePoint> captures) {
  GenerateRequest request{.id = "r", .tokens = tokens, .max_tokens = max_tokens, .ignore_stop_tokens = true};
  request.sampling.top_logprobs = 0;
  request.cache.captures = std::move(captures);
  TokenStream stream = engine.submit(std::move(request)).value();
  Answered out;
  while (auto event = stream.next()) {
    if (event->kind == TokenEvent::Kind::token) {
      out.tokens.push_back(event->token);
      out.logprobs.push_back(event->logprob);
    }
    if (event->kind == TokenEvent::Kind::finished) out.stats = event->stats;
  }
  return out;
}

std::vector<TokenId> random_prompt(int64_t count, Seed seed, int64_t vocabulary) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(rng.between(0, vocabulary - 1)));
  return tokens;
}

void with_fake_model(const std::function<void(const Model&, Device&)>& test) {
  const FakeModel model{FakeModelOptions{}};
  const auto device = Device::make(DeviceKind::ref, 1).value();
  test(model, *device);
  EXPECT_EQ(model.violation(), "");
}

void with_mini_model(const std::function<void(const Model&, Device&)>& test) {
  auto device = Device::make(DeviceKind::cpu, 2);
  if (!device.ok()) device = Device::make(DeviceKind::ref, 2);  // No AVX2 here.
  const auto model = load_model(source_directory() + "/models/flash-next-mini", **device);
  ASSERT_TRUE(model.ok()) << model.error().message;
  test(**model, **device);
}

}  // namespace wp::testing
