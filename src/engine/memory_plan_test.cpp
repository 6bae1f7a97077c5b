#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/captures.h"
#include "engine/limits.h"

namespace wp {
namespace {

ModelInfo info_of_test() {
  ModelInfo info;
  info.vocabulary = 1000;
  info.context_max = 4096;
  info.page_bytes = 64 * 100;
  info.anchor_bytes = 5000;
  info.slot_bytes = 6000;
  return info;
}

TEST(Limits, ZerosFollowFromTheModel) {
  const EngineLimits limits = complete_limits({.sequences = 3}, info_of_test()).value();
  EXPECT_EQ(limits.context_tokens, 4096);
  EXPECT_EQ(limits.pages, 3 * 64);
  EXPECT_EQ(limits.anchors, 10);
}

TEST(Limits, RefusesWithTheNumbers) {
  const auto message = [](EngineLimits limits) {
    const auto result = complete_limits(limits, info_of_test());
    return result.ok() ? std::string("taken") : result.error().message;
  };
  EXPECT_EQ(message({.context_tokens = 5000}), "context_tokens: expected 1..4096, found 5000");
  EXPECT_EQ(message({.context_tokens = 4096, .pages = 63}),
            "pages: expected at least 64 for a context of 4096 tokens, found 63");
  EXPECT_EQ(message({.pass_tokens = 100}), "pass_tokens: expected a multiple of 64, found 100");
  EXPECT_EQ(message({.sequences = 0}), "sequences: expected 1..4096, found 0");
  EXPECT_EQ(message({.sequences = 4, .anchors = 5}), "anchors: expected 6..1048576, found 5");
  EXPECT_EQ(message({}), "taken");
}

TEST(MemoryPlan, IsTheSumOfItsRecords) {
  const EngineLimits limits = complete_limits({.sequences = 2, .pages = 100, .anchors = 9}, info_of_test()).value();
  const MemoryPlan plan = memory_plan(info_of_test(), limits);
  EXPECT_EQ(plan.pages_bytes, 100 * 6400);
  EXPECT_EQ(plan.anchors_bytes, 9 * 5000);
  EXPECT_EQ(plan.slots_bytes, 2 * 6000);
  EXPECT_EQ(plan.logits_bytes, (2 + 64) * 1000 * 4);
  EXPECT_EQ(plan.total_bytes(), 640000 + 45000 + 12000 + 264000);
}

TEST(MemoryPlan, PagesFillABudgetToTheByte) {
  EngineLimits limits = complete_limits({.sequences = 2}, info_of_test()).value();
  for (const int64_t budget : {500'000, 961'000, 960'999, 5'000'000}) {
    limits.pages = static_cast<int32_t>(pages_within(info_of_test(), limits, budget));
    EXPECT_LE(memory_plan(info_of_test(), limits).total_bytes(), budget);
    ++limits.pages;
    EXPECT_GT(memory_plan(info_of_test(), limits).total_bytes(), budget);
  }
  EXPECT_EQ(pages_within(info_of_test(), limits, 1000), 0);
}

TEST(MemoryPlan, RefusesInOneLineWithNeedHaveAndLever) {
  const MemoryPlan plan{.pages_bytes = int64_t{900} << 20, .anchors_bytes = 100 << 20, .slots_bytes = 1 << 20};
  EXPECT_TRUE(check_fits(plan, int64_t{1100} << 20).ok());
  EXPECT_TRUE(check_fits(plan, -1).ok());
  MemoryPlan with_ram = plan;
  with_ram.ram_bytes = int64_t{600} << 20;
  EXPECT_TRUE(check_ram_fits(plan, true, 1 << 20).ok());
  EXPECT_TRUE(check_ram_fits(with_ram, true, -1).ok());
  EXPECT_TRUE(check_ram_fits(with_ram, false, int64_t{700} << 20).ok());
  const auto no_ram = check_ram_fits(with_ram, true, int64_t{1100} << 20);
  ASSERT_FALSE(no_ram.ok());
  EXPECT_NE(no_ram.error().message.find("need 600 MiB of the host's for --cache-ram, have 66 MiB"), std::string::npos)
      << no_ram.error().message;
  const auto refused = check_fits(plan, int64_t{500} << 20);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::no_memory);
  EXPECT_EQ(refused.error().message,
            "memory: need 1001 MiB (pages 900 MiB, anchors 100 MiB, slots 1 MiB, logits 0 MiB), have 485 MiB; lower "
            "--context-tokens first, then --sequences");
}

class AvailableMemory : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path at = root_ / path;
    std::filesystem::create_directories(at.parent_path());
    std::ofstream(at) << text;
  }
  int64_t available() const { return available_memory_bytes_below(root_.string()); }
  const std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) /
      ("available-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
       std::to_string(reinterpret_cast<uintptr_t>(this)));
};

TEST_F(AvailableMemory, IsUnknownWithoutFiles) { EXPECT_EQ(available(), -1); }

TEST_F(AvailableMemory, IsMemAvailableWhereNoGroupIsSmaller) {
  write("proc/meminfo", "MemTotal:  200000 kB\nMemAvailable:   1000 kB\n");
  EXPECT_EQ(available(), 1024000);
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "max\n");
  write("sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(available(), 1024000);
}

TEST_F(AvailableMemory, IsTheTightestGroupOfThePath) {
  write("proc/meminfo", "MemAvailable:   1000 kB\n");
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/inner/memory.max", "900000\n");
  write("sys/fs/cgroup/outer/inner/memory.current", "100000\n");
  EXPECT_EQ(available(), 800000);
  write("sys/fs/cgroup/outer/memory.max", "500000\n");
  write("sys/fs/cgroup/outer/memory.current", "450000\n");
  EXPECT_EQ(available(), 50000);
  write("sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 30000\n");
  EXPECT_EQ(available(), 80000);
}

TEST_F(AvailableMemory, ReadsTheOlderHierarchyToo) {
  write("proc/meminfo", "MemAvailable:   1000 kB\n");
  write("proc/self/cgroup", "7:memory:/job\n3:cpu:/other\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "300000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "100000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  EXPECT_EQ(available(), 200000);
}

TEST(AvailableMemoryHere, IsSomething) { EXPECT_GT(available_memory_bytes(), 0); }

Match restored_at(int64_t anchor, int64_t branch = 0) {
  Match match;
  match.anchor_position = anchor;
  match.branch_position = branch;
  return match;
}

std::string chosen(const CaptureChoice& choice) {
  std::string out;
  for (const CapturePoint& point : choice.points)
    out += cat(out.empty() ? "" : " ", std::string(1, letter(point.capture_class)), point.position);
  return out;
}

TEST(Captures, AreThoseAheadAndPossible) {
  const std::vector<CapturePoint> asked = {
      {128, CaptureClass::system}, {640, CaptureClass::user}, {960, CaptureClass::tail}};
  EXPECT_EQ(chosen(choose_captures(asked, restored_at(0), 1000)), "S128 U640 T960");
  EXPECT_EQ(chosen(choose_captures(asked, restored_at(640), 1000)), "T960");
  EXPECT_EQ(choose_captures(asked, restored_at(640), 1000).dropped, 0);
  const CaptureChoice exact = choose_captures(asked, restored_at(0), 960);  // Strictly below n.
  EXPECT_EQ(chosen(exact), "S128 U640");
  EXPECT_EQ(exact.dropped, 1);
  EXPECT_EQ(chosen(choose_captures(asked, restored_at(0), 255)), "");
}

TEST(Captures, AtMostThreeByPriority) {
  const std::vector<CapturePoint> asked = {
      {64, CaptureClass::system}, {640, CaptureClass::user}, {960, CaptureClass::tail}};
  EXPECT_EQ(chosen(choose_captures(asked, restored_at(0, 320), 1000)), "S64 B320 T960");
  EXPECT_EQ(chosen(choose_captures({}, restored_at(0, 320), 40000)), "B320 L16384 L32768");
  EXPECT_EQ(chosen(choose_captures({}, restored_at(0), 8192)), "");
}

TEST(Captures, OnePositionIsCapturedOnce) {
  const std::vector<CapturePoint> asked = {{320, CaptureClass::user}, {320, CaptureClass::tail}};
  EXPECT_EQ(chosen(choose_captures(asked, restored_at(0, 320), 1000)), "T320");
}

}  // namespace
}  // namespace wp
