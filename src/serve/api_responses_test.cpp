// The body of a response: every field with every wrong type, tools of every kind, and items as clients resend them,
// down to the messages of the chat that they stand for (spec/api.md 8, 12 D and E).
#include "serve/api_responses.h"

#include <gtest/gtest.h>

namespace wp {
namespace {

const ParseContext kContext{.context_tokens = 8192, .vocabulary = 1000};

Json base() { return Json::parse(R"({"input":"hi"})"); }

std::optional<ApiError> parse(const Json& body, ChatRequest* chat, ResponsesRequest* kept = nullptr,
                              const std::vector<Json>& history = {}, const FindItem& find_item = {}) {
  ResponsesRequest request;
  if (auto error = parse_responses(body, &request)) return error;
  auto error = lower_responses(request, history, find_item, kContext, chat);
  if (kept) *kept = std::move(request);
  return error;
}

// The messages of a list of items; a refusal fails the test.
Json messages_of(const Json& items, const FindItem& find_item = {}) {
  ChatRequest chat;
  const auto error = parse({{"input", items}}, &chat, nullptr, {}, find_item);
  EXPECT_FALSE(error) << error->message;
  return chat.history.messages;
}

struct Field {
  const char* name;
  const char* kind;  // What a right value looks like, in JSON.
};

constexpr Field kFields[] = {{"model", "\"m\""},
                             {"instructions", "\"be brief\""},
                             {"previous_response_id", "\"resp_1\""},
                             {"max_output_tokens", "5"},
                             {"temperature", "0.5"},
                             {"top_p", "0.5"},
                             {"top_logprobs", "3"},
                             {"stream", "true"},
                             {"stream_options", "{}"},
                             {"store", "true"},
                             {"include", "[]"},
                             {"reasoning", "{}"},
                             {"text", "{}"},
                             {"tools", "[]"},
                             {"tool_choice", "\"auto\""},
                             {"parallel_tool_calls", "true"},
                             {"max_tool_calls", "5"},
                             {"metadata", "{}"},
                             {"user", "\"u\""},
                             {"safety_identifier", "\"u\""},
                             {"service_tier", "\"auto\""},
                             {"prompt_cache_key", "\"k\""},
                             {"seed", "5"},
                             {"top_k", "5"},
                             {"stop", "\"x\""},
                             {"return_progress", "true"}};

TEST(ApiResponses, E3EveryFieldWithEveryWrongType) {
  const Json values = Json::parse(R"([5, "text", true, [1], {"a": 1}])");
  for (const Field& field : kFields) {
    SCOPED_TRACE(field.name);
    const Json right = Json::parse(field.kind);
    Json body = base();
    ChatRequest chat;
    body[field.name] = right;
    EXPECT_FALSE(parse(body, &chat));
    body[field.name] = nullptr;
    EXPECT_FALSE(parse(body, &chat));
    for (const Json& wrong : values) {
      if (wrong.type() == right.type() || (wrong.is_number() && right.is_number())) continue;
      body[field.name] = wrong;
      ChatRequest refused;
      const auto error = parse(body, &refused);
      ASSERT_TRUE(error) << dump_json(wrong);
      EXPECT_EQ(error->status, 400);
      EXPECT_EQ(error->param.compare(0, std::string(field.name).size(), field.name), 0) << error->param;
      EXPECT_NE(error->message.find("expected"), std::string::npos) << error->message;
    }
  }
}

TEST(ApiResponses, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "input"},
      {R"({"input":5})", "input"},
      {R"({"input":[null]})", "input[0]"},
      {R"({"input":["x"]})", "input[0]"},
      {R"({"input":[{}]})", "input[0].type"},
      {R"({"input":[{"id":"msg_1"}]})", "input[0].id"},
      {R"({"input":[{"type":5}]})", "input[0].type"},
      {R"({"input":[{"role":1,"content":"x"}]})", "input[0].role"},
      {R"({"input":[{"role":"alien","content":"x"}]})", "input[0].role"},
      {R"({"input":[{"role":"user"}]})", "input[0].content"},
      {R"({"input":[{"role":"user","content":[5]}]})", "input[0].content[0]"},
      {R"({"input":[{"role":"user","content":[{"type":"input_text"}]}]})", "input[0].content[0].text"},
      {R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"file:///etc/passwd"}]}]})",
       "input[0].content[0].type"},
      {R"({"input":[{"role":"system","content":"only"}]})", "input"},  // A22
      {R"({"input":[{"type":"function_call","arguments":"{}"}]})", "input[0].name"},
      {R"({"input":[{"type":"function_call","name":"f"}]})", "input[0].arguments"},
      {R"({"input":[{"type":"function_call","name":5,"arguments":"{}"}]})", "input[0].name"},
      {R"({"input":[{"type":"function_call_output","call_id":"c"}]})", "input[0].output"},
      {R"({"input":[{"type":"function_call_output","call_id":"c","output":{"a":1}}]})", "input[0].output"},
      {R"({"input":[{"type":"local_shell_call","call_id":"c"}]})", "input[0].action"},
      {R"({"input":[{"type":"reasoning","summary":"s"}]})", "input[0].summary"},
      {R"({"input":[{"type":"item_reference","id":"msg_1"}]})", "input[0].id"},
      {R"({"input":"x","background":true})", "background"},
      {R"({"input":"x","conversation":"conv_1"})", "conversation"},
      {R"({"input":"x","truncation":"auto"})", "truncation"},
      {R"({"input":"x","max_output_tokens":0})", "max_output_tokens"},
      {R"({"input":"x","max_output_tokens":9000})", "max_output_tokens"},
      {R"({"input":"x","reasoning":{"effort":"enormous"}})", "reasoning.effort"},
      {R"({"input":"x","reasoning":{"summary":"enormous"}})", "reasoning.summary"},
      {R"({"input":"x","text":{"format":{"type":"poem"}}})", "text.format.type"},
      {R"({"input":"x","tools":[5]})", "tools[0]"},
      {R"({"input":"x","tools":[{"type":"function"}]})", "tools[0].name"},
      {R"({"input":"x","tools":[{"type":"namespace","name":"n"}]})", "tools[0].tools"},
      {R"({"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function"}]}]})",
       "tools[0].tools[0].name"},
      {R"({"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"web_search"}})",
       "tool_choice.type"},
      {R"({"input":"x","include":[5]})", "include"}};
  for (const auto& [body, param] : cases) {
    ChatRequest chat;
    const auto error = parse(Json::parse(body), &chat);
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->status, 400) << body;
    EXPECT_EQ(error->param, param) << body << error->message;
    EXPECT_NE(error->message.find("expected"), std::string::npos) << error->message;
  }
}

TEST(ApiResponses, InstructionsAreTheSystemMessage) {
  ChatRequest chat;
  ASSERT_FALSE(parse({{"instructions", "Be brief."}, {"input", "hi"}}, &chat));
  EXPECT_EQ(chat.history.messages,
            Json::parse(R"([{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}])"));
  // As Codex begins: instructions, a developer's message, two of the user.
  ChatRequest codex;
  ASSERT_FALSE(parse(Json::parse(R"({"instructions":"A","input":[
      {"type":"message","role":"developer","content":[{"type":"input_text","text":"B"}]},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"C1"},{"type":"input_text","text":"C2"}]},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"D"}]}]})"),
                     &codex));
  EXPECT_EQ(codex.history.messages, Json::parse(R"([{"role":"system","content":"A\n\nB"},
      {"role":"user","content":"C1C2"},{"role":"user","content":"D"}])"));
}

TEST(ApiResponses, ItemsOfOneTurnAreOneMessage) {
  const Json turn = Json::parse(R"([
      {"role":"user","content":"go"},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},
      {"type":"message","id":"msg_1","role":"assistant","status":"completed",
       "content":[{"type":"output_text","text":"I look.","annotations":[]}]},
      {"type":"function_call","id":"fc_1","call_id":"call_1","name":"ls","arguments":"{\"path\":\".\"}"},
      {"type":"function_call","id":"fc_2","call_id":"call_2","name":"ls","arguments":"{}"},
      {"type":"function_call_output","call_id":"call_1","output":"a b"},
      {"type":"function_call_output","call_id":"call_2","output":[{"type":"input_text","text":"c"}]},
      {"type":"message","role":"assistant","content":"Done."},
      {"type":"message","role":"assistant","content":"Really."}])");
  EXPECT_EQ(messages_of(turn), Json::parse(R"([
      {"role":"user","content":"go"},
      {"role":"assistant","content":"I look.","reasoning_content":"Hm.","tool_calls":[
        {"id":"call_1","type":"function","function":{"name":"ls","arguments":{"path":"."}}},
        {"id":"call_2","type":"function","function":{"name":"ls","arguments":{}}}]},
      {"role":"tool","content":"a b","tool_call_id":"call_1"},
      {"role":"tool","content":"c","tool_call_id":"call_2"},
      {"role":"assistant","content":"Done."},
      {"role":"assistant","content":"Really."}])"));
}

TEST(ApiResponses, AThoughtComesBackInEachOfItsForms) {
  const auto thought = [](const char* item) {
    const Json messages = messages_of(Json::array(
        {{{"role", "user"}, {"content", "go"}}, Json::parse(item), {{"role", "assistant"}, {"content", "x"}}}));
    EXPECT_EQ(messages.size(), 2u);
    return messages[1].value("reasoning_content", "none");
  };
  EXPECT_EQ(thought(R"({"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"a"}]})"), "a");
  EXPECT_EQ(thought(R"({"type":"reasoning","summary":[],"content":[{"type":"text","text":"a"}]})"), "a");
  EXPECT_EQ(thought(R"({"type":"reasoning","summary":[{"type":"summary_text","text":"a"}]})"), "a");
  EXPECT_EQ(thought(R"({"type":"reasoning","summary":[],"content":null,"encrypted_content":null})"), "none");
  const Json sealed = {
      {"type", "reasoning"}, {"summary", Json::array()}, {"encrypted_content", sealed_thought("a\nb")}};
  EXPECT_EQ(thought(dump_json(sealed).c_str()), "a\nb");
  // Another server's seal says nothing here; what stands beside it does.
  EXPECT_EQ(
      thought(R"({"type":"reasoning","summary":[{"type":"summary_text","text":"a"}],"encrypted_content":"gAAA"})"),
      "a");
}

TEST(ApiResponses, CustomAndShellCallsAreCalls) {
  EXPECT_EQ(messages_of(Json::parse(R"([{"role":"user","content":"go"},
      {"type":"custom_tool_call","call_id":"c1","name":"apply_patch","input":"*** Begin \"x\""},
      {"type":"custom_tool_call_output","call_id":"c1","output":"ok"},
      {"type":"local_shell_call","call_id":"c2","status":"completed",
       "action":{"type":"exec","command":["ls"],"env":{}}},
      {"type":"local_shell_call_output","id":"c2","output":"a"},
      {"type":"function_call","call_id":"c3","name":"spawn","namespace":"agents","arguments":"{}"},
      {"type":"function_call_output","call_id":"c3","output":"ok"}])")),
            Json::parse(R"([{"role":"user","content":"go"},
      {"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",
        "function":{"name":"apply_patch","arguments":{"input":"*** Begin \"x\""}}}]},
      {"role":"tool","content":"ok","tool_call_id":"c1"},
      {"role":"assistant","content":"","tool_calls":[{"id":"c2","type":"function",
        "function":{"name":"local_shell","arguments":{"command":["ls"],"env":{}}}}]},
      {"role":"tool","content":"a","tool_call_id":"c2"},
      {"role":"assistant","content":"","tool_calls":[{"id":"c3","type":"function",
        "function":{"name":"agents__spawn","arguments":{}}}]},
      {"role":"tool","content":"ok","tool_call_id":"c3"}])"));
}

TEST(ApiResponses, UnknownItemsAreSkippedAndNamed) {
  ResponsesRequest request;
  ChatRequest chat;
  ASSERT_FALSE(parse(Json::parse(R"({"input":[{"role":"user","content":"go"},{"type":"web_search_call","id":"ws_1"},
      {"type":"ghost_snapshot"},{"type":"web_search_call","id":"ws_2"},
      {"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:,"}]}]})"),
                     &chat, &request));
  EXPECT_EQ(chat.history.messages.size(), 2u);
  EXPECT_EQ(chat.history.messages[1]["content"], "[not shown: this model reads text only]");
  EXPECT_EQ(request.skipped, (std::vector<std::string>{"item web_search_call", "item ghost_snapshot", "input_image"}));
}

TEST(ApiResponses, ReferencesStandForStoredItems) {
  const FindItem find_item = [](const std::string& id) -> std::optional<Json> {
    if (id != "msg_1") return std::nullopt;
    return Json::parse(R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"said"}]})");
  };
  const Json messages =
      messages_of(Json::parse(R"([{"role":"user","content":"go"},{"type":"item_reference","id":"msg_1"}])"), find_item);
  EXPECT_EQ(messages, Json::parse(R"([{"role":"user","content":"go"},{"role":"assistant","content":"said"}])"));
}

TEST(ApiResponses, HistoryStandsBeforeTheInputAndBehindTheInstructions) {
  ChatRequest chat;
  const std::vector<Json> history = {Json::parse(R"([{"role":"user","content":"one"}])"),
                                     Json::parse(R"([{"type":"message","role":"assistant","content":"two"}])")};
  ASSERT_FALSE(
      parse({{"input", "three"}, {"instructions", "new"}, {"previous_response_id", "r"}}, &chat, nullptr, history));
  EXPECT_EQ(chat.history.messages, Json::parse(R"([{"role":"system","content":"new"},{"role":"user","content":"one"},
      {"role":"assistant","content":"two"},{"role":"user","content":"three"}])"));
}

TEST(ApiResponses, D1ToolsOfEveryKind) {
  const Json body = Json::parse(R"({"input":"go","tools":[
      {"type":"function","name":"ls","description":"lists","strict":false,
       "parameters":{"type":"object","properties":{"path":{"type":"string"}}}},
      {"type":"namespace","name":"multi_agent_v1","description":"agents","tools":[
        {"type":"function","name":"spawn","parameters":{"type":"object","properties":{}}}, {"type":"web_search"}]},
      {"type":"namespace","name":"mcp__files__","tools":[{"type":"function","name":"read"}]},
      {"type":"web_search"},{"type":"image_generation"},{"type":"local_shell"},
      {"type":"mcp","server_label":"x","server_url":"https://example.com"},
      {"type":"custom","name":"apply_patch","description":"Edits.",
       "format":{"type":"grammar","syntax":"lark","definition":"start: x"}}]})");
  ResponsesRequest request;
  ChatRequest chat;
  ASSERT_FALSE(parse(body, &chat, &request));
  EXPECT_EQ(chat.tools, Json::parse(R"([
      {"type":"function","function":{"name":"ls","description":"lists",
       "parameters":{"type":"object","properties":{"path":{"type":"string"}}}}},
      {"type":"function","function":{"name":"multi_agent_v1__spawn","parameters":{"type":"object","properties":{}}}},
      {"type":"function","function":{"name":"mcp__files__read"}},
      {"type":"function","function":{"name":"apply_patch",
       "description":"Edits.\n\nThe input follows this lark grammar:\nstart: x","parameters":{"type":"object",
       "properties":{"input":{"type":"string","description":"All that the tool reads, as it stands."}},
       "required":["input"]}}}])"));
  EXPECT_EQ(request.skipped, (std::vector<std::string>{"tool web_search", "tool web_search", "tool image_generation",
                                                       "tool local_shell", "tool mcp"}));
  const ResponseTools::Tool* spawn = request.tools.find("multi_agent_v1__spawn");
  ASSERT_TRUE(spawn);
  EXPECT_EQ(spawn->name, "spawn");
  EXPECT_EQ(spawn->name_space, "multi_agent_v1");
  EXPECT_TRUE(request.tools.find("apply_patch")->custom);
  EXPECT_FALSE(request.tools.find("spawn"));
}

TEST(ApiResponses, AllowedToolsAreTheOnlyOnes) {
  Json body = Json::parse(R"({"input":"go","tools":[{"type":"function","name":"a"},{"type":"function","name":"b"}],
      "tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"b"}]}})");
  ChatRequest chat;
  ASSERT_FALSE(parse(body, &chat));
  EXPECT_EQ(chat.tools, Json::parse(R"([{"type":"function","function":{"name":"b"}}])"));
  body["tool_choice"] = "none";
  ChatRequest none;
  ASSERT_FALSE(parse(body, &none));
  EXPECT_FALSE(none.calls_allowed);
}

TEST(ApiResponses, D4AProbeIsNoRequest) {
  for (const char* body : {R"({"input":[],"max_output_tokens":1})", R"({"input":[],"tools":[],"instructions":"x"})"}) {
    ResponsesRequest request;
    ChatRequest chat;
    EXPECT_FALSE(parse(Json::parse(body), &chat, &request));
    EXPECT_TRUE(request.is_probe());
  }
  ChatRequest chat;
  EXPECT_EQ(parse(Json::parse(R"({"input":[],"temperature":"hot"})"), &chat)->param, "temperature");
}

TEST(ApiResponses, WhatTheChatReadsMeansTheSame) {
  ResponsesRequest request;
  ChatRequest chat;
  ASSERT_FALSE(parse(Json::parse(R"({"input":"go","model":"m","max_output_tokens":7,"temperature":0.25,"stream":true,
      "reasoning":{"effort":"none","summary":"auto"},"include":["reasoning.encrypted_content"],"store":false,
      "top_logprobs":2,"prompt_cache_key":"k","n":3,"surprise":1})"),
                     &chat, &request));
  EXPECT_EQ(chat.common.max_tokens, 7);
  EXPECT_EQ(chat.common.sampling.temperature, 0.25f);
  EXPECT_TRUE(chat.common.stream);
  EXPECT_EQ(chat.common.conversation, "k");
  EXPECT_EQ(chat.common.sampling.top_logprobs, 2);
  EXPECT_EQ(chat.common.n, 1);
  EXPECT_EQ(chat.variables["enable_thinking"], false);
  EXPECT_EQ(chat.common.unknown, (std::vector<std::string>{"surprise", "n"}));
  EXPECT_TRUE(request.summary && request.encrypted && request.logprobs && !request.store);
  EXPECT_EQ(request.echo["reasoning"], Json::parse(R"({"effort":"none","summary":"auto"})"));
}

}  // namespace
}  // namespace wp
