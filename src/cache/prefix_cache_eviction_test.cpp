// Who goes first and who must not go: spec/prefix_cache.md 9, 10 and 13, rule by rule.
#include <gtest/gtest.h>

#include "core/cat.h"
#include "testing/cache_fixture.h"

namespace wp::testing {
namespace {

int64_t evicted(PrefixCache& cache, EvictionReason reason) { return cache.stats().evictions_for(reason); }

// A conversation's turns: each prompt extends the last.
std::vector<TokenId> turn(int conversation, int turns) {
  auto tokens = prompt(1000, conversation);
  for (int i = 1; i < turns; ++i) tokens = join(std::move(tokens), prompt(300, 100 * conversation + i));
  return tokens;
}
int64_t tail_of(const std::vector<TokenId>& tokens) { return (static_cast<int64_t>(tokens.size()) - 1) / 64 * 64; }

TEST_F(PrefixCacheTest, SupersededTailGoesFirst) {
  make({.pages = 512, .anchors = 3});
  for (int turns = 1; turns <= 2; ++turns) run(turn(1, turns), tail_of(turn(1, turns)), "conv-1");
  run(turn(2, 1), tail_of(turn(2, 1)), "conv-2");
  run(turn(3, 1), tail_of(turn(3, 1)), "conv-3");  // No anchor is free.
  EXPECT_EQ(evicted(cache(), EvictionReason::superseded), 1);
  EXPECT_EQ(find(turn(1, 1)).anchor_position, 0);
  EXPECT_EQ(find(turn(1, 2)).anchor_position, tail_of(turn(1, 2)));
  EXPECT_EQ(find(turn(2, 1)).anchor_position, tail_of(turn(2, 1)));
}

TEST_F(PrefixCacheTest, UnlabelledTailSupersedesTheOneItExtends) {
  make({.pages = 512, .anchors = 2});
  for (int turns = 1; turns <= 4; ++turns) {
    const auto tokens = turn(1, turns);
    EXPECT_EQ(run(tokens, tail_of(tokens)).anchor_position, turns == 1 ? 0 : tail_of(turn(1, turns - 1)));
  }
  EXPECT_EQ(evicted(cache(), EvictionReason::superseded), 2);
}

TEST_F(PrefixCacheTest, ConversationThatBranchesOffLeavesTheParentsTail) {
  make({.pages = 512, .anchors = 2});
  const auto parent = turn(1, 1), child = join(parent, prompt(300, 900));
  run(parent, tail_of(parent), "parent");
  run(child, tail_of(child), "child");
  EXPECT_EQ(find(parent).anchor_position, tail_of(parent));
  run(turn(2, 1), tail_of(turn(2, 1)), "other");
  EXPECT_EQ(evicted(cache(), EvictionReason::superseded), 0);
  EXPECT_EQ(evicted(cache(), EvictionReason::value), 1);
}

TEST_F(PrefixCacheTest, EditedHistoryDemotesTheTailItLeft) {
  make({.pages = 512, .anchors = 3});
  const auto first = turn(1, 1), second = turn(1, 2), edited = join(first, prompt(400, 901));
  run(first, tail_of(first), "conv-1");
  run(second, tail_of(second), "conv-1");
  run(edited, tail_of(edited), "conv-1");
  run(turn(2, 1), tail_of(turn(2, 1)), "conv-2");
  run(turn(3, 1), tail_of(turn(3, 1)), "conv-3");
  EXPECT_EQ(evicted(cache(), EvictionReason::superseded), 2);
  EXPECT_EQ(find(edited).anchor_position, tail_of(edited));
}

TEST_F(PrefixCacheTest, SameLabelOnAnUnrelatedPromptDemotesNothing) {
  make({.pages = 512, .anchors = 2});
  const auto tokens = turn(1, 1);
  run(tokens, tail_of(tokens), "key");
  run(turn(2, 1), tail_of(turn(2, 1)), "key");  // Say, a title for the conversation under the same key.
  run(turn(3, 1), tail_of(turn(3, 1)), "other");
  EXPECT_EQ(evicted(cache(), EvictionReason::superseded), 0);
}

TEST_F(PrefixCacheTest, TailInUseIsNotEvictedBeforeItsSuccessorIsPublished) {
  make({.pages = 512, .anchors = 1});
  const auto first = turn(1, 1), second = turn(1, 2);
  run(first, tail_of(first), "conv-1");
  auto lease = acquire(second, "conv-1");
  ASSERT_EQ(lease->match().anchor_position, tail_of(first));
  EXPECT_FALSE(cache().reserve_anchor(*lease, tail_of(second), CaptureClass::tail));  // It would have to be that one.
  EXPECT_EQ(cache().stats().captures_refused(), 1);
  lease.reset();
  EXPECT_EQ(find(second).anchor_position, tail_of(first));
}

TEST_F(PrefixCacheTest, RestoredAnchorIsFreeToGoOnceAPassHasReadIt) {
  make({.pages = 512, .anchors = 2});
  const auto first = turn(1, 1), second = turn(1, 2);
  run(first, tail_of(first), "conv-1");
  auto lease = acquire(second, "conv-1");
  lease->extend(static_cast<int64_t>(second.size()));
  EXPECT_TRUE(capture(*lease, second, tail_of(second)));
  auto other = acquire(turn(2, 1), "conv-2");
  EXPECT_TRUE(cache().reserve_anchor(*other, tail_of(turn(2, 1)), CaptureClass::tail));
  cache().check();
  EXPECT_EQ(find(second).anchor_position, tail_of(second));
  EXPECT_EQ(lease->pages().size(), static_cast<size_t>(pages_for(static_cast<int64_t>(second.size()))));
}

TEST_F(PrefixCacheTest, SideCallsDoNotPushConversationsOut) {
  make({.pages = 2048, .anchors = 6});
  for (int conversation = 1; conversation <= 3; ++conversation) {
    run(turn(conversation, 1), tail_of(turn(conversation, 1)), "conv-" + std::to_string(conversation));
  }
  for (int call = 0; call < 40; ++call) run(prompt(700, 500 + call), 640);
  EXPECT_GT(evicted(cache(), EvictionReason::probation), 30);
  for (int conversation = 1; conversation <= 3; ++conversation)
    EXPECT_EQ(find(turn(conversation, 1)).anchor_position, tail_of(turn(conversation, 1)));
}

TEST_F(PrefixCacheTest, ReturningEndsProbation) {
  make({.pages = 2048, .anchors = 3});
  const auto tokens = prompt(700, 1);
  run(tokens, 640);
  run(tokens, 640);  // Restores it: it has come back.
  for (int call = 0; call < 10; ++call) run(prompt(700, 500 + call), 640);
  EXPECT_EQ(find(tokens).anchor_position, 640);
}

TEST_F(PrefixCacheTest, GhostProvesAReturningConversation) {
  make({.pages = 2048, .anchors = 3});
  const auto tokens = prompt(700, 1);
  run(tokens, 640);
  for (int call = 0; call < 10; ++call) run(prompt(700, 500 + call), 640);
  ASSERT_EQ(find(tokens).reason, MissReason::evicted);
  run(tokens, 640);  // Walks through its ghost: protected at once.
  EXPECT_EQ(cache().stats().ghost_hits(), 1);
  for (int call = 0; call < 10; ++call) run(prompt(700, 600 + call), 640);
  EXPECT_EQ(find(tokens).anchor_position, 640);
}

TEST_F(PrefixCacheTest, GhostsAreBoundedAndTheLeastRecentlySeenGoesFirst) {
  make({.pages = 2048, .anchors = 1, .ghosts_max = 2});
  run(prompt(400, 1), 384);
  run(prompt(400, 2), 384);
  run(prompt(400, 3), 384);  // Ghosts of 1 and 2.
  EXPECT_EQ(cache().stats().ghosts, 2);
  run(prompt(400, 1), 0);    // 1 is seen again.
  run(prompt(400, 4), 384);  // A ghost of 3; that of 2 goes.
  EXPECT_EQ(cache().stats().ghosts, 2);
  EXPECT_EQ(find(prompt(400, 1)).reason, MissReason::evicted);
  EXPECT_EQ(find(prompt(400, 2)).reason, MissReason::cold);
  EXPECT_EQ(find(prompt(400, 3)).reason, MissReason::evicted);
}

TEST_F(PrefixCacheTest, GhostsGiveWayToNodes) {
  make({.pages = 16, .anchors = 1, .nodes_max = 16});
  for (int salt = 0; salt < 20; ++salt) {
    run(prompt(640, salt), 576);
    EXPECT_EQ(find(prompt(640, salt)).anchor_position, 576);
    EXPECT_LE(cache().stats().nodes, 16);
  }
}

TEST_F(PrefixCacheTest, LadderGoesBeforeWhatIsProtected) {
  make({.pages = 512, .anchors = 2});
  const auto tokens = turn(1, 1);
  auto lease = acquire(tokens, "conv-1");
  lease->extend(1000);
  EXPECT_TRUE(capture(*lease, tokens, 512, CaptureClass::ladder));
  EXPECT_TRUE(capture(*lease, tokens, 960));
  lease.reset();
  run(turn(2, 1), 960, "conv-2");
  EXPECT_EQ(evicted(cache(), EvictionReason::ladder), 1);
  EXPECT_EQ(find(tokens).anchor_position, 960);
}

TEST_F(PrefixCacheTest, LowestValueGoes) {
  make({.pages = 2048, .anchors = 3});
  run(prompt(10'000, 1), 9'984, "long");
  run(prompt(400, 2), 384, "short");  // 384 tokens against 9,984.
  run(prompt(10'000, 3), 9'984, "long-too");
  run(prompt(10'000, 4), 9'984, "newcomer");
  EXPECT_EQ(find(prompt(400, 2)).anchor_position, 0);
  EXPECT_EQ(find(prompt(10'000, 1)).anchor_position, 9'984);
}

TEST_F(PrefixCacheTest, UnusedForLongIsWorthLess) {
  make({.pages = 2048, .anchors = 2});
  run(prompt(4000, 1), 3'968, "old");
  clock_.advance_ns(4 * 3600 * kSecond_ns);
  run(prompt(4000, 2), 3'968, "fresh");
  run(prompt(4000, 3), 3'968, "newcomer");
  EXPECT_EQ(find(prompt(4000, 1)).anchor_position, 0);
  EXPECT_EQ(find(prompt(4000, 2)).anchor_position, 3'968);
}

TEST_F(PrefixCacheTest, HoldsProtectUntilTheyEnd) {
  make({.pages = 2048, .anchors = 2, .hold_ns = 60 * kSecond_ns});
  run(prompt(400, 1), 384, "held");
  cache().hold("held");
  EXPECT_EQ(cache().stats().anchors_held, 1);
  for (int salt = 2; salt < 6; ++salt) run(prompt(4000, salt), 3'968, "other-" + std::to_string(salt));
  EXPECT_EQ(find(prompt(400, 1)).anchor_position, 384);  // Of less value than any other.
  clock_.advance_ns(61 * kSecond_ns);
  run(prompt(4000, 7), 3'968, "other-7");
  EXPECT_EQ(find(prompt(400, 1)).anchor_position, 0);
}

TEST_F(PrefixCacheTest, HoldsAreBoundedAndDropped) {
  make({.pages = 2048, .anchors = 4});
  for (int salt = 1; salt <= 3; ++salt) run(prompt(400, salt), 384, "conv-" + std::to_string(salt));
  for (int salt = 1; salt <= 3; ++salt) cache().hold("conv-" + std::to_string(salt));
  EXPECT_EQ(cache().stats().anchors_held, 2);
  EXPECT_EQ(cache().stats().hold_denials, 1);
  cache().hold("conv-1");  // Held already: renewed.
  EXPECT_EQ(cache().stats().hold_denials, 1);
  cache().drop_hold("conv-1");
  cache().hold("conv-3");
  EXPECT_EQ(cache().stats().anchors_held, 2);
  cache().hold("unknown");
  cache().check();
}

TEST_F(PrefixCacheTest, NewTailTakesTheHoldOffTheOldOne) {
  make({.pages = 2048, .anchors = 4});
  run(turn(1, 1), tail_of(turn(1, 1)), "conv-1");
  cache().hold("conv-1");
  run(turn(1, 2), tail_of(turn(1, 2)), "conv-1");
  EXPECT_EQ(cache().stats().anchors_held, 0);
}

TEST_F(PrefixCacheTest, PromisesGoBeforeHolds) {
  make({.pages = 10, .anchors = 2});
  run(prompt(400, 1), 384, "held");
  cache().hold("held");
  auto lease = acquire(prompt(640, 2), "", 640);
  ASSERT_TRUE(lease);
  lease->extend(640);
  cache().check();
  EXPECT_EQ(cache().stats().pages_cached, 0);
}

TEST_F(PrefixCacheTest, ConversationsAreBounded) {
  make({.pages = 2048, .anchors = 8, .conversations_max = 2});
  run(prompt(400, 1), 384, "one");
  run(prompt(400, 2), 384, "two");
  run(prompt(400, 3), 384, std::string(10'000, 'x'));
  auto edited = prompt(400, 1);
  edited[300] = 123456;
  EXPECT_EQ(find(edited, "one").nearest, "");  // Forgotten.
  EXPECT_EQ(find(edited, "one").anchor_position, 0);
  EXPECT_EQ(find(prompt(400, 1), "one").anchor_position, 384);  // Policy only, never a condition.
  edited = prompt(400, 3);
  edited[300] = 123456;
  EXPECT_EQ(find(edited).nearest.size(), 256u);
}

TEST_F(PrefixCacheTest, BranchIsCapturedOnEvidenceAndServesTheThird) {
  const auto system = prompt(512);
  run(join(system, prompt(300, 1)), 768);
  auto second = acquire(join(system, prompt(300, 2)));
  ASSERT_EQ(second->match().branch_position, 512);
  second->extend(812);
  EXPECT_TRUE(capture(*second, join(system, prompt(300, 2)), 512, CaptureClass::branch));
  second.reset();
  const Match third = find(join(system, prompt(300, 3)));
  EXPECT_EQ(third.anchor_position, 512);
  EXPECT_EQ(third.anchor_class, CaptureClass::branch);
  EXPECT_EQ(third.reason, MissReason::none);
  EXPECT_EQ(third.branch_position, 0);
}

TEST_F(PrefixCacheTest, NothingEvictableIsRefusedQuietly) {
  make({.pages = 512, .anchors = 1});
  auto one = acquire(prompt(1000, 1)), other = acquire(prompt(1000, 2));
  EXPECT_TRUE(cache().reserve_anchor(*one, 960, CaptureClass::tail));
  EXPECT_FALSE(cache().reserve_anchor(*other, 960, CaptureClass::tail));
  EXPECT_EQ(cache().stats().captures_refused(), 1);
}

// Both are unknown in kind and alike in size; one is at work, the other has been away for many of its usual gaps.
TEST_F(PrefixCacheTest, WhoHasNotReturnedForManyGapsGoesBeforeWhoIsAtWork) {
  make({.pages = 2048, .anchors = 4});
  run(turn(1, 1), tail_of(turn(1, 1)), "ended");
  run(turn(2, 1), tail_of(turn(2, 1)), "at work");
  for (int turns = 2; turns <= 12; ++turns) {
    clock_.advance_ns(kSecond_ns);
    if (turns <= 3) run(turn(1, turns), tail_of(turn(1, turns)), "ended");
    run(turn(2, turns), tail_of(turn(2, turns)), "at work");
  }
  // New ones, until nothing of the one that has ended is left.
  for (int salt = 3; find(turn(1, 3)).anchor_position > 0 && salt < 12; ++salt)
    run(turn(salt, 1), tail_of(turn(salt, 1)), cat("new-", salt));
  EXPECT_EQ(find(turn(1, 3)).anchor_position, 0);
  EXPECT_EQ(find(turn(2, 12)).anchor_position, tail_of(turn(2, 12)));
}

// A system block that one conversation has used is worth less than what another is at; once a second one has, more.
TEST_F(PrefixCacheTest, SystemBlockProvesThatItIsShared) {
  for (const bool shared : {false, true}) {
    SCOPED_TRACE(shared);
    make({.pages = 2048, .anchors = 3});
    const auto system = prompt(640, 50);
    const auto one = join(system, prompt(2000, 51)), two = join(system, prompt(2000, 52));
    auto lease = acquire(one, "one");
    EXPECT_TRUE(capture(*lease, one, 640, CaptureClass::system));
    EXPECT_TRUE(capture(*lease, one, tail_of(one)));
    lease.reset();
    const Match second = shared ? run(two, 0, "two") : run(join(one, prompt(100, 53)), 0, "one");
    EXPECT_EQ(second.anchor_position, shared ? 640 : tail_of(one));
    run(turn(3, 1), tail_of(turn(3, 1)), "three");
    run(turn(4, 1), tail_of(turn(4, 1)), "four");
    EXPECT_EQ(find(system).match > 0 && find(two).anchor_position == 640, shared);
  }
}

// Pages are short, anchors are not: an ended conversation goes as a whole before others lose a page each.
TEST_F(PrefixCacheTest, ShortOfPagesTheLeastLikelyGoesWhateverItsAnchorsWeigh) {
  make({.pages = 100, .anchors = 8});
  run(turn(1, 1), tail_of(turn(1, 1)), "ended");
  for (int turns = 1; turns <= 8; ++turns) {
    clock_.advance_ns(kSecond_ns);
    run(turn(2, turns), tail_of(turn(2, turns)), "at work");
  }
  clock_.advance_ns(60 * kSecond_ns);
  run(turn(2, 9), tail_of(turn(2, 9)), "at work");
  auto lease = acquire(prompt(36 * 64, 9), "large");
  ASSERT_TRUE(lease);
  lease->extend(36 * 64);
  EXPECT_EQ(find(turn(1, 1)).anchor_position, 0);
  EXPECT_EQ(find(turn(2, 9)).anchor_position, tail_of(turn(2, 9)));
}

// An anchor that saves one page does not push out those that save a whole prompt each; one that saves more does.
TEST_F(PrefixCacheTest, NothingIsGivenUpForAWorseOne) {
  make({.pages = 2048, .anchors = 3});
  for (int salt = 1; salt <= 2; ++salt) run(turn(salt, 1), tail_of(turn(salt, 1)), cat("conv-", salt));
  const auto tokens = turn(3, 1);
  auto lease = acquire(tokens, "conv-3");
  ASSERT_TRUE(cache().reserve_anchor(*lease, tail_of(tokens) - 64, CaptureClass::system));
  EXPECT_FALSE(cache().reserve_anchor(*lease, tail_of(tokens), CaptureClass::tail));
  EXPECT_EQ(cache().stats().captures_refused(), 1);
  const auto large = prompt(4000, 9);
  auto larger = acquire(large, "conv-4");
  EXPECT_TRUE(cache().reserve_anchor(*larger, tail_of(large), CaptureClass::tail));
  EXPECT_EQ(evicted(cache(), EvictionReason::value), 1);
}

TEST_F(PrefixCacheTest, PinsHoldForTheirTimeAndAreRenewed) {
  make({.pages = 2048, .anchors = 4});
  const auto system = prompt(640, 50), tokens = join(system, prompt(300, 51));
  const auto ask = [&] {
    auto lease = acquire(tokens);
    cache().pin(*lease, 640, 60 * kSecond_ns);
    EXPECT_NE(capture(*lease, tokens, 640, CaptureClass::system), lease->match().anchor_position == 640);
  };
  const auto push = [&](int from) {
    for (int salt = from; salt < from + 8; ++salt) run(prompt(3000, salt), 2944, cat("conv-", salt));
  };
  ask();
  EXPECT_EQ(cache().stats().anchors_held, 1);
  push(100);
  EXPECT_EQ(find(tokens).anchor_position, 640);
  clock_.advance_ns(50 * kSecond_ns);
  ask();  // From the anchor: the pin begins anew.
  clock_.advance_ns(50 * kSecond_ns);
  push(200);
  EXPECT_EQ(find(tokens).anchor_position, 640);
  clock_.advance_ns(50 * kSecond_ns);
  EXPECT_EQ(cache().stats().anchors_held, 1);  // As of the last change; over by now.
  push(300);
  EXPECT_EQ(find(tokens).anchor_position, 0);
}

}  // namespace
}  // namespace wp::testing
