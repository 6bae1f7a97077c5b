// What a pass launches and copies on a GPU, held to lists that are checked in: an operation more in every layer, or one
// that no list knows, shows here and not as a slower step.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "measure/profile.h"
#include "ops/tables.h"
#include "testing/seeds.h"

namespace wp {
namespace {

std::string read(const std::string& path) {
  std::ifstream stream(testing::source_directory() + "/" + path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

struct Case {
  const char *config, *list;
};
constexpr Case kCases[] = {{"configs/qwen3.8-flash-next.json", "testdata/launches/qwen3.8-flash-next.txt"},
                           {"configs/qwen3.8-27b.json", "testdata/launches/qwen3.8-27b.txt"},
                           {"testdata/qwen3_next/qwen3-next/config.json", "testdata/launches/qwen3-next.txt"}};

TEST(Launches, AreThoseOfTheLists) {
  const auto device = Device::make(DeviceKind::ref, 1);
  ASSERT_TRUE(device.ok());
  for (const Case& one : kCases) {
    auto config = parse_json(read(one.config));
    ASSERT_TRUE(config.ok()) << one.config;
    auto checkpoint = Checkpoint::synthesize({.name = one.config, .config = *config, .fill = false});
    ASSERT_TRUE(checkpoint.ok());
    auto model = load_model(std::move(*checkpoint), **device);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto found = measure::launch_list(**model, 64);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(*found, read(one.list)) << "if it should be so: warmpath profile --dry -p 64 --synth " << one.config
                                      << " > " << one.list;
  }
}

TEST(Launches, EveryOperationIsOnAList) {
  std::set<std::string> listed;
  for (const Case& one : kCases) {
    std::istringstream lines(read(one.list));
    std::string phase, place, op, count;
    while (lines >> phase >> place >> op >> count) listed.insert(op);
  }
  for (const ops::TableRow& row : ops::table_rows_list())
    EXPECT_TRUE(listed.contains(row.op) || std::string(row.op) == "random_fill")
        << row.op << ": built, and launched by no pass";
}

// One copy goes to the device in a pass: its description. None comes back but what the caller reads.
TEST(Launches, OneCopyAPass) {
  for (const Case& one : kCases) {
    std::istringstream lines(read(one.list));
    std::string phase, place, op, count;
    int copies = 0;
    while (lines >> phase >> place >> op >> count)
      if (op == "upload") copies += std::stoi(count);
    EXPECT_EQ(copies, 2) << one.list;
  }
}

}  // namespace
}  // namespace wp
