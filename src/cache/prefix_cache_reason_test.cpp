// Why a prefix was not restored: the closed list of spec/prefix_cache.md 15.2, row by row and in its order.
#include <gtest/gtest.h>

#include "testing/cache_fixture.h"

namespace wp::testing {
namespace {

constexpr auto kTail = CaptureClass::tail;

TEST_F(PrefixCacheTest, ReasonBypass) {
  const auto tokens = prompt(1000);
  run(tokens, 960);
  auto lease = cache().acquire({.tokens = tokens, .bypass = "prompt_logprobs"}, 1000);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->match().reason, MissReason::bypass);
  EXPECT_EQ(lease->match().detail, "bypass=prompt_logprobs");
  EXPECT_EQ(lease->match().match, 0);
  EXPECT_EQ(lease->shared_tokens(), 0);
  EXPECT_EQ(cache().stats().misses[static_cast<size_t>(MissReason::bypass)], 1);
}

TEST_F(PrefixCacheTest, ReasonNoneForRepeatAppendAndNewConversation) {
  const auto tokens = prompt(1000);
  run(tokens, 960, "conv-1");
  EXPECT_EQ(find(tokens, "conv-1", true).reason, MissReason::none);                        // Repeat.
  EXPECT_EQ(find(join(tokens, prompt(500, 2)), "conv-1", true).reason, MissReason::none);  // Append.
  const auto system = prompt(512, 5);
  auto lease = acquire(join(system, prompt(500, 6)));
  lease->extend(1012);
  capture(*lease, join(system, prompt(500, 6)), 512, CaptureClass::system);
  capture(*lease, join(system, prompt(500, 6)), 960);
  lease.reset();
  const Match match = find(join(system, prompt(500, 7)));  // Parts from the known path, but continues nothing.
  EXPECT_EQ(match.reason, MissReason::none);
  EXPECT_EQ(match.diverged_at, 512);
  EXPECT_EQ(find(join(system, prompt(500, 7)), "", true).reason, MissReason::diverged);
}

TEST_F(PrefixCacheTest, ReasonTooShort) {
  EXPECT_EQ(find(prompt(64)).reason, MissReason::too_short);
  EXPECT_EQ(find({}).reason, MissReason::too_short);
  EXPECT_EQ(find(prompt(255)).reason, MissReason::too_short);
  EXPECT_EQ(find(prompt(255)).detail, "n=255");
  EXPECT_EQ(find(prompt(256)).reason, MissReason::cold);
}

TEST_F(PrefixCacheTest, ReasonSaltForTheFirstRequestOfADomain) {
  const auto tokens = prompt(1000);
  EXPECT_EQ(find(tokens, "", false, 7).reason, MissReason::salt);
  run(prompt(1000, 1), 0, "", kTail, 7);
  EXPECT_EQ(find(tokens, "", false, 7).reason, MissReason::cold);
  EXPECT_EQ(find(tokens).reason, MissReason::cold);  // Domain 0 is that of requests without a salt.
}

TEST_F(PrefixCacheTest, ReasonIncompleteWhileACaptureIsUnderWay) {
  const auto tokens = prompt(1000);
  auto lease = acquire(tokens);
  const auto anchor = cache().reserve_anchor(*lease, 960, kTail);
  ASSERT_TRUE(anchor);
  EXPECT_EQ(find(tokens).reason, MissReason::incomplete);
  EXPECT_EQ(find(tokens).detail, "pending=960");
  EXPECT_EQ(find(prompt(960)).reason, MissReason::cold);  // At n it could not serve.
  EXPECT_EQ(find(tokens, "", false, 3).reason, MissReason::salt);
  cache().abandon_anchor(*anchor);
  EXPECT_EQ(find(tokens).reason, MissReason::cold);
}

TEST_F(PrefixCacheTest, ReasonEvictedWhereAGhostLiesDeeper) {
  make({.pages = 512, .anchors = 1});
  const auto tokens = prompt(1000);
  run(tokens, 960);
  clock_.advance_ns(5 * kSecond_ns);
  run(prompt(1000, 1), 960);
  clock_.advance_ns(7 * kSecond_ns);
  const Match match = find(tokens);
  EXPECT_EQ(match.match, 960);
  EXPECT_EQ(match.anchor_position, 0);
  EXPECT_EQ(match.reason, MissReason::evicted);
  EXPECT_EQ(match.detail, "age_s=7");
}

TEST_F(PrefixCacheTest, ReasonNoAnchorWhereNoneWasCaptured) {
  const auto system = prompt(512);
  run(join(system, prompt(512, 1)), 960);
  const Match match = find(join(system, prompt(512, 2)));
  EXPECT_EQ(match.reason, MissReason::no_anchor);
  EXPECT_EQ(match.detail, "match=512");
  EXPECT_EQ(match.branch_position, 512);
}

TEST_F(PrefixCacheTest, ReasonDivergedNamesTokenAndConversation) {
  const auto tokens = prompt(1000);
  run(tokens, 960, "conv-7");
  auto edited = tokens;
  edited[71] = 123456;
  const Match match = find(edited, "conv-7");
  EXPECT_EQ(match.match, 64);
  EXPECT_EQ(match.reason, MissReason::diverged);
  EXPECT_EQ(match.detail, "at=71");
  EXPECT_EQ(match.diverged_at, 71);
  EXPECT_EQ(match.nearest, "conv-7");
  EXPECT_EQ(match.had, std::vector<TokenId>(tokens.begin() + 71 - 12, tokens.begin() + 71 + 12));
  EXPECT_EQ(find(edited).reason, MissReason::none);  // Continues nothing: another prompt that begins alike.
}

TEST_F(PrefixCacheTest, DivergenceShowsUpToTwelveTokensOnEitherSide) {
  const auto tokens = prompt(1000);
  run(tokens, 960, "conv-7");
  auto edited = tokens;
  edited[3] = 123456;
  EXPECT_EQ(find(edited, "conv-7").had, std::vector<TokenId>(tokens.begin(), tokens.begin() + 15));
  edited = tokens;
  edited[959] = 123456;
  EXPECT_EQ(find(edited, "conv-7").had, std::vector<TokenId>(tokens.begin() + 947, tokens.begin() + 960));
  edited = tokens;
  edited[126] = 123456;  // Twelve tokens reach into the next node.
  EXPECT_EQ(find(edited, "conv-7").had, std::vector<TokenId>(tokens.begin() + 114, tokens.begin() + 138));
}

TEST_F(PrefixCacheTest, DivergenceGoesFirstWhereMoreWasLostAboveTheMatch) {
  make({.pages = 512, .anchors = 1});
  const auto tokens = prompt(2000);
  run(tokens, 1984, "conv-1");
  run(prompt(1000, 1), 960);  // Evicts it and leaves a ghost with its whole path.
  auto late = tokens, early = tokens;
  late[1700] = early[300] = 123456;
  EXPECT_EQ(find(late, "conv-1").reason, MissReason::no_anchor);  // 1664 lost below, 336 above.
  EXPECT_EQ(find(early, "conv-1").reason, MissReason::diverged);  // 256 below, 1744 above.
  EXPECT_EQ(find(tokens, "conv-1").reason, MissReason::evicted);
}

TEST_F(PrefixCacheTest, NothingOfAnotherDomainExplains) {
  const auto tokens = prompt(1000);
  run(tokens, 960, "conv-7", kTail, 1);
  run(prompt(1000, 5), 0, "", kTail, 2);
  auto edited = tokens;
  edited[71] = 123456;
  const Match match = find(edited, "conv-7", true, 2);
  EXPECT_EQ(match.reason, MissReason::cold);
  EXPECT_EQ(match.diverged_at, -1);
  EXPECT_TRUE(match.nearest.empty());
  EXPECT_TRUE(match.had.empty());
}

TEST_F(PrefixCacheTest, EveryReasonHasItsName) {
  const char* const names[] = {"bypass",    "none",       "too_short", "model_changed", "adapter_changed", "salt",
                               "tier_fail", "incomplete", "evicted",   "no_anchor",     "diverged",        "cold"};
  for (size_t reason = 0; reason < std::size(names); ++reason)
    EXPECT_STREQ(name(static_cast<MissReason>(reason)), names[reason]);
  EXPECT_EQ(letter(CaptureClass::system), 'S');
  EXPECT_EQ(letter(CaptureClass::ladder), 'L');
}

}  // namespace
}  // namespace wp::testing
