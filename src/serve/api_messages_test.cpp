// Anthropic's bodies in the form of chats (spec/api.md 9, 12 D5, D6, D20, A19, A20, E3, E4): what becomes of each
// block, tool and field, and what is refused by its name.
#include "serve/api_messages.h"

#include <gtest/gtest.h>

namespace wp {
namespace {

const ParseContext kContext{.context_tokens = 8192, .vocabulary = 1000};

struct Parsed {
  MessagesRequest request;
  std::optional<ApiError> error;
};

Parsed parse(Json body) {
  Parsed parsed;
  if (!body.contains("messages")) body["messages"] = Json::parse(R"([{"role":"user","content":"hi"}])");
  parsed.error = parse_messages(body, kContext, &parsed.request);
  return parsed;
}

// The chat's messages of a body.
Json lowered(const char* body) {
  const Parsed parsed = parse(Json::parse(body));
  EXPECT_FALSE(parsed.error) << body << parsed.error->message;
  return parsed.request.chat.history.messages;
}

TEST(ApiMessages, BlocksBecomeMessages) {
  const struct {
    const char *body, *messages;
  } kCases[] = {
      {R"({"system":"be brief","messages":[{"role":"user","content":"hi"}]})",
       R"([{"role":"system","content":"be brief"},{"role":"user","content":"hi"}])"},
      {R"({"system":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}],
           "messages":[{"role":"user","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]}]})",
       R"([{"role":"system","content":"a\n\nb"},{"role":"user","content":"c\nd"}])"},
      {R"({"system":[],"messages":[{"role":"user","content":[]}]})", R"([{"role":"user","content":""}])"},
      // D6: thoughts are fed to the template, whoever signed them; parallel calls, their results and what is said
      // after.
      {R"({"messages":[{"role":"user","content":"go"},
            {"role":"assistant","content":[
              {"type":"thinking","thinking":"hm","signature":"anything"},{"type":"redacted_thinking","data":"x"},
              {"type":"text","text":"I "},{"type":"text","text":"look."},
              {"type":"tool_use","id":"toolu_1","name":"ls","input":{"path":".","depth":2}},
              {"type":"tool_use","id":"toolu_2","name":"now","input":{}}]},
            {"role":"user","content":[
              {"type":"tool_result","tool_use_id":"toolu_1","content":"a b"},
              {"type":"tool_result","tool_use_id":"toolu_2","is_error":true,
               "content":[{"type":"text","text":"no"},{"type":"text","text":"clock"}]},
              {"type":"text","text":"Go on."}]}]})",
       R"([{"role":"user","content":"go"},
           {"role":"assistant","content":"I look.","reasoning_content":"hm","tool_calls":[
             {"id":"toolu_1","type":"function","function":{"name":"ls","arguments":{"path":".","depth":2}}},
             {"id":"toolu_2","type":"function","function":{"name":"now","arguments":{}}}]},
           {"role":"tool","content":"a b","tool_call_id":"toolu_1"},
           {"role":"tool","content":"Error: no\nclock","tool_call_id":"toolu_2"},
           {"role":"user","content":"Go on."}])"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":"first"},
            {"type":"tool_result","tool_use_id":"t","is_error":true},{"type":"tool_result","tool_use_id":"u"}]}]})",
       R"([{"role":"user","content":"first"},{"role":"tool","content":"Error","tool_call_id":"t"},
           {"role":"tool","content":"","tool_call_id":"u"}])"},
      // A20: a later system message stays where it is.
      {R"({"system":"s","messages":[{"role":"system","content":"t"},{"role":"user","content":"a"},
            {"role":"assistant","content":"b"},{"role":"system","content":[{"type":"text","text":"late"}]},
            {"role":"user","content":"c"}]})",
       R"([{"role":"system","content":"s\n\nt"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},
           {"role":"system","content":"late"},{"role":"user","content":"c"}])"},
      // D5: what nobody here knows is left out.
      {R"({"messages":[{"role":"user","content":[{"type":"tool_addition","tools":[]},{"type":"text","text":"a"}]},
            {"role":"user","content":[{"type":"container_upload","file_id":"f"}]},
            {"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},
              {"type":"text","text":"b"}]},{"role":"user","content":"c"}]})",
       R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}])"},
      {R"({"messages":[{"role":"user","content":[
            {"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"D"}},
            {"type":"search_result","title":"U","source":"V","content":[{"type":"text","text":"W"}]}]}]})",
       R"([{"role":"user","content":"T\nD\nU\nV\nW"}])"},
  };
  for (const auto& one : kCases) EXPECT_EQ(lowered(one.body), Json::parse(one.messages)) << one.body;
}

TEST(ApiMessages, FieldsMeanTheSame) {
  const Parsed parsed = parse(Json::parse(R"({"model":"claude-x","max_tokens":64000,"temperature":0.5,"top_p":0.9,
      "top_k":20,"stream":true,"stop_sequences":["A","B"],
      "tools":[{"name":"ls","description":"lists","input_schema":{"type":"object"},
                "cache_control":{"type":"ephemeral"}},{"type":"custom","name":"now"}],
      "tool_choice":{"type":"auto","disable_parallel_tool_use":true}})"));
  ASSERT_FALSE(parsed.error) << parsed.error->message;
  const ChatRequest& chat = parsed.request.chat;
  EXPECT_EQ(chat.common.model, "claude-x");
  EXPECT_EQ(chat.common.max_tokens, 64000);  // Beyond the context: what it leaves.
  EXPECT_TRUE(chat.common.max_tokens_bounded);
  EXPECT_EQ(chat.common.sampling.temperature, 0.5f);
  EXPECT_EQ(chat.common.sampling.top_p, 0.9f);
  EXPECT_EQ(chat.common.sampling.top_k, 20);
  EXPECT_TRUE(chat.common.stream);
  EXPECT_EQ(chat.common.stops, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(chat.tools, Json::parse(R"([
      {"type":"function","function":{"name":"ls","description":"lists","parameters":{"type":"object"}}},
      {"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{}}}}])"));
  EXPECT_EQ(chat.tools_pin_s, 300);
  EXPECT_TRUE(chat.calls_allowed);
  EXPECT_FALSE(chat.parallel_calls);
  EXPECT_TRUE(chat.common.unknown.empty());
  const Parsed none = parse(Json::parse(R"({"tools":[{"name":"ls"}],"tool_choice":{"type":"none"}})"));
  EXPECT_FALSE(none.request.chat.calls_allowed);
  EXPECT_FALSE(none.request.chat.common.max_tokens);
}

TEST(ApiMessages, ThinkingIsOffUnlessAskedFor) {  // A19, D20
  const auto variables = [](const char* body) { return parse(Json::parse(body)).request.chat.variables; };
  EXPECT_EQ(variables("{}"), Json::parse(R"({"enable_thinking":false})"));
  EXPECT_EQ(variables(R"({"thinking":null})"), Json::parse(R"({"enable_thinking":false})"));
  EXPECT_EQ(variables(R"({"thinking":{"type":"disabled"}})"), Json::parse(R"({"enable_thinking":false})"));
  EXPECT_EQ(variables(R"({"thinking":{"type":"enabled","budget_tokens":2000}})"),
            Json::parse(R"({"enable_thinking":true})"));
  EXPECT_EQ(variables(R"({"thinking":{"type":"adaptive"}})"), Json::object());
  EXPECT_EQ(variables(R"({"chat_template_kwargs":{"enable_thinking":true}})"),
            Json::parse(R"({"enable_thinking":true})"));
}

TEST(ApiMessages, WhatHasNoEffectIsNamed) {  // D5, D20
  const Parsed parsed = parse(Json::parse(R"({"metadata":{"user_id":"u"},"context_management":{"edits":[]},
      "service_tier":"auto","output_config":{"effort":"high"},"thinking":{"type":"adaptive"},"surprise":1,
      "tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5}],
      "messages":[{"role":"user","content":[{"type":"tool_addition"},{"type":"text","text":"a"},
                                            {"type":"tool_addition"}]}]})"));
  ASSERT_FALSE(parsed.error) << parsed.error->message;
  EXPECT_EQ(parsed.request.ignored,
            (std::vector<std::string>{"thinking.type:adaptive", "tools[].type:web_search_20250305", "metadata",
                                      "context_management", "service_tier", "content[].type:tool_addition"}));
  EXPECT_EQ(parsed.request.chat.common.unknown, std::vector<std::string>{"surprise"});
  EXPECT_FALSE(parsed.request.chat.calls_allowed);
}

TEST(ApiMessages, BreakpointsPinWhatStandsBeforeThem) {
  const Parsed parsed = parse(Json::parse(R"({
      "system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"1h"}}],
      "messages":[{"role":"user","content":"a"},
        {"role":"assistant","content":[{"type":"text","text":"b"},
          {"type":"tool_use","id":"t","name":"f","input":{},"cache_control":{"type":"ephemeral"}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t",
          "content":[{"type":"text","text":"r","cache_control":{"type":"ephemeral"}}]},
          {"type":"text","text":"c"}]}]})"));
  ASSERT_FALSE(parsed.error) << parsed.error->message;
  EXPECT_EQ(parsed.request.chat.history.messages.size(), 5u);
  EXPECT_EQ(parsed.request.chat.history.breakpoints, (std::vector<size_t>{1, 3, 4}));
  EXPECT_EQ(parsed.request.chat.history.pin_s, 3600);
  // One for the request as a whole stands at its end.
  const Parsed whole = parse(Json::parse(R"({"cache_control":{"type":"ephemeral"}})"));
  EXPECT_EQ(whole.request.chat.history.breakpoints, std::vector<size_t>{1});
}

TEST(ApiMessages, AnAnswerToBeContinuedIsSeen) {
  EXPECT_FALSE(parse(Json::object()).request.prefill);
  EXPECT_TRUE(parse(Json::parse(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"{"}]})"))
                  .request.prefill);
}

struct Refusal {
  const char *body, *param;
};

void expect_refused(const std::vector<Refusal>& cases) {
  for (const Refusal& one : cases) {
    const Parsed parsed = parse(Json::parse(one.body));
    ASSERT_TRUE(parsed.error) << one.body;
    EXPECT_EQ(parsed.error->status, 400);
    EXPECT_EQ(parsed.error->param, one.param) << one.body << parsed.error->message;
    EXPECT_NE(parsed.error->message.find("expected"), std::string::npos) << parsed.error->message;
  }
}

TEST(ApiMessages, RefusalsNameTheBlock) {  // E4
  expect_refused({
      {R"({"messages":[]})", "messages"},
      {R"({"messages":null})", "messages"},
      {R"({"messages":"hi"})", "messages"},
      {R"({"messages":[null]})", "messages[0]"},
      {R"({"messages":["x"]})", "messages[0]"},
      {R"({"messages":[{}]})", "messages[0].role"},
      {R"({"messages":[{"role":1}]})", "messages[0].role"},
      {R"({"messages":[{"role":"tool","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[5]}]})", "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{}]}]})", "messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text"},
      {R"({"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":""}}]}]})",
       "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64"}}]}]})",
       "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{"type":"document"}]}]})", "messages[0].content[0].source"},
      {R"({"messages":[{"role":"user","content":[{"type":"tool_result"}]}]})", "messages[0].content[0].tool_use_id"},
      {R"({"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","is_error":"yes"}]}]})",
       "messages[0].content[0].is_error"},
      {R"({"messages":[{"role":"user","content":[
            {"type":"tool_result","tool_use_id":"t","content":[{"type":"image"}]}]}]})",
       "messages[0].content[0].content[0]"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t"}]}]})",
       "messages[1].content[0].name"},
      {R"({"messages":[{"role":"user","content":"a"},
            {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":"x"}]}]})",
       "messages[1].content[0].input"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking"}]}]})",
       "messages[1].content[0].thinking"},
      {R"({"messages":[{"role":"assistant","content":"a"}]})", "messages"},
  });
}

TEST(ApiMessages, RefusalsNameTheField) {  // E3, E6
  expect_refused({
      {R"({"system":5})", "system"},
      {R"({"system":[{"type":"image"}]})", "system[0]"},
      {R"({"model":5})", "model"},
      {R"({"max_tokens":0})", "max_tokens"},
      {R"({"max_tokens":-1})", "max_tokens"},
      {R"({"max_tokens":2147483648})", "max_tokens"},
      {R"({"max_tokens":9223372036854775808})", "max_tokens"},
      {R"({"max_tokens":1e308})", "max_tokens"},
      {R"({"max_tokens":"5"})", "max_tokens"},
      {R"({"stream":"true"})", "stream"},
      {R"({"temperature":"warm"})", "temperature"},
      {R"({"temperature":3})", "temperature"},
      {R"({"top_p":0})", "top_p"},
      {R"({"top_k":"x"})", "top_k"},
      {R"({"stop_sequences":"x"})", "stop_sequences"},
      {R"({"stop_sequences":[5]})", "stop_sequences"},
      {R"({"stop_sequences":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]})",
       "stop_sequences"},
      {R"({"thinking":"on"})", "thinking"},
      {R"({"thinking":{}})", "thinking.type"},
      {R"({"thinking":{"type":"deep"}})", "thinking.type"},
      {R"({"thinking":{"type":"enabled","budget_tokens":-1}})", "thinking.budget_tokens"},
      {R"({"tools":{}})", "tools"},
      {R"({"tools":[5]})", "tools[0]"},
      {R"({"tools":[{"type":5}]})", "tools[0].type"},
      {R"({"tools":[{}]})", "tools[0].name"},
      {R"({"tools":[{"name":""}]})", "tools[0].name"},
      {R"({"tools":[{"name":"f","input_schema":5}]})", "tools[0].input_schema"},
      {R"({"tools":[{"name":"f","input_schema":{"properties":{"foo":"bar"}}}]})", "tools"},
      {R"({"tool_choice":"auto"})", "tool_choice"},
      {R"({"tool_choice":{"type":"tool"}})", "tool_choice.type"},
      {R"({"tool_choice":{"type":"some"}})", "tool_choice.type"},
      {R"({"tool_choice":{"type":"auto","disable_parallel_tool_use":1}})", "tool_choice.disable_parallel_tool_use"},
      {R"({"output_format":{"type":"json_schema"}})", "output_format"},
      {R"({"output_config":{"format":{"type":"json_schema"}}})", "output_config.format"},
      {R"({"output_config":5})", "output_config"},
  });
  // A schema's fault is pointed at in the words of this dialect.
  const Parsed schema = parse(Json::parse(R"({"tools":[{"name":"f","input_schema":{"properties":{"foo":"bar"}}}]})"));
  EXPECT_NE(schema.error->message.find("/input_schema/properties/foo"), std::string::npos) << schema.error->message;
}

TEST(ApiMessages, NullIsAbsent) {
  Json body = Json::object();
  for (const char* field : {"system", "max_tokens", "temperature", "stop_sequences", "thinking", "tools", "tool_choice",
                            "output_config", "output_format", "cache_control", "stream", "metadata"})
    body[field] = nullptr;
  const Parsed parsed = parse(body);
  EXPECT_FALSE(parsed.error) << parsed.error->message;
  EXPECT_TRUE(parsed.request.ignored.empty());
}

}  // namespace
}  // namespace wp
