// SIGKILL against the real program at random moments of a replay with --cache-disk: what was half written is ignored,
// the rest restored, no answer differs, nothing is left behind. Five moments, or as many as --runs=N says.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "core/json.h"
#include "core/rng.h"
#include "measure/http_client.h"
#include "process.h"
#include "testing/seeds.h"

namespace wp::e2e {
namespace {

constexpr int kMomentsOfARound = 5;  // One in each quarter of the replay, and one at rest.
constexpr const char* kConversations = "3";

Finished replay(const std::string& url, const std::string& out) {
  const std::string trace = bundled_model() + "/needles/needles-1k.jsonl";
  return run_warmpath({"replay", url, trace, "--conversations", kConversations, "--no-turns", "--json", out}, 300);
}

Json read(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file, nullptr, false);
}

bool metrics_say(const std::string& url, const std::string& line) {
  auto client = measure::HttpClient::make(url);
  for (int i = 0; i < 500; ++i) {  // A finished turn may still be consolidated.
    const auto text = client->get_text("/metrics");
    if (text.ok() && text->find(line) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

void expect_only_cache_files(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    EXPECT_TRUE(file == "lock" || file == "root" || entry.path().extension() == ".segment") << file;
  }
}

// Anchors that the killed server left whole. Every byte of what is listed is right; a half-written end is no damage.
int64_t whole_anchors(const std::string& folder) {
  const Finished listed = run_warmpath({"inspect", folder, "--verify", "--json"});
  EXPECT_EQ(listed.code, 0) << listed.err;
  const Json report = Json::parse(listed.out, nullptr, false);
  return report.is_discarded() ? -1 : report["anchors"]["records"].get<int64_t>();
}

// What was published is written a little later.
void wait_until_written(const std::string& folder) {
  int64_t before = -1, now = 0;
  for (int i = 0; i < 100 && (now != before || now < std::stoll(kConversations)); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    before = now;
    now = whole_anchors(folder);
  }
}

TEST(Kill, AServerKilledAtAnyMomentRestartsWarmWithEqualAnswers) {
  const std::string runs = temporary_folder(".run"), cold = runs + "/cold.json", again = runs + "/again.json";
  double wall_s = 0;
  {
    RunningServer server({});
    ASSERT_FALSE(server.url().empty());
    const Finished run = replay(server.url(), cold);
    ASSERT_EQ(run.code, 0) << run.err;
    wall_s = run.seconds;
  }
  int warm_moments = 0;
  const Seed seed = testing::seeds_of_this_run().back();
  SCOPED_TRACE(testing::repeat_hint(seed));
  Rng rng(seed);
  const auto moments = static_cast<int>(testing::runs_of_this_run(kMomentsOfARound));
  for (int moment = 0; moment < moments; ++moment) {
    const std::string folder = temporary_folder(".cache");
    const int quarter = moment % kMomentsOfARound;
    const bool at_rest = quarter == kMomentsOfARound - 1;
    const double after_s = wall_s * (quarter + rng.between(0, 1000) * 1e-3) / (kMomentsOfARound - 1);
    SCOPED_TRACE(
        cat("moment ", moment, ", killed ", at_rest ? "at rest" : cat("after ", after_s, " of ", wall_s, " s")));
    {
      RunningServer server({"--cache-disk", folder});
      ASSERT_FALSE(server.url().empty());
      std::thread client([&] { replay(server.url(), runs + "/cut.json"); });
      if (at_rest) {
        client.join();
        wait_until_written(folder);
      } else {
        std::this_thread::sleep_for(std::chrono::duration<double>(after_s));
      }
      server.kill_at_once();
      if (client.joinable()) client.join();
    }
    const int64_t anchors = std::filesystem::exists(folder + "/root") ? whole_anchors(folder) : 0;
    warm_moments += anchors > 0;
    RunningServer server({"--cache-disk", folder});
    ASSERT_FALSE(server.url().empty());
    const Finished run = replay(server.url(), again);
    ASSERT_EQ(run.code, 0) << run.err;
    const Finished compared = run_warmpath({"replay", "--compare", cold, again});
    EXPECT_EQ(compared.code, 0) << compared.out;
    EXPECT_NE(compared.out.find("turns identical"), std::string::npos) << compared.out;
    const Json turns = read(again)["turns"];
    // An anchor may have been written before the last of its pages: nothing whole, nothing restored; at rest all is.
    const bool restored = turns.at(0)["restored"].get<bool>();
    EXPECT_TRUE(at_rest ? restored : anchors > 0 || !restored) << anchors << " anchors";
    if (at_rest) {  // The first turn of each conversation is warm, from the disk.
      const std::string from_disk = "warmpath_cache_restore_total{source=\"disk\"} ";
      EXPECT_TRUE(metrics_say(server.url(), cat(from_disk, kConversations, "\n")));
    }
    EXPECT_TRUE(metrics_say(server.url(), "warmpath_cache_pages{state=\"leased\"} 0\n"));
    EXPECT_EQ(server.stop(), 0);
    expect_only_cache_files(folder);
    std::filesystem::remove_all(folder);
  }
  std::printf("seed %llu: %d kills, %d of them left something to restore\n", static_cast<unsigned long long>(seed),
              moments, warm_moments);
  EXPECT_GE(warm_moments, 2 * moments / kMomentsOfARound) << "too few moments left anything to restore";
  std::filesystem::remove_all(runs);
}

}  // namespace
}  // namespace wp::e2e
