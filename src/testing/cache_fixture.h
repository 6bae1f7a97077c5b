// One cache, requests made of whole sentences, everything checked after every step. For the tests of single rules.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "testing/cache_peer.h"

namespace wp::testing {

constexpr int64_t kSecond_ns = 1'000'000'000;

// Tokens that differ by `salt`, so that two prompts share exactly what they were given in common.
inline std::vector<TokenId> prompt(int64_t tokens_count, int salt = 0) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < tokens_count; ++i)
    tokens.push_back(static_cast<TokenId>(splitmix64(static_cast<uint64_t>(i * 1000 + salt)) % 50000));
  return tokens;
}

inline std::vector<TokenId> join(std::vector<TokenId> head, const std::vector<TokenId>& tail) {
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

}  // namespace wp::testing
