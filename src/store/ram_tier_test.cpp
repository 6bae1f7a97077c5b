// The tier in host memory: what it gives back, what it refuses to, and what goes first.
#include "store/ram_tier.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "core/rng.h"
#include "testing/fake_clock.h"
#include "testing/seeds.h"

namespace wp {

// Bits of what is held, headers and bytes, in the order of their blocks.
struct RamTierPeer {
  static std::vector<int32_t> first_blocks(const RamTier& tier) {
    std::vector<char> inner(tier.headers_.size(), 0);
    for (const int32_t next : tier.next_)
      if (next >= 0) inner[static_cast<size_t>(next)] = 1;
    for (const int32_t block : tier.free_) inner[static_cast<size_t>(block)] = 1;
    std::vector<int32_t> first;
    for (size_t i = 0; i < inner.size(); ++i)
      if (!inner[i]) first.push_back(static_cast<int32_t>(i));
    return first;
  }
  static int64_t record_bytes(const RamTier& tier, int32_t first) {
    return static_cast<int64_t>(sizeof(RecordHeader)) + tier.bytes_of(tier.headers_[static_cast<size_t>(first)].kind);
  }
  static void flip(RamTier& tier, int32_t first, int64_t at, int bit) {
    const auto mask = static_cast<std::byte>(1 << bit);
    const auto header_bytes = static_cast<int64_t>(sizeof(RecordHeader));
    if (at < header_bytes) {
      reinterpret_cast<std::byte*>(&tier.headers_[static_cast<size_t>(first)])[at] ^= mask;
      return;
    }
    int32_t block = first;
    for (at -= header_bytes; at >= tier.block_bytes_; at -= tier.block_bytes_)
      block = tier.next_[static_cast<size_t>(block)];
    tier.arena_.data()[block * tier.block_bytes_ + at] ^= mask;
  }
  static int64_t blocks_free(const RamTier& tier) { return std::ssize(tier.free_); }
  static int64_t blocks(const RamTier& tier) { return std::ssize(tier.next_); }
};

namespace {

constexpr int64_t kPageBytes = 4096, kAnchorBytes = 9000;  // One block, three blocks.
constexpr uint64_t kDomain = 7;

using Tokens = std::vector<TokenId>;

Tokens prompt(Seed seed, int64_t pages) {
  Rng rng(seed);
  Tokens tokens;
  for (int64_t i = 0; i < pages * kPageTokens; ++i) tokens.push_back(static_cast<TokenId>(rng.between(0, 1000)));
  return tokens;
}

// What a part holds, as a function of its tokens alone.
uint64_t content_of(std::span<const TokenId> tokens, PartKind kind, int64_t end) {
  return node_key(static_cast<uint64_t>(kind), static_cast<uint64_t>(end), tokens.first(static_cast<size_t>(end)));
}

class RamTierTest : public ::testing::Test {
 protected:
  void open(int64_t blocks) {
    tier_ = RamTier::make(*device_, {blocks * kPageBytes, kPageBytes, kAnchorBytes}, clock_).value();
  }
  void put(const Tokens& tokens, CaptureClass capture_class = CaptureClass::tail, uint64_t domain = kDomain) {
    tier_->put_path(tokens, domain, capture_class,
                    [&](PartKind kind, int64_t end, std::byte* bytes, int64_t offset, int64_t count) {
                      Rng rng(content_of(tokens, kind, end) + static_cast<uint64_t>(offset));
                      for (int64_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(rng.between(0, 255));
                    });
  }
  // The position restored; 0: none. What is restored is right.
  int64_t restored(Tokens tokens, int64_t above = 0, uint64_t domain = kDomain) {
    tokens.push_back(0);
    const int64_t end = tier_->deepest(tokens, domain, above, std::ssize(tokens)).end;
    if (end == 0) return 0;
    int64_t moved = 0;
    const bool good = tier_->get_path(tokens, domain, above, end,
                                      [&](PartKind kind, int64_t at, std::byte* bytes, int64_t offset, int64_t count) {
                                        Rng rng(content_of(tokens, kind, at) + static_cast<uint64_t>(offset));
                                        for (int64_t i = 0; i < count; ++i)
                                          ASSERT_EQ(bytes[i], static_cast<std::byte>(rng.between(0, 255)));
                                        moved += count;
                                      });
    if (!good) return 0;
    EXPECT_EQ(moved, (end - above) / kPageTokens * kPageBytes + kAnchorBytes);
    tier_->use(std::span(tokens).first(static_cast<size_t>(end)), domain);
    return end;
  }

  std::unique_ptr<Device> device_ = Device::make(DeviceKind::ref, 1).value();
  testing::FakeClock clock_;
  std::unique_ptr<RamTier> tier_;
};

TEST_F(RamTierTest, GivesBackWhatWasPut) {
  open(100);
  const Tokens tokens = prompt(1, 5), longer = prompt(1, 9);
  put(tokens);
  put(tokens);  // It is there already.
  EXPECT_EQ(tier_->stats().stored, 6);
  EXPECT_EQ(tier_->stats().bytes, 5 * kPageBytes + kAnchorBytes);
  EXPECT_EQ(restored(tokens), 320);
  EXPECT_EQ(restored(longer), 320);
  EXPECT_EQ(restored(longer, 128), 320);
  EXPECT_EQ(restored(longer, 320), 0);
  EXPECT_EQ(restored(tokens, 0, kDomain + 1), 0);  // Another domain's.
  EXPECT_EQ(restored(prompt(2, 5)), 0);
  put(longer);
  EXPECT_EQ(tier_->stats().stored, 6 + 5);  // The pages that it adds, and its anchor.
  EXPECT_EQ(restored(longer), 576);
  EXPECT_EQ(restored(tokens), 320);
}

TEST_F(RamTierTest, RefusesASizeInWhichNothingFits) {
  const auto tier = RamTier::make(*device_, {3 * kPageBytes, kPageBytes, kAnchorBytes}, clock_);
  ASSERT_FALSE(tier.ok());
  EXPECT_NE(tier.error().message.find("--cache-ram: expected room for an anchor and a page"), std::string::npos);
}

// Any bit of any record, its header included: a miss, counted, and good again once it is computed again.
TEST_F(RamTierTest, NoFlippedBitIsRestored) {
  open(100);
  const Tokens tokens = prompt(1, 2);
  put(tokens);
  int64_t flips = 0;
  for (size_t part = 0; part < 3; ++part) {
    const int64_t bytes = RamTierPeer::record_bytes(*tier_, RamTierPeer::first_blocks(*tier_)[part]);
    for (int64_t at = 0; at < bytes; at += at < 400 ? 1 : 61) {
      RamTierPeer::flip(*tier_, RamTierPeer::first_blocks(*tier_)[part], at, static_cast<int>(at % 8));
      ASSERT_EQ(restored(tokens), 0) << "part " << part << " byte " << at;
      ASSERT_EQ(tier_->stats().corrupt, ++flips);
      put(tokens);
      ASSERT_EQ(restored(tokens), 128);
    }
  }
  EXPECT_GT(flips, 1000);
}

// One beginning that every conversation uses, kept first, and then a stream of prompts that never return. Oldest first
// would drop just that beginning.
TEST_F(RamTierTest, WhatIsUsedOutlivesWhatIsNewer) {
  open(64);
  const Tokens system = prompt(1, 8);
  put(system, CaptureClass::system);
  for (Seed seed = 2; seed < 60; ++seed) {
    clock_.advance(60'000'000'000);
    if (seed % 5 == 0) {
      EXPECT_EQ(restored(system), 512) << seed;
    }
    put(prompt(seed, 4));
  }
  EXPECT_GT(tier_->stats().evicted, 100);
  EXPECT_EQ(restored(system), 512);
  EXPECT_EQ(restored(prompt(59, 4)), 256);
}

// Turns of a conversation: each leaves a tail that the next one makes useless. Those go before the older tails of other
// conversations, which are the ones that will be asked for.
TEST_F(RamTierTest, SupersededTailsGoFirst) {
  open(60);
  for (Seed seed = 2; seed <= 5; ++seed) put(prompt(seed, 4));  // 28 blocks.
  const Tokens conversation = prompt(1, 20);
  for (int64_t pages = 2; pages <= 20; ++pages) {
    clock_.advance(1'000'000'000);
    put(Tokens(conversation.begin(), conversation.begin() + pages * kPageTokens));
  }
  EXPECT_GT(tier_->stats().evicted, 0);
  for (Seed seed = 2; seed <= 5; ++seed) EXPECT_EQ(restored(prompt(seed, 4)), 256) << seed;
  EXPECT_EQ(restored(conversation), 20 * kPageTokens);
}

// A path too long for all of it is refused, and nothing is dropped for it.
TEST_F(RamTierTest, WhatCannotFitDisplacesNothing) {
  open(20);
  put(prompt(1, 4));
  put(prompt(2, 18));
  EXPECT_EQ(tier_->stats().refused, 1);
  EXPECT_EQ(restored(prompt(1, 4)), 256);
}

// Against a set of the paths put: what is restored was put, bit for bit; a path just put is there; blocks are
// conserved.
TEST_F(RamTierTest, AgreesWithASetOfPaths) {
  for (const Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    const int64_t blocks = rng.between(30, 120);
    open(blocks);
    std::set<std::pair<int64_t, int64_t>> all;  // Trunk and pages, with a branch in the middle for odd trunks.
    const auto path = [](int64_t trunk, int64_t pages) {
      Tokens tokens = prompt(static_cast<Seed>(trunk / 2 + 1), pages);
      if (trunk % 2 == 1 && pages > 3) {
        const Tokens other = prompt(static_cast<Seed>(trunk + 100), pages - 3);
        std::copy(other.begin(), other.end(), tokens.begin() + 3 * kPageTokens);
      }
      return tokens;
    };
    for (int step = 0; step < 400; ++step) {
      clock_.advance(rng.between(0, 60) * 1'000'000'000);
      const int64_t trunk = rng.between(0, 9), pages = rng.between(1, 14);
      const Tokens tokens = path(trunk, pages);
      if (rng.percent(50)) {
        const int64_t refused = tier_->stats().refused;
        put(tokens, static_cast<CaptureClass>(rng.between(0, 5)));
        all.emplace(trunk, pages);
        if (pages <= 3) all.emplace(trunk ^ 1, pages);
        if (tier_->stats().refused == refused) {
          EXPECT_EQ(restored(tokens), pages * kPageTokens);
        }
      } else if (const int64_t got = restored(tokens); got > 0) {
        EXPECT_TRUE(all.contains({trunk, got / kPageTokens}) ||
                    (got <= 3 * kPageTokens && all.contains({trunk ^ 1, got / kPageTokens})));
      }
      const RamTierStats stats = tier_->stats();
      const int64_t used = blocks - RamTierPeer::blocks_free(*tier_);
      EXPECT_LE(stats.bytes, used * kPageBytes);
      EXPECT_GE(stats.bytes, used * kPageBytes * 2 / 3);
    }
    EXPECT_EQ(tier_->stats().corrupt, 0);
    EXPECT_GT(tier_->stats().evicted, 0);
    EXPECT_GT(tier_->stats().loads, 0);
  }
}

}  // namespace
}  // namespace wp
