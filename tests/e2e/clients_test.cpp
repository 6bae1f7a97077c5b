// Clients as people install them, from PyPI, against a server with the bundled model.
#include <gtest/gtest.h>

#include <filesystem>

#include "process.h"
#include "testing/seeds.h"

namespace wp::e2e {
namespace {

// A script of tests/e2e that ends with 0 where all was as it expected.
void run_script(const std::string& script) {
  const std::string root = testing::source_directory(), python = root + "/build/venv/bin/python";
  ASSERT_TRUE(std::filesystem::exists(python)) << "expected " << python << " with the clients; run ./do setup";
  RunningServer server({});
  ASSERT_FALSE(server.url().empty());
  const Finished run = run_program({python, root + "/tests/e2e/" + script, server.url()}, 300);
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  EXPECT_EQ(server.stop(), 0);
}

TEST(Clients, OpenaiResponsesContinueAConversationInEachWay) { run_script("responses_client.py"); }
TEST(Clients, AnthropicHoldsToolConversationsWithAndWithoutThoughts) { run_script("anthropic_client.py"); }

}  // namespace
}  // namespace wp::e2e
