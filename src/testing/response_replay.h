// ResponseReplay: reads the events of a Responses stream as a strict client does: numbers rise by one, an item is added
// before anything is said of it, ids and places agree, the deltas joined are what is done, nothing is left open. Test
// programs only.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/json.h"

namespace wp::testing {

class ResponseReplay {
 public:
  void read(const Json& event) {
    SCOPED_TRACE(dump_json(event));
    EXPECT_EQ(event.value("sequence_number", -1), sequence_++);
    const std::string type = event.value("type", "");
    kinds_ += type + "\n";
    if (type == "response.output_item.added") return added(event);
    if (type == "response.output_item.done") return done(event);
    if (!event.contains("item_id")) return;
    EXPECT_FALSE(item_.is_null()) << "before its item";
    EXPECT_EQ(event["item_id"], item_["id"]);
    EXPECT_EQ(event["output_index"], place_);
    EXPECT_EQ(event.value("content_index", 0), 0);
    EXPECT_EQ(event.value("summary_index", 0), 0);
    if (event.contains("delta")) text_ += event["delta"].get<std::string>();
    for (const char* whole : {"text", "arguments", "input"})
      if (event.contains(whole)) {
        EXPECT_EQ(event[whole], text_);
        text_done_ = true;
      }
  }

  const Json& items() const { return items_; }         // Done, in order.
  bool open() const { return !item_.is_null(); }       // An item was added and is not done.
  const std::string& kinds() const { return kinds_; }  // Types of all events, one a line.
  // The same with runs of deltas as one line each.
  std::string outline() const {
    std::string out, last;
    for (size_t at = 0; at < kinds_.size();) {
      const size_t end = kinds_.find('\n', at);
      const std::string one = kinds_.substr(at, end - at);
      at = end + 1;
      if (one == last && one.size() > 6 && one.substr(one.size() - 6) == ".delta") continue;
      last = one;
      out += (one.rfind("response.", 0) == 0 ? one.substr(9) : one) + " ";
    }
    return out;
  }

 private:
  void added(const Json& event) {
    EXPECT_TRUE(item_.is_null()) << "while another is open";
    item_ = event["item"];
    place_ = event["output_index"];
    EXPECT_EQ(place_, static_cast<int64_t>(items_.size()));
    EXPECT_EQ(item_["status"], "in_progress");
    EXPECT_EQ(ids_[item_["id"].get<std::string>()]++, 0) << "an id twice";
    text_.clear();
    text_done_ = false;
  }
  void done(const Json& event) {
    const Json& item = event["item"];
    EXPECT_EQ(event["output_index"], place_);
    for (const char* same : {"id", "type", "call_id", "name", "namespace", "role"})
      EXPECT_EQ(item.value(same, ""), item_.value(same, "")) << same;
    EXPECT_TRUE(text_done_);
    EXPECT_EQ(text_of(item), text_);
    items_.push_back(item);
    item_ = nullptr;
  }
  static std::string text_of(const Json& item) {
    for (const char* whole : {"arguments", "input"})
      if (item.contains(whole)) return item[whole];
    std::string text;
    for (const char* parts : {"summary", "content"})
      if (item.contains(parts))
        for (const Json& part : item[parts]) text += part["text"].get<std::string>();
    return text;
  }

  int64_t sequence_ = 0, place_ = -1;
  std::string kinds_, text_;
  bool text_done_ = false;
  Json item_ = nullptr, items_ = Json::array();
  std::map<std::string, int> ids_;
};

}  // namespace wp::testing
