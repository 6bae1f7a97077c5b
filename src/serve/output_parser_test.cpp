// The corpus testdata/toolcalls/qwen_xml.jsonl (spec/api.md 12 A): each text whole, byte by byte, in pieces of several
// sizes and cut at every place gives what the corpus expects, and the streamed pieces join to the same.
#include "serve/output_parser.h"

#include <gtest/gtest.h>

#include <fstream>

#include "testing/seeds.h"

namespace wp {
namespace {

struct Case {
  std::string name, raw;
  OutputRules rules;
  bool complete = true;
  Json tools, expect;
};

std::vector<Case> corpus() {
  std::vector<Case> cases;
  std::ifstream file(testing::source_directory() + "/testdata/toolcalls/qwen_xml.jsonl");
  for (std::string line; std::getline(file, line);) {
    auto parsed = parse_json(line);
    EXPECT_TRUE(parsed.ok()) << line;
    if (!parsed.ok()) continue;
    Case made{.name = (*parsed)["name"], .raw = (*parsed)["raw"]};
    const std::string start = (*parsed)["start"];
    made.rules.start = start == "thinking" ? OutputRules::Start::thinking
                       : start == "either" ? OutputRules::Start::either
                                           : OutputRules::Start::answer;
    made.complete = (*parsed)["complete"];
    made.tools = (*parsed)["tools"];
    made.rules.tools = !made.tools.is_null();
    made.expect = (*parsed)["expect"];
    cases.push_back(std::move(made));
  }
  return cases;
}

// What a client that joins the pieces ends up with.
Json joined(const Case& one, const std::vector<std::string_view>& pieces, int* argument_deltas = nullptr) {
  const ToolSchemas schemas(one.tools);
  OutputParser parser(one.rules, schemas);
  std::vector<OutputPiece> out;
  for (const std::string_view piece : pieces) {
    const size_t before = out.size();
    parser.push(piece, &out);
    for (size_t i = before; argument_deltas && i < out.size(); ++i)
      *argument_deltas += out[i].kind == OutputPiece::Kind::call_arguments;
    for (size_t i = before; i < out.size(); ++i)
      EXPECT_TRUE(out[i].kind == OutputPiece::Kind::call_end || !out[i].text.empty());
    // A fresh vector for each push, as streams have it.
    out.push_back({OutputPiece::Kind::content, "", -1});
  }
  parser.finish(one.complete, &out);
  std::string reasoning, content;
  Json begun = Json::array();
  std::vector<bool> complete;
  for (const OutputPiece& piece : out) {
    switch (piece.kind) {
      case OutputPiece::Kind::reasoning: reasoning += piece.text; break;
      case OutputPiece::Kind::content: content += piece.text; break;
      case OutputPiece::Kind::call_begin:
        EXPECT_EQ(piece.call, static_cast<int>(begun.size()));
        begun.push_back({{"name", piece.text}, {"arguments", ""}});
        complete.push_back(false);
        break;
      case OutputPiece::Kind::call_arguments:
        begun[piece.call]["arguments"] = begun[piece.call]["arguments"].get<std::string>() + piece.text;
        break;
      case OutputPiece::Kind::call_end: complete[piece.call] = true; break;
    }
  }
  Json calls = Json::array();
  for (size_t i = 0; i < begun.size(); ++i) {
    if (!complete[i]) continue;
    auto arguments = parse_json(begun[i]["arguments"].get<std::string>());
    EXPECT_TRUE(arguments.ok()) << begun[i]["arguments"];
    if (arguments.ok()) begun[i]["arguments"] = *arguments;
    calls.push_back(begun[i]);
  }
  EXPECT_EQ(static_cast<int>(calls.size()), parser.calls());
  return {{"reasoning", reasoning}, {"content", content}, {"calls", calls}, {"repairs", parser.repairs()}};
}

std::vector<std::string_view> cut(std::string_view text, size_t size) {
  std::vector<std::string_view> out;
  for (size_t i = 0; i < text.size(); i += size) out.push_back(text.substr(i, size));
  return out;
}

TEST(OutputParser, CorpusWholeAndInPieces) {
  const std::vector<Case> cases = corpus();
  ASSERT_GT(cases.size(), 40u);
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    EXPECT_EQ(joined(one, {one.raw}), one.expect);
    for (const size_t size : {1u, 2u, 3u, 7u, 16u}) {
      SCOPED_TRACE(size);
      EXPECT_EQ(joined(one, cut(one.raw, size)), one.expect);
    }
  }
}

TEST(OutputParser, CorpusCutAtEveryPlace) {
  for (const Case& one : corpus()) {
    SCOPED_TRACE(one.name);
    const std::string_view raw = one.raw;
    if (raw.size() > 1500) continue;  // Quadratic; the long one is cut in pieces above.
    for (size_t at = 0; at <= raw.size(); ++at)
      ASSERT_EQ(joined(one, {raw.substr(0, at), raw.substr(at)}), one.expect) << "cut at " << at;
  }
}

// A3: arguments come while they are generated, not at the end.
TEST(OutputParser, LongArgumentsComeInPieces) {
  for (const Case& one : corpus()) {
    if (one.name.substr(0, 2) != "A3") continue;
    int deltas = 0;
    joined(one, cut(one.raw, 8), &deltas);
    EXPECT_GT(deltas, 100);
  }
}

// Random joins of fragments of the grammar: whole equals split, whatever nonsense they form.
TEST(OutputParser, AnyTextWholeEqualsSplit) {
  static const char* const kFragments[] = {"<tool_call>",
                                           "</tool_call>",
                                           "<function=ls>",
                                           "</function>",
                                           "<parameter=path>",
                                           "</parameter>",
                                           "<parameter=n>",
                                           "<think>",
                                           "</think>",
                                           "\n",
                                           " ",
                                           "text",
                                           "<",
                                           "</",
                                           "5",
                                           "{\"a\":1}",
                                           "\"",
                                           "\\",
                                           "<parameter=",
                                           "é",
                                           ">"};
  testing::Marks marks({"call", "reasoning", "repair", "dropped"});
  const Json tools = corpus()[0].tools;
  for (const Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    for (int round = 0; round < 3000; ++round) {
      Case one{.name = "random", .tools = tools};
      one.rules = {.start = static_cast<OutputRules::Start>(rng.between(0, 2)), .tools = true};
      one.complete = rng.percent(70);
      // Half of the texts follow the grammar for a while.
      if (rng.percent(50)) one.raw = "<tool_call>\n<function=ls>\n<parameter=path>\n";
      for (int64_t n = rng.between(1, 24); n > 0; --n) one.raw += kFragments[rng.between(0, std::size(kFragments) - 1)];
      if (rng.percent(30)) one.raw += "\n</parameter>\n</function>\n</tool_call>";
      const Json whole = joined(one, {one.raw});
      if (!whole["calls"].empty()) marks.reach("call");
      if (!whole["reasoning"].get<std::string>().empty()) marks.reach("reasoning");
      if (!whole["repairs"].empty()) marks.reach("repair");
      if (!one.complete && whole["calls"].empty()) marks.reach("dropped");
      ASSERT_EQ(joined(one, cut(one.raw, 1)), whole) << one.raw;
      const size_t at = static_cast<size_t>(rng.between(0, static_cast<int64_t>(one.raw.size())));
      ASSERT_EQ(joined(one, {std::string_view(one.raw).substr(0, at), std::string_view(one.raw).substr(at)}), whole)
          << one.raw << " cut at " << at;
    }
  }
  EXPECT_TRUE(marks.all_reached()) << marks.missing();
}

}  // namespace
}  // namespace wp
