// The page of /metrics, row by row against the table of the cache's metrics (prefix_cache.md 15.3).
#include "serve/metrics.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "core/log.h"
#include "testing/fake_model.h"

namespace wp {
namespace {

using Page = std::map<std::string, std::string>;  // "name{labels}" to its value.

Page read_page(const std::string& text) {
  Page page;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(page.emplace(line.substr(0, space), line.substr(space + 1)).second) << "twice: " << line;
  }
  return page;
}

// All combinations of label values: {"a=", {"1", "2"}}.
using Labels = std::vector<std::pair<std::string, std::vector<std::string>>>;
std::vector<std::string> names_of(const std::string& name, const Labels& labels) {
  std::vector<std::string> made{""};
  for (const auto& [key, values] : labels) {
    std::vector<std::string> longer;
    for (const std::string& before : made)
      for (const std::string& value : values)
        longer.push_back(cat(before, before.empty() ? "" : ",", key, "=\"", value, "\""));
    made = std::move(longer);
  }
  for (std::string& one : made) one = labels.empty() ? name : cat(name, "{", one, "}");
  return made;
}

struct Row {
  std::string name, kind;
  std::vector<Labels> labels;  // One set or more.
};

std::vector<Row> table() {
  const std::vector<std::string> classes{"S", "T", "U", "B", "A", "L"}, tiers{"device", "ram", "disk"};
  const std::vector<std::string> evictions{"superseded", "probation", "ladder", "value", "flush"};
  std::vector<std::string> reasons;
  for (int i = 0; i < kMissReasons; ++i) reasons.push_back(name(static_cast<MissReason>(i)));
  const std::vector<Labels> anchors{{{"tier", {"device"}}, {"state", {"published", "pending", "free"}}},
                                    {{"tier", {"ram"}}, {"state", {"published"}}},
                                    {{"tier", {"disk"}}, {"state", {"published", "spilling"}}}};
  return {
      {"warmpath_prefix_cache_queries_total", "counter", {{}}},
      {"warmpath_prefix_cache_hits_total", "counter", {{}}},
      {"warmpath_cache_lookups_total", "counter", {{}}},
      {"warmpath_cache_hit_tokens_total", "counter", {{{"class", classes}, {"tier", tiers}}}},
      {"warmpath_cache_restore_total", "counter", {{{"source", tiers}}}},
      {"warmpath_cache_restore_bytes_total", "counter", {{{"source", tiers}}}},
      {"warmpath_cache_miss_total", "counter", {{{"reason", reasons}}}},
      {"warmpath_cache_anchors", "gauge", anchors},
      {"warmpath_cache_anchor_bytes", "gauge", anchors},
      {"warmpath_cache_anchor_events_total",
       "counter",
       {{{"event", {"published", "deduped", "skipped"}}, {"class", classes}, {"reason", {""}}},
        {{"event", {"evicted"}}, {"class", classes}, {"reason", evictions}}}},
      {"warmpath_cache_evictions_total", "counter", {{{"class", classes}, {"reason", evictions}}}},
      {"warmpath_cache_ghost_hits_total", "counter", {{{"class", classes}}}},
      {"warmpath_cache_captures_refused_total", "counter", {{{"reason", {"none_evictable", "worth_less"}}}}},
      {"warmpath_cache_consolidation_tokens_total", "counter", {{{"when", {"idle", "request"}}}}},
      {"warmpath_cache_consolidation_seconds_total", "counter", {{{"when", {"idle", "request"}}}}},
      {"warmpath_cache_hold_denials_total", "counter", {{}}},
      {"warmpath_cache_tier_errors_total",
       "counter",
       {{{"tier", {"ram"}}, {"kind", {"corrupt", "refused"}}},
        {{"tier", {"disk"}}, {"kind", {"write", "read", "corrupt", "dropped"}}}}},
      {"warmpath_prompt_tokens_recomputed_total", "counter", {{}}},
  };
}

class CacheMetrics : public ::testing::Test {
 protected:
  CacheMetrics() {
    configure_log({.level = LogLevel::error});
    const EngineLimits limits{
        .context_tokens = 1024, .sequences = 1, .pages = 16, .anchors = 3, .ram_bytes = int64_t{1} << 20};
    engine_ = Engine::make(model_, *device_, limits, system_clock()).value();
    service_.engine = engine_.get();
  }
  RequestStats ask(TokenId first, int64_t count) {
    GenerateRequest request{.id = "r", .tokens = {}, .max_tokens = 1, .ignore_stop_tokens = true};
    for (int64_t i = 0; i < count; ++i) request.tokens.push_back(static_cast<TokenId>((first + i) % 50));
    request.cache.captures = {{(count - 1) / kPageTokens * kPageTokens, CaptureClass::tail}};
    TokenStream stream = engine_->submit(std::move(request)).value();
    RequestStats stats;
    while (auto event = stream.next()) stats = event->stats;
    metrics_.observe(stats);
    return stats;
  }
  Page page() { return read_page(metrics_.print(&service_)); }

  testing::FakeModel model_{testing::FakeModelOptions{}};
  std::unique_ptr<Device> device_ = std::move(Device::make(DeviceKind::ref, 1)).value();
  std::unique_ptr<Engine> engine_;
  Service service_;
  Metrics metrics_;
};

TEST_F(CacheMetrics, EveryRowOfTheTableIsThereWithItsLabelsAndNoOthers) {
  const std::string text = metrics_.print(&service_);
  const Page page = read_page(text);
  for (const Row& row : table()) {
    SCOPED_TRACE(row.name);
    EXPECT_NE(text.find(cat("# TYPE ", row.name, " ", row.kind, "\n")), std::string::npos);
    std::set<std::string> expected, found;
    for (const Labels& labels : row.labels)
      for (std::string& one : names_of(row.name, labels)) expected.insert(std::move(one));
    for (const auto& [name, value] : page)
      if (name.substr(0, name.find('{')) == row.name) found.insert(name);
    EXPECT_EQ(found, expected);
  }
  EXPECT_NE(text.find("# TYPE warmpath_cache_restore_seconds histogram\n"), std::string::npos);
  for (const char* source : {"device", "ram", "disk"})
    EXPECT_TRUE(page.contains(cat("warmpath_cache_restore_seconds_count{source=\"", source, "\"}"))) << source;
}

TEST_F(CacheMetrics, WhatWasReusedIsCountedWhereItLay) {
  EXPECT_EQ(ask(1, 400).cached_tokens, 0);
  EXPECT_EQ(ask(1, 400).tier, Tier::device);
  engine_->flush_cache();
  const RequestStats again = ask(1, 400);
  EXPECT_EQ(again.tier, Tier::ram);
  EXPECT_EQ(again.cached_tokens, 384);
  const Page page = this->page();
  EXPECT_EQ(page.at("warmpath_cache_hit_tokens_total{class=\"T\",tier=\"device\"}"), "384");
  EXPECT_EQ(page.at("warmpath_cache_hit_tokens_total{class=\"T\",tier=\"ram\"}"), "384");
  EXPECT_EQ(page.at("warmpath_prefix_cache_hits_total"), "768");
  EXPECT_EQ(page.at("warmpath_cache_restore_total{source=\"device\"}"), "1");
  EXPECT_EQ(page.at("warmpath_cache_restore_total{source=\"ram\"}"), "1");
  EXPECT_EQ(page.at("warmpath_cache_restore_seconds_count{source=\"ram\"}"), "1");
  EXPECT_EQ(page.at("warmpath_cache_miss_total{reason=\"none\"}"), "2");
  EXPECT_EQ(page.at("warmpath_cache_miss_total{reason=\"cold\"}"), "1");
  EXPECT_NE(page.at("warmpath_cache_anchors{tier=\"ram\",state=\"published\"}"), "0");
  EXPECT_EQ(page.at("warmpath_cache_evictions_total{class=\"T\",reason=\"flush\"}"), "1");
}

}  // namespace
}  // namespace wp
