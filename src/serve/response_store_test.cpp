// The store of responses: its two bounds, the order in which it forgets, and that a key finds what is its own.
#include "serve/response_store.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/rng.h"
#include "testing/seeds.h"

namespace wp {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

ResponseStore::Entry entry(const std::string& id, size_t body_bytes = 100, ResponseTurn::Ptr previous = nullptr) {
  return {.id = id,
          .body = std::string(body_bytes, 'b'),
          .input = cat("[\"in ", id, "\"]"),
          .output = cat("[\"out ", id, "\"]"),
          .item_ids = {"msg_" + id},
          .previous = std::move(previous)};
}

TEST(ResponseStore, FindsWhatWasPutUnderItsOwnKeyAlone) {
  ManualClock clock;
  ResponseStore store({}, clock);
  ASSERT_TRUE(store.put("red", entry("a")));
  auto found = store.find("red", "a");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->body, std::string(100, 'b'));
  EXPECT_EQ(found->turn->input(), "[\"in a\"]");
  EXPECT_EQ(found->turn->output(), "[\"out a\"]");
  EXPECT_TRUE(store.find_by_item("red", "msg_a"));

  for (const char* other : {"blue", "", "re", "redd"}) {
    EXPECT_FALSE(store.find(other, "a")) << other;
    EXPECT_FALSE(store.find_by_item(other, "msg_a")) << other;
    EXPECT_FALSE(store.erase(other, "a")) << other;
  }
  EXPECT_TRUE(store.erase("red", "a"));
  EXPECT_FALSE(store.find("red", "a"));
  EXPECT_FALSE(store.find_by_item("red", "msg_a"));
  EXPECT_FALSE(store.erase("red", "a"));
  EXPECT_GT(store.size_bytes(), 0);  // Who found it still holds the turn.
  found.reset();
  EXPECT_EQ(store.size_bytes(), 0);
}

TEST(ResponseStore, ForgetsWhenTheTimeIsOver) {
  ManualClock clock;
  ResponseStore store({.seconds_max = 10}, clock);
  store.put("", entry("a"));
  clock.advance_ns(6 * kSecond);
  store.put("", entry("b"));
  clock.advance_ns(4 * kSecond - 1);
  EXPECT_TRUE(store.find("", "a"));  // Being used does not make it younger.
  clock.advance_ns(1);
  EXPECT_FALSE(store.find("", "a"));
  EXPECT_FALSE(store.find_by_item("", "msg_a"));
  EXPECT_TRUE(store.find("", "b"));
  clock.advance_ns(6 * kSecond);
  EXPECT_FALSE(store.erase("", "b"));
  EXPECT_EQ(store.size_bytes(), 0);
}

TEST(ResponseStore, TheLeastRecentlyUsedGoesFirst) {
  ManualClock clock;
  ResponseStore measure({}, clock);
  measure.put("", entry("a", 10'000));
  ResponseStore store({.bytes_max = 3 * measure.size_bytes()}, clock);
  for (const char* id : {"a", "b", "c"}) EXPECT_TRUE(store.put("", entry(id, 10'000)));
  EXPECT_TRUE(store.find("", "a"));
  EXPECT_TRUE(store.put("", entry("d", 10'000)));
  EXPECT_FALSE(store.find("", "b"));
  for (const char* id : {"a", "c", "d"}) EXPECT_TRUE(store.find("", id)) << id;
  EXPECT_LE(store.size_bytes(), store.limits().bytes_max);

  EXPECT_FALSE(store.put("", entry("large", 100'000)));  // Larger than all of it.
  EXPECT_EQ(store.size_bytes(), 0);
  ResponseStore off({.bytes_max = 0}, clock);
  EXPECT_FALSE(off.put("", entry("a")));
  EXPECT_FALSE(off.find("", "a"));
}

TEST(ResponseStore, AConversationThatCanBeContinuedIsWhole) {
  ManualClock clock;
  ResponseStore store({}, clock);
  store.put("", entry("a"));
  store.put("", entry("b", 100, store.find("", "a")->turn));
  store.put("", entry("c", 100, store.find("", "b")->turn));
  store.put("", entry("fork", 100, store.find("", "a")->turn));
  EXPECT_TRUE(store.erase("", "a"));
  EXPECT_TRUE(store.erase("", "b"));
  const auto spoken = [&](const char* id) {
    std::string all;
    const ResponseTurn::Ptr turn = store.find("", id)->turn;
    for (const ResponseTurn::Ptr& one : turn->path(turn)) all += one->output();
    return all;
  };
  EXPECT_EQ(spoken("c"), "[\"out a\"][\"out b\"][\"out c\"]");
  EXPECT_EQ(spoken("fork"), "[\"out a\"][\"out fork\"]");
  EXPECT_TRUE(store.erase("", "c"));
  EXPECT_EQ(spoken("fork"), "[\"out a\"][\"out fork\"]");
  EXPECT_TRUE(store.erase("", "fork"));
  EXPECT_EQ(store.size_bytes(), 0);
}

TEST(ResponseStore, ALongConversationEndsWithoutRecursion) {
  ManualClock clock;
  ResponseTurn::Ptr held;
  {
    ResponseStore store({.bytes_max = int64_t{1} << 40}, clock);
    ResponseTurn::Ptr last;
    for (int i = 0; i < 200'000; ++i) {
      store.put("", entry("turn", 1, std::move(last)));
      last = store.find("", "turn")->turn;
      store.erase("", "turn");
    }
    held = last;
    EXPECT_GT(store.size_bytes(), 200'000 * 20);
  }
  EXPECT_EQ(held->path(held).size(), 200'000u);  // It outlives its store.
  held.reset();
}

// Against a plain model: any history of puts, uses, deletions and time keeps the bounds and never gives a wrong body.
TEST(ResponseStore, AnyHistoryKeepsTheBounds) {
  for (const Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    ManualClock clock;
    ResponseStore store({.bytes_max = 120'000, .seconds_max = 50}, clock);
    struct Known {
      std::string domain, body;
      int64_t end_ns;
    };
    std::unordered_map<std::string, Known> known;
    int found = 0, evicted = 0, expired = 0;
    for (int step = 0; step < 3000; ++step) {
      clock.advance_ns(rng.between(0, kSecond));
      const std::string domain = cat("key", rng.between(0, 2));
      const std::string id = cat("r", rng.between(std::max(0, step - 150), step));
      if (rng.percent(40)) {
        ResponseStore::Entry made = entry(cat("r", step), static_cast<size_t>(rng.between(0, 4000)));
        made.body += cat(step);
        if (const auto before = store.find(domain, id)) made.previous = before->turn;
        known[made.id] = {domain, made.body, clock.now_ns() + 50 * kSecond};
        store.put(domain, std::move(made));
      } else if (rng.percent(10)) {
        if (store.erase(domain, id)) known.erase(id);
      } else {
        const auto got = store.find(domain, id);
        const auto right = known.find(id);
        if (got) {
          ASSERT_TRUE(right != known.end() && right->second.domain == domain);
          EXPECT_EQ(got->body, right->second.body);
          EXPECT_LT(clock.now_ns(), right->second.end_ns);
          ++found;
        } else if (right != known.end() && right->second.domain == domain) {
          ++(clock.now_ns() < right->second.end_ns ? evicted : expired);
        }
      }
      ASSERT_LE(store.size_bytes(), 120'000);
    }
    EXPECT_GT(found, 0);
    EXPECT_GT(evicted, 0);
    EXPECT_GT(expired, 0);
  }
}

}  // namespace
}  // namespace wp
