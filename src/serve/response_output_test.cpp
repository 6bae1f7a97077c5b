// Items and events of one response, piece by piece: their order, and that what is streamed, joined, is what is whole.
#include "serve/response_output.h"

#include "serve/output_parser.h"
#include "testing/response_replay.h"

namespace wp {
namespace {

using testing::ResponseReplay;

ResponseTools tools() {
  ResponseTools made;
  std::vector<std::string> skipped;
  const auto error = made.read(Json::parse(R"([{"type":"function","name":"ls"},{"type":"custom","name":"patch"},
      {"type":"namespace","name":"agents","tools":[{"type":"function","name":"spawn"}]}])"),
                               &skipped);
  EXPECT_FALSE(error);
  return made;
}

// What a model says, in pieces of `step` bytes, as items and events; the events must agree with the items.
struct Played {
  Json items;
  std::string outline;
};
Played play(const std::string& said, size_t step, bool complete, ResponseOutputRules rules = {}) {
  const ResponseTools known = tools();
  const ToolSchemas schemas(known.functions());
  OutputParser parser({.start = OutputRules::Start::thinking, .tools = true}, schemas);
  ResponseOutput output(known, rules);
  ResponseReplay replay;
  const auto feed = [&](std::vector<OutputPiece> pieces) {
    for (const OutputPiece& piece : pieces) output.push(piece, cat("call_", piece.call), Json::array());
    for (const Json& event : output.take_events()) replay.read(event);
  };
  for (size_t at = 0; at < said.size(); at += step) {
    std::vector<OutputPiece> pieces;
    parser.push(said.substr(at, step), &pieces);
    feed(std::move(pieces));
  }
  std::vector<OutputPiece> pieces;
  parser.finish(complete, &pieces);
  feed(std::move(pieces));
  output.finish(!complete);
  feed({});
  if (rules.events) {
    EXPECT_EQ(replay.items(), output.items());
    EXPECT_EQ(replay.open(), !complete && replay.outline().find("call_arguments") != std::string::npos);
  }
  return {output.items(), replay.outline()};
}

// Without ids, which differ from run to run.
Json plain(Json items) {
  for (Json& item : items) item.erase("id");
  return items;
}

const char* const kAll =
    "I look.\n</think>\n\nLet me see.\n\n<tool_call>\n<function=ls>\n<parameter=path>\n.\n</parameter>\n</function>\n"
    "</tool_call>\n<tool_call>\n<function=patch>\n<parameter=input>\n*** "
    "\"a\"\nb\n</parameter>\n</function>\n</tool_call>"
    "\n<tool_call>\n<function=agents__spawn>\n</function>\n</tool_call>";

TEST(ResponseOutput, EventsOfEachItemStandInTheirOrder) {
  const Played whole = play(kAll, 1, true);
  EXPECT_EQ(
      whole.outline,
      "output_item.added reasoning_text.delta reasoning_text.done output_item.done "
      "output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done "
      "output_item.added function_call_arguments.delta function_call_arguments.done output_item.done "
      "output_item.added custom_tool_call_input.delta custom_tool_call_input.done output_item.done "
      "output_item.added function_call_arguments.delta function_call_arguments.done output_item.done ");
  EXPECT_EQ(plain(whole.items), Json::parse(R"([
      {"type":"reasoning","summary":[],"status":"completed","content":[{"type":"reasoning_text","text":"I look."}]},
      {"type":"message","role":"assistant","status":"completed",
       "content":[{"type":"output_text","text":"Let me see.","annotations":[],"logprobs":[]}]},
      {"type":"function_call","call_id":"call_0","name":"ls","arguments":"{\"path\":\".\"}","status":"completed"},
      {"type":"custom_tool_call","call_id":"call_1","name":"patch","input":"*** \"a\"\nb","status":"completed"},
      {"type":"function_call","call_id":"call_2","name":"spawn","namespace":"agents","arguments":"{}",
       "status":"completed"}])"));
}

TEST(ResponseOutput, ItemsDoNotDependOnTheSplitNorOnTheEvents) {
  const Json whole = plain(play(kAll, 4096, true).items);
  for (const size_t step : {1u, 2u, 3u, 7u, 50u}) EXPECT_EQ(plain(play(kAll, step, true).items), whole) << step;
  EXPECT_EQ(plain(play(kAll, 3, true, {.events = false}).items), whole);
  const Played none = play(kAll, 3, true, {.events = false});
  EXPECT_EQ(none.outline, "");
}

TEST(ResponseOutput, ThoughtsAsSummaryAndSealed) {
  const Played played = play("Hm.\nWell.\n</think>\n\nYes.", 2, true, {.summary = true, .encrypted = true});
  EXPECT_EQ(
      played.outline,
      "output_item.added reasoning_summary_part.added reasoning_summary_text.delta reasoning_summary_text.done "
      "reasoning_summary_part.done output_item.done "
      "output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done ");
  EXPECT_EQ(played.items[0]["summary"], Json::parse(R"([{"type":"summary_text","text":"Hm.\nWell."}])"));
  EXPECT_FALSE(played.items[0].contains("content"));
  EXPECT_NE(played.items[0]["encrypted_content"].get<std::string>().find("Hm.\nWell."), std::string::npos);
}

TEST(ResponseOutput, A10ACallThatALimitCutIsNoItem) {
  const Json items = play("x</think>\n\n<tool_call>\n<function=ls>\n<parameter=path>\n/a/b", 1, false).items;
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0]["type"], "reasoning");
  EXPECT_EQ(items[0]["status"], "completed");
  EXPECT_EQ(play("x</think>\n\nIn the mid", 1, false).items[1]["status"], "incomplete");
}

// Every item that was added is done, for clients that wait for it; the text of what was no call follows.
TEST(ResponseOutput, ACallThatTurnsOutToBeTextIsIncomplete) {
  const Json items = play("x</think>\n\n<tool_call>\n<function=ls>\n<parameter=pa", 1, true).items;
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[1]["type"], "function_call");
  EXPECT_EQ(items[1]["status"], "incomplete");
  EXPECT_EQ(items[2]["content"][0]["text"], "<tool_call>\n<function=ls>\n<parameter=pa");
}

}  // namespace
}  // namespace wp
