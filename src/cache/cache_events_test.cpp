// What the cache tells of itself against what can be restored: after every operation of random histories the index
// built from the events holds the prefixes of the anchors that the reference model knows, and nothing else.
#include "cache/cache_events.h"

#include <gtest/gtest.h>

#include "testing/block_index.h"
#include "testing/cache_fixture.h"
#include "testing/cache_machine.h"

namespace wp::testing {
namespace {

const std::set<uint64_t> kDomains = {0, 1, 2};  // Of the machine's requests.

TEST(CacheEvents, IndexAgreesWithTheTreeAfterEveryOperation) {
  for (const Seed seed : seeds_of_this_run()) {
    SCOPED_TRACE(repeat_hint(seed));
    size_t most = 0;
    for (Seed history = 0; history < 25; ++history) {
      CacheMachine machine(Chooser(splitmix64(seed) + history));
      BlockIndex index;
      machine.listen(&index);
      for (int step = 0; step < 400; ++step) {
        machine.step();
        ASSERT_EQ(index.fault(), "") << "history " << history << ", step " << step;
        const auto expected = BlockIndex::expected(machine.reference(), kDomains);
        ASSERT_EQ(index.prefixes(CacheMedium::gpu), expected) << "history " << history << ", step " << step;
        most = std::max(most, expected.size());
      }
      ASSERT_EQ(machine.failure(), "");
      BlockIndex whole;  // One that comes late is told the same.
      machine.listen(&whole);
      machine.cache().tell_all();
      ASSERT_EQ(whole.fault(), "");
      ASSERT_EQ(whole.prefixes(CacheMedium::gpu), index.prefixes(CacheMedium::gpu));
      machine.listen(nullptr);
    }
    EXPECT_GT(most, 20u);
  }
}

// Passes on all events but one, or one of them changed.
class Tampering final : public CacheListener {
 public:
  enum class How { withhold_stored, withhold_removed, wrong_hash, wrong_token };
  Tampering(CacheListener& to, How how) : to_(to), how_(how) {}
  void stored(const StoredBlocks& blocks) override {
    if (how_ == How::withhold_removed || done_++ != 5) return to_.stored(blocks);
    if (how_ == How::withhold_stored) return;
    std::vector<BlockHash> hashes(blocks.hashes.begin(), blocks.hashes.end());
    Tokens tokens(blocks.tokens.begin(), blocks.tokens.end());
    if (how_ == How::wrong_hash) ++hashes.back();
    else ++tokens.back();
    to_.stored({blocks.medium, blocks.domain, blocks.parent, hashes, tokens});
  }
  void removed(CacheMedium medium, std::span<const BlockHash> hashes) override {
    if (how_ == How::withhold_removed && done_++ == 2) return;
    to_.removed(medium, hashes);
  }
  void cleared() override { to_.cleared(); }
  bool done() const { return done_ > 5; }

 private:
  CacheListener& to_;
  How how_;
  int done_ = 0;
};

TEST(CacheEvents, WithheldAndAlteredEventsAreNoticed) {
  for (const auto how : {Tampering::How::withhold_stored, Tampering::How::withhold_removed, Tampering::How::wrong_hash,
                         Tampering::How::wrong_token}) {
    int tampered = 0, noticed = 0;
    for (Seed history = 0; history < 12; ++history) {
      CacheMachine machine{Chooser(history)};
      BlockIndex index;
      Tampering tampering(index, how);
      machine.listen(&tampering);
      bool different = false;
      for (int step = 0; step < 400 && !different; ++step) {
        machine.step();
        different = !index.fault().empty() ||
                    index.prefixes(CacheMedium::gpu) != BlockIndex::expected(machine.reference(), kDomains);
      }
      tampered += tampering.done();
      noticed += different;
      machine.listen(nullptr);
    }
    EXPECT_GE(noticed, 10) << static_cast<int>(how);
    EXPECT_GE(noticed, tampered) << static_cast<int>(how);  // Each.
  }
}

TEST_F(PrefixCacheTest, EventsNameWhatAnAnchorMakesUsableAndNoMore) {
  BlockIndex index;
  make({.pages = 512, .anchors = 2});
  cache().listen(&index);
  const auto tokens = prompt(1000);
  const auto count = [&] { return index.prefixes(CacheMedium::gpu).size(); };
  {
    auto lease = acquire(tokens);
    lease->extend(1000);
    EXPECT_EQ(count(), 0u);  // Pages alone restore nothing.
    EXPECT_TRUE(capture(*lease, tokens, 320, CaptureClass::system));
    EXPECT_EQ(count(), 5u);
    EXPECT_TRUE(capture(*lease, tokens, 960));
    EXPECT_EQ(count(), 15u);
  }
  run(prompt(4000, 2), 3968, "newcomer");  // Pushes one of the two out.
  EXPECT_EQ(count(), 62u + (find(tokens).anchor_position == 960 ? 15u : 5u));
  cache().flush();
  EXPECT_EQ(count(), 0u);
  EXPECT_EQ(index.fault(), "");
}

TEST_F(PrefixCacheTest, EventsOfDomainsNeverMeet) {
  BlockIndex index;
  cache().listen(&index);
  const auto tokens = prompt(1000);
  for (const uint64_t domain : {uint64_t{0}, uint64_t{7}, uint64_t{9}})
    run(tokens, 960, "", CaptureClass::tail, domain);
  EXPECT_EQ(index.prefixes(CacheMedium::gpu).size(), 45u);  // Other hashes, each under its own extra key.
  EXPECT_EQ(index.fault(), "");
  EXPECT_NE(block_hash(std::nullopt, 7, std::span(tokens).first(64)),
            block_hash(std::nullopt, 9, std::span(tokens).first(64)));
}

}  // namespace
}  // namespace wp::testing
