// Restore, leases and publication, one rule of spec/prefix_cache.md at a time. Reasons, eviction and whole histories
// have files of their own.
#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "testing/cache_fixture.h"

namespace wp::testing {
namespace {

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
  EXPECT_EQ(cache().stats().hit_tokens, 960);
  EXPECT_EQ(cache().stats().query_tokens, 2000);
  EXPECT_EQ(cache().stats().restores, 1);
  EXPECT_EQ(cache().stats().hit_tokens_by_class[static_cast<size_t>(CaptureClass::tail)], 960);
}

TEST_F(PrefixCacheTest, ExtendedPromptsRestoreAtTheBoundary) {
  const auto tokens = prompt(1000);
  run(tokens, 960);
  for (int64_t more = 1; more <= 130; ++more)
    EXPECT_EQ(find(join(tokens, prompt(more, 3))).anchor_position, 960) << more;
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

TEST_F(PrefixCacheTest, DeepestAnchorOnThePathWinsNotTheDeepestMatch) {
  const auto system = prompt(512), one = join(system, prompt(512, 1));
  auto lease = acquire(one);
  lease->extend(1024);
  EXPECT_TRUE(capture(*lease, one, 256, CaptureClass::system));
  EXPECT_TRUE(capture(*lease, one, 960));
  lease.reset();
  const Match match = find(join(system, prompt(300, 2)));
  EXPECT_EQ(match.match, 512);
  EXPECT_EQ(match.anchor_position, 256);
  EXPECT_EQ(match.anchor_class, CaptureClass::system);
  EXPECT_EQ(match.branch_position, 512);  // A second prompt took this branch.
}

TEST_F(PrefixCacheTest, FindChangesNothing) {
  const auto tokens = prompt(1000);
  run(tokens, 960);
  const CacheStats before = cache().stats();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(find(tokens).anchor_position, 960);
  const CacheStats after = cache().stats();
  EXPECT_EQ(after.lookups, before.lookups);
  EXPECT_EQ(after.pages_free, before.pages_free);
}

TEST_F(PrefixCacheTest, IdsDecideWhereHashesCollide) {
  cache();
  PrefixCachePeer::make_all_keys_collide(cache());
  for (int salt = 0; salt < 5; ++salt) run(prompt(400, salt), 384);
  for (int salt = 0; salt < 5; ++salt) EXPECT_EQ(find(prompt(400, salt)).anchor_position, 384);
  EXPECT_EQ(find(prompt(400, 9)).match, 0);
}

TEST_F(PrefixCacheTest, DomainsAreWorldsApart) {
  const auto tokens = prompt(1000);
  run(tokens, 960, "", CaptureClass::tail, 1);
  const Match match = find(tokens, "", true, 2);
  EXPECT_EQ(match.match, 0);
  EXPECT_EQ(match.anchor, kNoAnchor);
  EXPECT_EQ(match.reason, MissReason::salt);
  EXPECT_EQ(match.diverged_at, -1);
  EXPECT_TRUE(match.had.empty());
  EXPECT_EQ(find(tokens, "", false, 1).anchor_position, 960);
}

TEST_F(PrefixCacheTest, PageIdsOfARunningSequenceNeverChange) {
  const auto tokens = prompt(640);
  auto first = acquire(tokens), second = acquire(tokens);  // Both cold, both compute the same pages.
  ASSERT_TRUE(first && second);
  first->extend(640);
  second->extend(640);
  const std::vector<PageId> before(second->pages().begin(), second->pages().end());
  EXPECT_TRUE(capture(*first, tokens, 576));
  EXPECT_TRUE(capture(*second, tokens, 512, CaptureClass::system));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), second->pages().begin(), second->pages().end()));
  EXPECT_EQ(PrefixCachePeer::duplicates(cache()), 8);
  first.reset();
  cache().check();
  EXPECT_TRUE(std::equal(before.begin(), before.end(), second->pages().begin(), second->pages().end()));
  second.reset();
  cache().check();
  EXPECT_EQ(cache().stats().pages_free, 512 - 9);
}

TEST_F(PrefixCacheTest, UnreadPagesGiveWayToTheLeasesEqualOnes) {
  const auto system = prompt(512), one = join(system, prompt(512, 1)), other = join(system, prompt(512, 2));
  run(one, 960);
  auto lease = acquire(other);  // Matches 512 and restores nothing: it computes these pages again.
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->match().anchor_position, 0);
  lease->extend(1024);
  EXPECT_TRUE(capture(*lease, other, 512, CaptureClass::branch));
  EXPECT_EQ(PrefixCachePeer::duplicates(cache()), 0);
  EXPECT_EQ(cache().stats().pages_cached, 15);
  lease.reset();
  EXPECT_EQ(find(one).anchor_position, 960);
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

TEST_F(PrefixCacheTest, SharedPagesCountOnce) {
  make({.pages = 20, .anchors = 4});
  const auto tokens = prompt(1000);
  run(tokens, 960);
  auto one = acquire(tokens, "", 1024), other = acquire(tokens, "", 1024);  // 15 shared, one own page each.
  ASSERT_TRUE(one && other);
  EXPECT_TRUE(acquire(tokens, "", 1024 + 128));
  EXPECT_FALSE(acquire(tokens, "", 1024 + 192));
  EXPECT_EQ(one->pages().front(), other->pages().front());
}

TEST_F(PrefixCacheTest, PagesDeeperThanEveryAnchorGoHome) {
  const auto tokens = prompt(1000);
  auto lease = acquire(tokens, "", 2000);
  lease->extend(1500);
  EXPECT_TRUE(capture(*lease, tokens, 640, CaptureClass::user));
  EXPECT_EQ(cache().stats().pages_cached, 10);
  lease.reset();
  EXPECT_EQ(cache().stats().pages_cached, 10);
  EXPECT_EQ(cache().stats().pages_free, 502);
}

TEST_F(PrefixCacheTest, EndedLeaseTakesItsReservationsHome) {
  auto lease = acquire(prompt(1000));
  EXPECT_TRUE(cache().reserve_anchor(*lease, 960, CaptureClass::tail));
  EXPECT_TRUE(cache().reserve_anchor(*lease, 512, CaptureClass::system));
  EXPECT_EQ(cache().stats().anchors_pending, 2);
  lease.reset();
  EXPECT_EQ(cache().stats().anchors_pending, 0);
  EXPECT_EQ(cache().stats().anchors_free, 8);
}

TEST_F(PrefixCacheTest, AbandonedAnchorIsFreeAgainOnce) {
  auto lease = acquire(prompt(1000));
  const auto anchor = cache().reserve_anchor(*lease, 960, CaptureClass::tail);
  ASSERT_TRUE(anchor);
  cache().abandon_anchor(*anchor);
  cache().check();
  EXPECT_EQ(cache().stats().anchors_free, 8);
  EXPECT_DEATH(cache().abandon_anchor(*anchor), "pending");
  EXPECT_DEATH(cache().publish(*lease, prompt(1000), 960, *anchor), "pending");
}

TEST_F(PrefixCacheTest, PublicationChecksItsTokensAndItsPosition) {
  const auto tokens = prompt(1000);
  auto lease = acquire(tokens);
  lease->extend(1000);
  const auto anchor = cache().reserve_anchor(*lease, 960, CaptureClass::tail);
  ASSERT_TRUE(anchor);
  EXPECT_DEATH(cache().publish(*lease, tokens, 896, *anchor), "position");
  EXPECT_DEATH(cache().publish(*lease, prompt(1000, 1), 960, *anchor), "same_prefix");
  EXPECT_DEATH(cache().publish(*lease, std::span(tokens).first(900), 960, *anchor), "same_prefix");
  EXPECT_TRUE(cache().publish(*lease, tokens, 960, *anchor));
}

TEST_F(PrefixCacheTest, AdmissionIsARuleNotAnAssertion) {
  const auto tokens = prompt(1000);
  auto lease = acquire(tokens);
  for (const int64_t position : {int64_t{0}, int64_t{-64}, int64_t{100}, int64_t{1024}, int64_t{1'000'000}})
    EXPECT_FALSE(cache().reserve_anchor(*lease, position, CaptureClass::tail)) << position;
  EXPECT_FALSE(cache().reserve_anchor(*lease, 512, CaptureClass::branch));  // Nobody else took that branch.
  EXPECT_EQ(cache().stats().skipped(), 6);
  auto small = acquire(prompt(255, 2));
  EXPECT_FALSE(cache().reserve_anchor(*small, 192, CaptureClass::tail));
  auto enough = acquire(prompt(256, 3));
  EXPECT_FALSE(cache().reserve_anchor(*enough, 256, CaptureClass::tail));  // n itself.
  EXPECT_TRUE(cache().reserve_anchor(*enough, 192, CaptureClass::tail));
  auto bypassed = cache().acquire({.tokens = tokens, .bypass = "request"}, 1000);
  EXPECT_FALSE(cache().reserve_anchor(*bypassed, 512, CaptureClass::tail));
}

TEST_F(PrefixCacheTest, LadderTakesFreeAnchorsOnly) {
  make({.pages = 512, .anchors = 1});
  const auto tokens = prompt(1000);
  run(prompt(1000, 1), 960);
  auto lease = acquire(tokens);
  EXPECT_FALSE(cache().reserve_anchor(*lease, 512, CaptureClass::ladder));
  EXPECT_TRUE(cache().reserve_anchor(*lease, 512, CaptureClass::system));
}

TEST_F(PrefixCacheTest, OneAnchorPerNode) {
  const auto tokens = prompt(1000);
  auto one = acquire(tokens), other = acquire(tokens);
  const auto anchor = cache().reserve_anchor(*one, 960, CaptureClass::tail);
  ASSERT_TRUE(anchor);
  EXPECT_FALSE(cache().reserve_anchor(*other, 960, CaptureClass::system));  // Under way in another sequence.
  one->extend(1000);
  EXPECT_TRUE(cache().publish(*one, tokens, 960, *anchor));
  EXPECT_FALSE(cache().reserve_anchor(*other, 960, CaptureClass::system));  // Published.
  EXPECT_FALSE(cache().reserve_anchor(*one, 960, CaptureClass::user));
  EXPECT_EQ(cache().stats().deduped(), 3);
}

TEST_F(PrefixCacheTest, StateBelowTheRestoredOneWasNeverComputed) {
  const auto tokens = prompt(1000);
  run(tokens, 960);
  auto lease = acquire(tokens);
  EXPECT_FALSE(cache().reserve_anchor(*lease, 512, CaptureClass::system));
  EXPECT_EQ(cache().stats().skipped(), 1);
}

TEST_F(PrefixCacheTest, FlushForgetsWhatNobodyHolds) {
  const auto one = prompt(1000, 1), other = prompt(1000, 2);
  run(one, 960);
  run(other, 960);
  auto lease = acquire(one);
  EXPECT_EQ(cache().flush(), 15);
  cache().check();
  EXPECT_EQ(find(other).match, 0);
  EXPECT_EQ(find(one).anchor_position, 960);  // The running sequence may still have to read it.
  lease.reset();
  EXPECT_EQ(cache().flush(), 15);
  EXPECT_EQ(cache().stats().nodes, 0);
  EXPECT_EQ(cache().stats().pages_free, 512);
}

TEST_F(PrefixCacheTest, LeasesMove) {
  auto lease = acquire(prompt(1000));
  Lease moved = std::move(*lease);
  EXPECT_FALSE(*lease);
  EXPECT_TRUE(moved);
  moved.extend(1000);
  Lease other = std::move(*acquire(prompt(500, 1)));
  other = std::move(moved);  // What `other` was has ended.
  cache().check();
  EXPECT_EQ(other.pages().size(), 16u);
  EXPECT_EQ(cache().stats().pages_leased, 16);
}

TEST_F(PrefixCacheTest, AMillionTokensAreNoDeeperThanTheyMustBe) {
  make({.pages = 16'000, .anchors = 4, .nodes_max = 20'000});
  const auto tokens = prompt(1'000'000);
  run(tokens, 999'936);
  EXPECT_EQ(find(tokens).anchor_position, 999'936);
  EXPECT_EQ(cache().flush(), 15'624);
  EXPECT_EQ(cache().stats().nodes, 0);
}

TEST_F(PrefixCacheTest, StatisticsAreReadFromAnyThread) {
  cache();
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) {
      const CacheStats stats = cache().stats();
      EXPECT_EQ(stats.pages_free + stats.pages_cached + stats.pages_leased, stats.pages_total);
      EXPECT_EQ(stats.anchors_free + stats.anchors_published + stats.anchors_pending, stats.anchors_total);
    }
  });
  for (int i = 0; i < 200; ++i) run(prompt(500, i), 448);
  done = true;
  reader.join();
}

}  // namespace
}  // namespace wp::testing
