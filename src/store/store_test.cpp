// The disk tier against files that lie, tear, fail and stall.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <thread>

#include "core/rng.h"
#include "store/disk_tier.h"
#include "testing/safetensors_writer.h"
#include "testing/seeds.h"

namespace wp {
namespace {

using testing::TemporaryFolder;
constexpr int64_t kPageBytes = 300, kAnchorBytes = 700;
constexpr auto kDomain = uint64_t{7};

std::vector<TokenId> prompt(Seed seed, int64_t pages) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < pages * kPageTokens; ++i) tokens.push_back(static_cast<TokenId>(rng.between(0, 1000)));
  return tokens;
}

// What a page or an anchor of this node holds, as a function of its key alone.
std::vector<std::byte> bytes_for(uint64_t key, int64_t count) {
  std::vector<std::byte> bytes;
  Rng rng(key);
  for (int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(rng.between(0, 255)));
  return bytes;
}

uint64_t seed_of(std::span<const TokenId> tokens, int64_t end, PartKind kind) {
  return node_key(static_cast<uint64_t>(kind), static_cast<uint64_t>(end), tokens.first(static_cast<size_t>(end)));
}

void put_path(DiskTier& tier, std::span<const TokenId> tokens, uint64_t domain = kDomain) {
  uint64_t key = tier.root();
  const auto length = static_cast<int64_t>(tokens.size());
  for (int64_t end = kPageTokens; end <= length; end += kPageTokens) {
    const auto page = tokens.subspan(static_cast<size_t>(end - kPageTokens), kPageTokens);
    tier.put(PartKind::page, domain, key, end, page, CaptureClass::tail,
             bytes_for(seed_of(tokens, end, PartKind::page), kPageBytes));
    if (end == length)
      tier.put(PartKind::anchor, domain, key, end, page, CaptureClass::user,
               bytes_for(seed_of(tokens, end, PartKind::anchor), kAnchorBytes));
    key = node_key(key, domain, page);
  }
}

// Position restored; 0: none. What is restored is right, whatever was done to the files.
int64_t restored(DiskTier& tier, std::vector<TokenId> tokens, int64_t above = 0, uint64_t domain = kDomain) {
  tokens.push_back(0);
  std::promise<void> rung;
  const auto load = tier.load(tokens, domain, above, static_cast<int64_t>(tokens.size()), [&] { rung.set_value(); });
  if (!load) return 0;
  rung.get_future().wait();
  EXPECT_TRUE(load->done);
  if (!load->good) return 0;
  EXPECT_EQ(static_cast<int64_t>(load->pages.size()), (load->end - above) / kPageTokens);
  for (int64_t end = above + kPageTokens; end <= load->end; end += kPageTokens)
    EXPECT_EQ(load->pages[static_cast<size_t>((end - above) / kPageTokens - 1)],
              bytes_for(seed_of(tokens, end, PartKind::page), kPageBytes));
  EXPECT_EQ(load->anchor, bytes_for(seed_of(tokens, load->end, PartKind::anchor), kAnchorBytes));
  EXPECT_EQ(load->capture_class, CaptureClass::user);
  return load->end;
}

DiskTierOptions options_for(const TemporaryFolder& folder) {
  return {.folder = folder.path() + "/cache", .origin = {1, 2}, .page_bytes = kPageBytes, .anchor_bytes = kAnchorBytes};
}

std::string only_segment(const TemporaryFolder& folder) { return folder.path() + "/cache/1.segment"; }

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(DiskTier, GivesBackWhatWasPutAlsoAfterARestart) {
  const TemporaryFolder folder;
  const auto tokens = prompt(1, 5), longer = prompt(1, 9);
  for (int start = 0; start < 3; ++start) {
    auto tier = DiskTier::open(options_for(folder));
    ASSERT_TRUE(tier.ok()) << tier.error().message;
    put_path(**tier, tokens);  // The second time it is there already.
    (*tier)->flush();
    EXPECT_EQ((*tier)->stats().written, start == 0 ? 6 : 0);
    EXPECT_EQ(restored(**tier, tokens), 320);
    EXPECT_EQ(restored(**tier, longer, 128), 320);
    EXPECT_EQ(restored(**tier, longer, 320), 0);
    EXPECT_EQ(restored(**tier, tokens, 0, kDomain + 1), 0);  // Another domain's.
    EXPECT_EQ(restored(**tier, prompt(2, 5)), 0);
  }
}

TEST(DiskTier, BelievesNothingOfAnotherModelOrNumerics) {
  const TemporaryFolder folder;
  const auto tokens = prompt(1, 5);
  put_path(**DiskTier::open(options_for(folder)), tokens);
  for (const Origin origin : {Origin{1, 3}, Origin{3, 2}}) {
    DiskTierOptions options = options_for(folder);
    options.origin = origin;
    auto tier = DiskTier::open(options).value();
    EXPECT_EQ(tier->stats().foreign, 6);
    EXPECT_EQ(restored(*tier, tokens), 0);
  }
}

TEST(DiskTier, IsOfOneServerAtATime) {
  const TemporaryFolder folder;
  auto first = DiskTier::open(options_for(folder));
  ASSERT_TRUE(first.ok());
  const auto second = DiskTier::open(options_for(folder));
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("in use by another server"), std::string::npos);
}

TEST(DiskTier, RefusesAFolderThatCannotBe) {
  const TemporaryFolder folder;
  DiskTierOptions options = options_for(folder);
  options.folder = folder.write("a file", "x") + "/below";
  EXPECT_FALSE(DiskTier::open(options).ok());
}

// A server killed at any byte of a write leaves a file cut there: what was whole before is back, the rest is a miss.
TEST(DiskTier, RestoresWhatIsWholeInAFileCutAnywhere) {
  const TemporaryFolder folder;
  const auto first = prompt(1, 2), second = prompt(2, 3);
  {
    auto tier = DiskTier::open(options_for(folder)).value();
    put_path(*tier, first);
    put_path(*tier, second);
  }
  const std::string whole = content(only_segment(folder));
  const auto header = static_cast<int64_t>(sizeof(RecordHeader));
  const int64_t first_end = 2 * (header + kPageBytes) + header + kAnchorBytes;
  ASSERT_EQ(static_cast<int64_t>(whole.size()), first_end + 3 * (header + kPageBytes) + header + kAnchorBytes);
  for (int64_t cut = 0; cut <= static_cast<int64_t>(whole.size()); cut += cut % 97 == 0 ? 1 : 13) {
    std::filesystem::resize_file(only_segment(folder), 0);
    testing::write_file(only_segment(folder), std::string_view(whole).substr(0, static_cast<size_t>(cut)));
    auto tier = DiskTier::open(options_for(folder)).value();
    EXPECT_EQ(restored(*tier, first), cut >= first_end ? 128 : 0) << cut;
    EXPECT_EQ(restored(*tier, second), cut == static_cast<int64_t>(whole.size()) ? 192 : 0) << cut;
  }
}

TEST(DiskTier, NoDamagedByteIsRestored) {
  const TemporaryFolder folder;
  const auto tokens = prompt(1, 2);
  { put_path(**DiskTier::open(options_for(folder)), tokens); }
  const std::string whole = content(only_segment(folder));
  for (size_t at = 0; at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    testing::write_file(only_segment(folder), damaged);
    auto tier = DiskTier::open(options_for(folder)).value();
    EXPECT_EQ(restored(*tier, tokens), 0) << at;
    const DiskTierStats stats = tier->stats();
    EXPECT_EQ(stats.torn + stats.corrupt, 1) << at;
  }
}

// The k-th call fails, or moves fewer bytes than asked for.
class FaultyFiles final : public FileLayer {
 public:
  enum class Kind { fail, short_count, end };
  Kind kind = Kind::fail;
  std::atomic<int64_t> fail_read{-1}, fail_write{-1}, reads{0}, writes{0};
  std::atomic<int64_t> fail_read_every{0}, fail_write_every{0};  // 0: none.

  int64_t read(int file, void* to, int64_t size_bytes, int64_t offset) override {
    const int64_t number = reads++;
    return number == fail_read || (fail_read_every > 0 && number % fail_read_every == 0)
               ? fault(size_bytes, [&](int64_t n) { return FileLayer::read(file, to, n, offset); })
               : FileLayer::read(file, to, size_bytes, offset);
  }
  int64_t write(int file, const void* from, int64_t size_bytes, int64_t offset) override {
    const int64_t number = writes++;
    return number == fail_write || (fail_write_every > 0 && number % fail_write_every == 0)
               ? fault(size_bytes, [&](int64_t n) { return FileLayer::write(file, from, n, offset); })
               : FileLayer::write(file, from, size_bytes, offset);
  }

 private:
  template <class Move>
  int64_t fault(int64_t size_bytes, Move move) {
    if (kind == Kind::short_count) return move(size_bytes / 2);
    if (kind == Kind::fail) errno = ENOSPC;
    else if (size_bytes > 1) move(size_bytes / 2);  // Bytes moved, and it says none were.
    return kind == Kind::fail ? -1 : 0;
  }
};

TEST(DiskTier, EachFailingReadOrWriteIsAMiss) {
  const auto tokens = prompt(1, 3);
  for (const auto kind : {FaultyFiles::Kind::fail, FaultyFiles::Kind::short_count, FaultyFiles::Kind::end}) {
    for (const bool writes : {false, true}) {
      bool failed = true;
      for (int64_t k = 0; failed; ++k) {
        const TemporaryFolder folder;
        FaultyFiles files;
        files.kind = kind;
        (writes ? files.fail_write : files.fail_read) = k;
        DiskTierOptions options = options_for(folder);
        options.files = &files;
        auto tier = DiskTier::open(options).value();
        put_path(*tier, tokens);
        tier->flush();
        const int64_t position = restored(*tier, tokens);
        failed = (writes ? files.writes : files.reads) > k;
        EXPECT_EQ(position, failed && kind != FaultyFiles::Kind::short_count ? 0 : 192) << k;
        files.fail_read = files.fail_write = -1;
        // Computed again, it is written again.
        put_path(*tier, tokens);
        tier->flush();
        EXPECT_EQ(restored(*tier, tokens), 192) << k;
        tier.reset();
        EXPECT_EQ(restored(**DiskTier::open(options_for(folder)), tokens), 192) << k;
        ASSERT_LT(k, 100);
      }
    }
  }
}

class StalledFiles final : public FileLayer {
 public:
  std::promise<void> go;
  int64_t read(int file, void* to, int64_t size_bytes, int64_t offset) override {
    waited_.wait();
    return FileLayer::read(file, to, size_bytes, offset);
  }

 private:
  std::shared_future<void> waited_{go.get_future()};
};

TEST(DiskTier, AStalledReadIsGivenUpAndNothingWaitsBehindIt) {
  const TemporaryFolder folder;
  StalledFiles files;
  DiskTierOptions options = options_for(folder);
  options.files = &files;
  auto tier = DiskTier::open(options).value();
  auto tokens = prompt(1, 3);
  put_path(*tier, tokens);
  tier->flush();
  tokens.push_back(0);
  std::promise<void> rung;
  auto load = tier->load(tokens, kDomain, 0, 193, [&] { rung.set_value(); });
  ASSERT_TRUE(load);
  tier->give_up(*load);
  EXPECT_FALSE(tier->load(tokens, kDomain, 0, 193, [] {}));
  files.go.set_value();
  rung.get_future().wait();
  tokens.pop_back();
  EXPECT_EQ(restored(*tier, tokens), 192);  // It answers again.
}

TEST(DiskTier, StaysWithinItsLimit) {
  const TemporaryFolder folder;
  DiskTierOptions options = options_for(folder);
  options.limit_bytes = 4 << 20;
  options.anchor_bytes = kAnchorBytes;
  {
    auto tier = DiskTier::open(options).value();
    for (Seed seed = 0; seed < 400; ++seed) {
      put_path(*tier, prompt(seed, 30));
      tier->flush();
      ASSERT_LE(tier->stats().bytes, options.limit_bytes);
    }
    EXPECT_GT(tier->stats().segments_evicted, 0);
    EXPECT_EQ(restored(*tier, prompt(0, 30)), 0);
    EXPECT_EQ(restored(*tier, prompt(399, 30)), 1920);
  }
  options.limit_bytes = 1 << 20;
  auto smaller = DiskTier::open(options).value();
  EXPECT_LE(smaller->stats().bytes, options.limit_bytes);
  int64_t on_disk = 0;
  for (const auto& entry : std::filesystem::directory_iterator(options.folder)) on_disk += entry.file_size();
  EXPECT_LE(on_disk, options.limit_bytes + 64);
}

// A few prompts that come again and again, among far more than the folder holds that never do. Oldest first would drop
// just those; here they are moved on where their segments go, and outlive a restart.
TEST(DiskTier, WhatIsUsedOutlivesWhatIsNewer) {
  const TemporaryFolder folder;
  DiskTierOptions options = options_for(folder);
  options.limit_bytes = 1 << 20;
  auto tier = DiskTier::open(options).value();
  constexpr Seed kUsed = 12, kStep = 3;  // Prompts 0, 3 ... 33.
  for (Seed seed = 0; seed < 150; ++seed) {
    put_path(*tier, prompt(seed, 30));
    tier->flush();
    ASSERT_LE(tier->stats().bytes, options.limit_bytes);
    if (seed % kStep == 0) {
      for (Seed used = 0; used <= std::min(seed, (kUsed - 1) * kStep); used += kStep)
        ASSERT_EQ(restored(*tier, prompt(used, 30)), 1920) << seed;
    }
  }
  EXPECT_GT(tier->stats().moved, 30);
  EXPECT_GT(tier->stats().evicted, 1000);
  EXPECT_EQ(restored(*tier, prompt(1, 30)), 0);
  tier.reset();
  tier = DiskTier::open(options).value();
  for (Seed used = 0; used < kUsed * kStep; used += kStep) EXPECT_EQ(restored(*tier, prompt(used, 30)), 1920);
  EXPECT_EQ(restored(*tier, prompt(149, 30)), 1920);
}

// Turns of a conversation leave tails behind that nobody needs: they go before another conversation's only one.
TEST(DiskTier, SupersededTailsGoFirst) {
  const TemporaryFolder folder;
  DiskTierOptions options = options_for(folder);
  options.limit_bytes = 1 << 20;
  options.anchor_bytes = 20 * kAnchorBytes;
  auto tier = DiskTier::open(options).value();
  const auto put_turn = [&](std::span<const TokenId> tokens) {
    uint64_t key = tier->root();
    for (size_t at = 0; at < tokens.size(); at += kPageTokens) {
      const auto page = tokens.subspan(at, kPageTokens);
      const auto end = static_cast<int64_t>(at) + kPageTokens;
      tier->put(PartKind::page, kDomain, key, end, page, CaptureClass::tail,
                std::vector<std::byte>(static_cast<size_t>(kPageBytes)));
      if (at + kPageTokens == tokens.size())
        tier->put(PartKind::anchor, kDomain, key, end, page, CaptureClass::tail,
                  std::vector<std::byte>(static_cast<size_t>(options.anchor_bytes)));
      key = node_key(key, kDomain, page);
    }
    tier->flush();
    return key;
  };
  std::vector<uint64_t> others;
  for (Seed seed = 2; seed < 12; ++seed) others.push_back(put_turn(prompt(seed, 4)));
  const auto conversation = prompt(1, 100);
  uint64_t last = 0;
  for (size_t pages = 2; pages <= 100; ++pages) last = put_turn(std::span(conversation).first(pages * kPageTokens));
  EXPECT_GT(tier->stats().evicted, 40);
  for (const uint64_t key : others) EXPECT_TRUE(tier->has(PartKind::anchor, key));
  EXPECT_TRUE(tier->has(PartKind::anchor, last));
}

// Cleaning reads and writes too: whichever call fails, what is restored is right, and the limit holds.
TEST(DiskTier, EachFaultWhileItMakesRoomIsAMiss) {
  int64_t segments_evicted = 0;
  for (const auto kind : {FaultyFiles::Kind::fail, FaultyFiles::Kind::short_count, FaultyFiles::Kind::end}) {
    for (const bool writes : {false, true}) {
      for (int64_t every = 2; every < 60; every += 7) {
        const TemporaryFolder folder;
        FaultyFiles files;
        files.kind = kind;
        (writes ? files.fail_write_every : files.fail_read_every) = every;
        DiskTierOptions options = options_for(folder);
        options.files = &files;
        options.limit_bytes = 512 << 10;
        auto tier = DiskTier::open(options).value();
        for (Seed seed = 1; seed < 60; ++seed) {
          put_path(*tier, prompt(seed, 20));
          tier->flush();
          restored(*tier, prompt(seed / 2 + 1, 20));
          ASSERT_LE(tier->stats().bytes, options.limit_bytes);
        }
        files.fail_read_every = files.fail_write_every = 0;
        // It goes on: which of the new paths stay is a matter of their worth and of the time that passed.
        int64_t whole = 0;
        for (Seed seed = 99; seed < 109; ++seed) {
          put_path(*tier, prompt(seed, 20));
          tier->flush();
          whole += restored(*tier, prompt(seed, 20)) == 1280;
        }
        EXPECT_GT(whole, 0) << "writes " << writes << ", every " << every;
        segments_evicted += tier->stats().segments_evicted;
        EXPECT_EQ(tier->stats().corrupt, 0);
      }
    }
  }
  EXPECT_GT(segments_evicted, 100);
}

TEST(DiskTier, DropsWhatTheDiskIsTooSlowFor) {
  const TemporaryFolder folder;
  DiskTierOptions options = options_for(folder);
  options.pending_bytes_max = 1000;  // A page, but no anchor beside one.
  auto tier = DiskTier::open(options).value();
  put_path(*tier, prompt(1, 1));
  put_path(*tier, prompt(2, 9));
  tier->flush();
  EXPECT_GT(tier->stats().dropped, 0);
  EXPECT_EQ(tier->stats().pending_bytes, 0);
}

// Against a model: a set of whole paths. Restarts and damage between; the answer is the model's, or a miss where
// something was damaged.
TEST(DiskTier, AgreesWithASetOfPaths) {
  for (const Seed seed : testing::seeds_of_this_run()) {
    const TemporaryFolder folder;
    Rng rng(seed);
    auto tier = DiskTier::open(options_for(folder)).value();
    std::map<int64_t, std::vector<int64_t>> all;  // By prompt; prompts share no page.
    for (int step = 0; step < 200; ++step) {
      const int64_t which = rng.between(0, 7), pages = rng.between(1, 12);
      const auto tokens = prompt(static_cast<Seed>(which + 1), pages);
      if (rng.percent(10)) {
        tier.reset();
        tier = DiskTier::open(options_for(folder)).value();
      } else if (rng.percent(40)) {
        put_path(*tier, tokens);
        tier->flush();
        all[which].push_back(pages * kPageTokens);
      } else {
        int64_t expected = 0;
        for (const int64_t end : all[which])
          if (end <= pages * kPageTokens) expected = std::max(expected, end);
        EXPECT_EQ(restored(*tier, tokens), expected) << "seed " << seed << " step " << step;
      }
    }
  }
}

TEST(Record, RefusesWhatIsNone) {
  const auto tokens = prompt(1, 1);
  const auto bytes = bytes_for(1, 100);
  const RecordHeader good = make_header(PartKind::page, {1, 2}, 3, 4, 64, tokens, CaptureClass::tail, bytes);
  const auto as_bytes = [](const RecordHeader& header) { return std::as_bytes(std::span(&header, 1)); };
  ASSERT_TRUE(parse_header(as_bytes(good)).ok());
  EXPECT_FALSE(parse_header(as_bytes(good).first(sizeof good - 1)).ok());
  RecordHeader other = good;
  other.version = kRecordVersion + 1;
  EXPECT_NE(parse_header(as_bytes(other)).error().message.find("expected version 1, found 2"), std::string::npos);
}

}  // namespace
}  // namespace wp
