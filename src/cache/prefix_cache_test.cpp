// One rule of spec/prefix_cache.md at a time. Histories at random are in prefix_cache_property_test.cpp.
#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "testing/cache_peer.h"

namespace wp {
namespace {

using testing::ManualClock;

constexpr int64_t kSecond_ns = 1'000'000'000;

// Tokens that differ by `salt`, so that two prompts share exactly what they were given in common.
std::vector<TokenId> prompt(int64_t tokens_count, int salt = 0) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < tokens_count; ++i)
    tokens.push_back(static_cast<TokenId>(splitmix64(static_cast<uint64_t>(i * 1000 + salt)) % 50000));
  return tokens;
}

std::vector<TokenId> join(std::vector<TokenId> head, const std::vector<TokenId>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  void make(CacheLimits limits) {
    if (limits.nodes_max == CacheLimits{}.nodes_max) limits.nodes_max = 4096;
    cache_ = std::make_unique<PrefixCache>(limits, clock_, 7);
  }
  PrefixCache& cache() {
    if (!cache_) make({.pages = 512, .anchors = 8});
    return *cache_;
  }
  std::optional<Lease> acquire(const std::vector<TokenId>& tokens, const std::string& conversation = "",
                               int64_t tokens_max = 0, uint64_t domain = 0) {
    auto lease = cache().acquire({.tokens = tokens, .domain = domain, .conversation = conversation},
                                 std::max<int64_t>(tokens_max, static_cast<int64_t>(tokens.size())));
    cache().check();
    return lease;
  }
  Match find(const std::vector<TokenId>& tokens, const std::string& conversation = "", bool continues = false,
             uint64_t domain = 0) {
    return cache().find({.tokens = tokens, .domain = domain, .conversation = conversation, .continues = continues});
  }
  // A capture as the engine makes it. Whether this anchor went into the tree.
  bool capture(Lease& lease, const std::vector<TokenId>& tokens, int64_t position,
               CaptureClass capture_class = CaptureClass::tail) {
    const auto anchor = cache().reserve_anchor(lease, position, capture_class);
    cache().check();
    if (!anchor) return false;
    lease.extend(position);
    const bool published = cache().publish(lease, tokens, position, *anchor);
    cache().check();
    return published;
  }
  // A whole request: acquired, captured at `position`, ended.
  Match run(const std::vector<TokenId>& tokens, int64_t position, const std::string& conversation = "",
            CaptureClass capture_class = CaptureClass::tail, uint64_t domain = 0) {
    auto lease = acquire(tokens, conversation, 0, domain);
    EXPECT_TRUE(lease);
    if (!lease) return {};
    Match match = lease->match();
    lease->extend(static_cast<int64_t>(tokens.size()));
    if (position > 0) capture(*lease, tokens, position, capture_class);
    lease.reset();
    cache().check();
    return match;
  }

  ManualClock clock_;
  std::unique_ptr<PrefixCache> cache_;
};

TEST_F(PrefixCacheTest, SecondRequestRestoresWhatTheFirstPublished) {
  const auto tokens = prompt(1000);
  EXPECT_EQ(run(tokens, 960).reason, MissReason::cold);
  auto lease = acquire(tokens);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->match().anchor_position, 960);
  EXPECT_EQ(lease->match().match, 960);
  EXPECT_EQ(lease->match().reason, MissReason::none);
  EXPECT_EQ(lease->pages().size(), 15u);
  EXPECT_EQ(lease->shared_tokens(), 960);
  const std::vector<PageId> shared(lease->pages().begin(), lease->pages().end());
  lease->extend(1000);
  EXPECT_EQ(lease->pages().size(), 16u);
  EXPECT_TRUE(std::equal(shared.begin(), shared.end(), lease->pages().begin()));
}

TEST_F(PrefixCacheTest, AnchorLiesBelowThePromptEnd) {
  const auto tokens = prompt(1024);
  run(tokens, 960);
  auto longer = join(tokens, prompt(64, 5));
  run(longer, 1024);
  EXPECT_EQ(find(tokens).match, 1024);
  EXPECT_EQ(find(tokens).anchor_position, 960);  // Not 1024 == n: the last token's logits need a row.
  EXPECT_EQ(find(longer).anchor_position, 1024);
}

TEST_F(PrefixCacheTest, PageIdsOfARunningSequenceNeverChange) {
  const auto tokens = prompt(640);
  auto first = acquire(tokens), second = acquire(tokens);  // Both cold, both compute the same pages.
  ASSERT_TRUE(first && second);
  first->extend(640);
  second->extend(640);
  const std::vector<PageId> before(second->pages().begin(), second->pages().end());
  EXPECT_TRUE(capture(*first, tokens, 576));
  const auto deeper = cache().reserve_anchor(*second, 512, CaptureClass::system);
  ASSERT_TRUE(deeper);
  EXPECT_TRUE(cache().publish(*second, tokens, 512, *deeper));
  cache().check();
  EXPECT_TRUE(std::equal(before.begin(), before.end(), second->pages().begin(), second->pages().end()));
  first.reset();
  cache().check();
  EXPECT_TRUE(std::equal(before.begin(), before.end(), second->pages().begin(), second->pages().end()));
  second.reset();
  cache().check();
  EXPECT_EQ(cache().stats().pages_free + cache().stats().pages_cached, 512);
}

TEST_F(PrefixCacheTest, ExtendNeverFailsWithinThePromise) {
  make({.pages = 20, .anchors = 4});
  run(prompt(640, 1), 576);
  run(prompt(640, 2), 576);
  auto lease = acquire(prompt(640, 3), "", 20 * 64);
  ASSERT_TRUE(lease);
  EXPECT_FALSE(acquire(prompt(64, 4)));  // Everything is promised.
  lease->extend(20 * 64);
  cache().check();
  EXPECT_EQ(lease->pages().size(), 20u);
  EXPECT_EQ(cache().stats().pages_cached, 0);
  lease.reset();
  EXPECT_TRUE(acquire(prompt(64, 4)));
  EXPECT_TRUE(cache().could_fit(20 * 64));
  EXPECT_FALSE(cache().could_fit(20 * 64 + 1));
}

}  // namespace
}  // namespace wp
