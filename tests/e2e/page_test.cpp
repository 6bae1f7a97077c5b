// The page at / in a headless Chromium: page_check.py uses it as a person does. Screenshots are left in build/page.
#include <gtest/gtest.h>

#include <filesystem>

#include "process.h"
#include "testing/seeds.h"

namespace wp::e2e {
namespace {

Finished check(const RunningServer& server, std::vector<std::string> checks) {
  const std::string root = testing::source_directory();
  const std::string python = root + "/build/venv/bin/python", script = root + "/tests/e2e/page_check.py";
  checks.insert(checks.begin(), {python, script, server.url(), root + "/build/page"});
  return run_program(checks, 600);
}

TEST(Page, InChromium) {
  RunningServer server({});
  ASSERT_FALSE(server.url().empty());
  const Finished run = check(server, {});
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("streams_and_reuses: ok"), std::string::npos) << run.out;
  for (const char* name : {"chat-light.png", "server-dark.png", "phone-chat.png", "phone-server.png"})
    EXPECT_TRUE(std::filesystem::exists(testing::source_directory() + "/build/page/" + name)) << name;
  EXPECT_EQ(server.stop(), 0);
}

TEST(Page, AsksForTheKey) {
  RunningServer server({"--api-key", "a-key-of-the-test"});
  ASSERT_FALSE(server.url().empty());
  const Finished run = check(server, {"with_key"});
  EXPECT_EQ(run.code, 0) << run.out << run.err;
}

}  // namespace
}  // namespace wp::e2e
