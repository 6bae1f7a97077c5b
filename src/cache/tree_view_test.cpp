// What is shown of the tree is what is in it, by counts that are kept elsewhere.
#include "cache/tree_view.h"

#include <gtest/gtest.h>

#include <set>

#include "testing/cache_fixture.h"

namespace wp::testing {
namespace {

int64_t tokens_of(const TreeView& view) {
  int64_t sum = 0;
  for (const TreeRun& run : view.runs) sum += run.end - run.begin;
  return sum;
}

int64_t anchors_of(const TreeView& view) {
  return std::count_if(view.runs.begin(), view.runs.end(), [](const TreeRun& run) { return run.anchor.has_value(); });
}

TEST_F(PrefixCacheTest, AViewShowsRunsBranchesAndAnchors) {
  const auto system = prompt(512);
  run(join(system, prompt(512, 1)), 512, "a", CaptureClass::system);
  run(join(system, prompt(512, 1)), 960, "a");
  clock_.advance_ns(kSecond_ns);
  run(join(system, prompt(300, 2)), 768, "b");
  const TreeView view = cache().view(0);
  EXPECT_TRUE(view.whole);
  ASSERT_EQ(view.runs.size(), 3u);
  const TreeRun &shared = view.runs[0], &newer = view.runs[1], &older = view.runs[2];
  EXPECT_EQ(shared.parent, -1);
  EXPECT_EQ(shared.begin, 0);
  EXPECT_EQ(shared.end, 512);
  ASSERT_TRUE(shared.anchor && newer.anchor && older.anchor);
  EXPECT_EQ(shared.anchor->capture_class, CaptureClass::system);
  EXPECT_EQ(shared.anchor->above, 0);
  EXPECT_EQ(newer.parent, 0);
  EXPECT_EQ(newer.end, 768);
  EXPECT_EQ(newer.anchor->above, 512);
  EXPECT_EQ(older.parent, 0);
  EXPECT_EQ(older.end, 960);
  EXPECT_EQ(older.anchor->idle_ns, kSecond_ns);
  EXPECT_GT(newer.anchor->expected_uses, older.anchor->expected_uses);
  EXPECT_GT(older.anchor->tokens_per_mib, 0);
  EXPECT_EQ(newer.readers, 0);
  auto lease = acquire(join(system, prompt(300, 2)));
  EXPECT_EQ(cache().view(0).runs[1].readers, 1);
  EXPECT_EQ(cache().view(0).runs[2].readers, 0);
}

TEST_F(PrefixCacheTest, AViewIsOfOneDomain) {
  run(prompt(512), 448, "a");
  run(prompt(700), 640, "a", CaptureClass::tail, 7);
  EXPECT_EQ(tokens_of(cache().view(0)), 448);
  EXPECT_EQ(tokens_of(cache().view(7)), 640);
  EXPECT_TRUE(cache().view(8).runs.empty());
  EXPECT_TRUE(cache().view(8).whole);
}

TEST_F(PrefixCacheTest, AViewAgreesWithTheCountsOfRandomHistories) {
  const uint64_t seed = 20261207;
  Rng rng{seed};
  make({.pages = 400, .anchors = 12});
  std::set<uint64_t> domains;
  for (int i = 0; i < 300; ++i) {
    const uint64_t domain = static_cast<uint64_t>(rng.between(0, 2));
    domains.insert(domain);
    auto tokens = prompt(64 * rng.between(1, 8), static_cast<int>(rng.between(0, 2)));
    tokens = join(tokens, prompt(64 * rng.between(4, 12) + 7, static_cast<int>(rng.between(3, 9))));
    run(tokens, 64 * rng.between(1, static_cast<int64_t>(tokens.size()) / 64), "c", CaptureClass::tail, domain);
    clock_.advance_ns(kSecond_ns);
    int64_t tokens_seen = 0, anchors_seen = 0;
    for (const uint64_t one : domains) {
      const TreeView view = cache().view(one);
      EXPECT_TRUE(view.whole);
      tokens_seen += tokens_of(view);
      anchors_seen += anchors_of(view);
      for (size_t at = 0; at < view.runs.size(); ++at) {
        const TreeRun& run = view.runs[at];
        ASSERT_LT(run.parent, static_cast<int32_t>(at));
        ASSERT_EQ(run.begin, run.parent < 0 ? 0 : view.runs[static_cast<size_t>(run.parent)].end);
      }
    }
    ASSERT_EQ(tokens_seen, cache().stats().pages_cached * kPageTokens) << "seed " << seed << ", step " << i;
    ASSERT_EQ(anchors_seen, cache().stats().anchors_published) << "seed " << seed << ", step " << i;
  }
}

TEST_F(PrefixCacheTest, AViewOfADeepPathIsCut) {
  make({.pages = 9216, .anchors = 8, .nodes_max = 9216});
  const auto deep = prompt(64 * 9000);  // More nodes than are looked at.
  run(deep, 64 * 9000 - 64, "deep");
  const TreeView view = cache().view(0);
  EXPECT_FALSE(view.whole);
  ASSERT_EQ(view.runs.size(), 1u);
  EXPECT_LE(view.runs[0].end, (TreeView::kNodesMax + 2) * kPageTokens);
}

TEST_F(PrefixCacheTest, AViewOfManyRunsIsCut) {
  make({.pages = 2560, .anchors = 600, .probation_percent = 100});
  for (int i = 0; i < static_cast<int>(TreeView::kRunsMax) + 1; ++i) {
    const auto tokens = prompt(320, i);
    auto lease = cache().acquire({.tokens = tokens}, 320);
    const auto anchor = cache().reserve_anchor(*lease, 256, CaptureClass::tail);
    ASSERT_TRUE(anchor);
    lease->extend(256);
    ASSERT_TRUE(cache().publish(*lease, tokens, 256, *anchor));
  }
  cache().check();
  const TreeView view = cache().view(0);
  EXPECT_FALSE(view.whole);
  EXPECT_EQ(view.runs.size(), TreeView::kRunsMax);
}

}  // namespace
}  // namespace wp::testing
