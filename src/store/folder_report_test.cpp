// The list of a cache folder against folders that are damaged, cut and hostile.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "store/disk_tier.h"
#include "store/folder_report.h"
#include "testing/safetensors_writer.h"

namespace wp {
namespace {

using testing::TemporaryFolder;
constexpr int64_t kPageBytes = 300, kAnchorBytes = 700;
constexpr auto kHeaderBytes = static_cast<int64_t>(sizeof(RecordHeader));

// Two pages and an anchor.
std::string make_cache(const TemporaryFolder& folder) {
  const std::string path = folder.path() + "/cache";
  auto tier =
      DiskTier::open({.folder = path, .origin = {1, 2}, .page_bytes = kPageBytes, .anchor_bytes = kAnchorBytes});
  const std::vector<TokenId> page(kPageTokens, 5);
  const uint64_t first = node_key((*tier)->root(), 7, page);
  const auto bytes = [](int64_t count, int value) {
    return std::vector<std::byte>(static_cast<size_t>(count), static_cast<std::byte>(value));
  };
  (*tier)->put(PartKind::page, 7, (*tier)->root(), 64, page, CaptureClass::tail, bytes(kPageBytes, 1));
  (*tier)->put(PartKind::page, 7, first, 128, page, CaptureClass::tail, bytes(kPageBytes, 2));
  (*tier)->put(PartKind::anchor, 7, first, 128, page, CaptureClass::user, bytes(kAnchorBytes, 3));
  (*tier)->flush();
  return path;
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST(FolderReport, ListsEveryRecordWithWhatWroteIt) {
  const TemporaryFolder folder;
  const std::string path = make_cache(folder);
  const auto report = read_cache_folder(path, true);
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_EQ(report->records.size(), 3u);
  EXPECT_EQ(report->segments, 1);
  EXPECT_EQ(report->damaged(), 0);
  EXPECT_TRUE(report->tails.empty());
  const RecordReport& anchor = report->records[2];
  EXPECT_EQ(anchor.header.kind, PartKind::anchor);
  EXPECT_EQ(anchor.header.end, 128);
  EXPECT_EQ(anchor.header.origin, (Origin{1, 2}));
  EXPECT_EQ(anchor.offset, 2 * (kHeaderBytes + kPageBytes));
  EXPECT_EQ(anchor.state, RecordState::good);
  EXPECT_EQ(report->bytes, anchor.offset + kHeaderBytes + kAnchorBytes);
  EXPECT_EQ(read_cache_folder(path, false)->records[0].state, RecordState::listed);
}

TEST(FolderReport, FindsEveryFlippedByte) {
  const TemporaryFolder folder;
  const std::string path = make_cache(folder), segment = path + "/1.segment", whole = content(segment);
  for (size_t at = 0; at < whole.size(); at += 29) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    write(segment, bytes);
    const auto report = read_cache_folder(path, true);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->damaged(), 1) << "byte " << at;
  }
}

// What a killed server leaves is no damage: a file cut anywhere, or bytes whose header was never written.
TEST(FolderReport, CallsAHalfWrittenEndTorn) {
  const TemporaryFolder folder;
  const std::string path = make_cache(folder), segment = path + "/1.segment", whole = content(segment);
  const auto last = static_cast<size_t>(2 * (kHeaderBytes + kPageBytes));
  for (size_t size = last + 1; size < whole.size(); size += 13) {
    write(segment, whole.substr(0, size));
    const auto report = read_cache_folder(path, true);
    EXPECT_EQ(report->records.size(), 2u) << size;
    ASSERT_EQ(report->tails.size(), 1u) << size;
    EXPECT_TRUE(report->tails[0].torn) << size;
    EXPECT_EQ(report->damaged(), 0) << size;
  }
  std::string no_header = whole;
  no_header.replace(last, static_cast<size_t>(kHeaderBytes), static_cast<size_t>(kHeaderBytes), '\0');
  write(segment, no_header);
  EXPECT_TRUE(read_cache_folder(path, true)->tails.at(0).torn);
}

TEST(FolderReport, FollowsNoLinkAndWaitsForNoPipe) {
  const TemporaryFolder folder;
  const std::string path = make_cache(folder);
  std::filesystem::create_symlink("/etc/passwd", path + "/2.segment");
  ASSERT_EQ(::mkfifo((path + "/3.segment").c_str(), 0600), 0);
  std::filesystem::create_directory(path + "/4.segment");
  write(path + "/5.segment", "not a record at all, but longer than a header " + std::string(500, 'x'));
  write(path + "/x.segment", "");
  const auto report = read_cache_folder(path, true);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->records.size(), 3u);
  EXPECT_EQ(report->segments, 5);
  EXPECT_EQ(report->damaged(), 4);
}

TEST(FolderReport, RefusesAFolderOfAnotherKind) {
  const TemporaryFolder folder;
  for (const std::string& other : {folder.path(), folder.path() + "/none", std::string("/etc/passwd")}) {
    const auto report = read_cache_folder(other, true);
    ASSERT_FALSE(report.ok());
    EXPECT_NE(report.error().message.find("expected a folder of --cache-disk"), std::string::npos);
  }
}

}  // namespace
}  // namespace wp
