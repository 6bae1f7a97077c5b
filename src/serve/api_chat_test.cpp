// Every field of a chat body with every wrong type, and its range at the edges (spec/api.md 4, 12 E): the refusal names
// the field; null is absent.
#include "serve/api_chat.h"

#include <gtest/gtest.h>

#include "serve/api_completions.h"
#include "testing/seeds.h"

namespace wp {
namespace {

const ParseContext kContext{.context_tokens = 8192, .vocabulary = 1000};

Json base() { return Json::parse(R"({"messages":[{"role":"user","content":"hi"}]})"); }

std::optional<ApiError> refusal(const std::string& field, Json value) {
  Json body = base();
  body[field] = std::move(value);
  ChatRequest request;
  return parse_chat(body, kContext, &request);
}

struct Field {
  const char* name;
  const char* kind;  // What a right value looks like, in JSON.
};

constexpr Field kFields[] = {
    {"model", "\"m\""},
    {"messages", R"([{"role":"user","content":"x"}])"},
    {"max_tokens", "5"},
    {"max_completion_tokens", "5"},
    {"temperature", "0.5"},
    {"top_p", "0.5"},
    {"n", "1"},
    {"stream", "true"},
    {"stream_options", "{}"},
    {"presence_penalty", "0.5"},
    {"frequency_penalty", "0.5"},
    {"logit_bias", R"({"5": 1})"},
    {"logprobs", "true"},
    {"seed", "5"},
    {"tools", "[]"},
    {"functions", "[]"},
    {"parallel_tool_calls", "true"},
    {"response_format", R"({"type":"text"})"},
    {"reasoning_effort", "\"low\""},
    {"reasoning", "{}"},
    {"user", "\"u\""},
    {"metadata", "{}"},
    {"store", "true"},
    {"service_tier", "\"auto\""},
    {"prompt_cache_key", "\"k\""},
    {"top_k", "5"},
    {"min_p", "0.5"},
    {"repetition_penalty", "1.5"},
    {"repeat_penalty", "1.5"},
    {"dry_base", "1.5"},
    {"dry_allowed_length", "5"},
    {"dry_penalty_last_n", "5"},
    {"dry_sequence_breakers", "[]"},
    {"ignore_eos", "true"},
    {"min_tokens", "5"},
    {"stop_token_ids", "[5]"},
    {"chat_template_kwargs", "{}"},
    {"enable_thinking", "true"},
    {"stop_in_reasoning", "true"},
    {"cache_prompt", "true"},
    {"cache_salt", "\"s\""},
    {"return_progress", "true"},
    {"timings_per_token", "true"},
    {"add_generation_prompt", "true"},
    {"n_keep", "5"},
    {"n_discard", "5"},
    {"min_keep", "5"},
};

// E3.
TEST(ApiChat, AWrongTypeOfAnyFieldIsRefusedByName) {
  const char* const kValues[] = {"true", "5", "0.5", "\"x\"", "[]", "{}", "[null]", "[{}]"};
  int refused = 0;
  for (const Field& field : kFields) {
    const Json right = Json::parse(field.kind);
    EXPECT_FALSE(refusal(field.name, right)) << field.name << ": " << refusal(field.name, right)->message;
    const bool needed = std::string_view(field.name) == "messages";
    EXPECT_EQ(refusal(field.name, nullptr).has_value(), needed) << field.name;
    for (const char* text : kValues) {
      const Json wrong = Json::parse(text);
      if (std::string_view(wrong.type_name()) == right.type_name()) continue;
      if (wrong.is_string() && right.is_string()) continue;
      const auto error = refusal(field.name, wrong);
      ASSERT_TRUE(error) << field.name << " = " << text;
      EXPECT_EQ(error->status, 400);
      EXPECT_EQ(error->param.substr(0, std::string_view(field.name).size()), field.name) << error->message;
      EXPECT_NE(error->message.find("expected"), std::string::npos) << error->message;
      ++refused;
    }
  }
  EXPECT_GT(refused, 250);
}

// E6, E7, E8.
TEST(ApiChat, NumbersAreCheckedAtTheirEdges) {
  const struct {
    const char* field;
    std::vector<const char*> good, bad;
  } kCases[] = {
      {"max_tokens", {"1", "8192", "5.0"}, {"-1", "0", "8193", "2147483648", "9223372036854775808", "1e308", "5.5"}},
      {"max_completion_tokens", {"1", "8192"}, {"-1", "0", "8193", "18446744073709551615"}},
      {"temperature", {"0", "2", "1"}, {"-0.1", "2.1", "1e308"}},
      {"top_p", {"1", "0.01"}, {"0", "-0.1", "1.1"}},
      {"min_p", {"0", "1"}, {"-0.1", "1.1"}},
      {"top_k", {"-1", "0", "2147483647"}, {"-2", "2147483648"}},
      {"n", {"1", "16"}, {"0", "-1", "17", "1000000000"}},
      {"presence_penalty", {"-2", "2"}, {"-2.1", "2.1"}},
      {"frequency_penalty", {"-2", "2"}, {"-2.1", "2.1"}},
      {"repetition_penalty", {"0.1", "10"}, {"0", "-1", "10.1"}},
      {"seed", {"-9223372036854775808", "9223372036854775807", "0"}, {"1e30", "9223372036854775808"}},
      {"min_tokens", {"0", "8192"}, {"-1", "8193"}},
      {"n_keep", {"-1", "8192"}, {"-2", "8193"}},
      {"n_discard", {"0", "8192"}, {"-1", "8193"}},
      {"min_keep", {"0", "1000"}, {"-1", "1001"}},
      {"n_probs", {"0"}, {"1", "-1"}},
      {"id_slot", {"-1"}, {"0", "-2", "99"}},
      {"repeat_last_n", {"-1"}, {"0", "64", "-2"}},
      {"typical_p", {"1", "1.0"}, {"0.9"}},
      {"dry_multiplier", {"0", "0.0"}, {"0.8"}},
      {"thinking_budget", {"-1"}, {"0", "100"}},
      {"priority", {"0"}, {"1"}},
  };
  for (const auto& one : kCases) {
    for (const char* good : one.good) EXPECT_FALSE(refusal(one.field, Json::parse(good))) << one.field << " = " << good;
    for (const char* bad : one.bad) {
      const auto error = refusal(one.field, Json::parse(bad));
      ASSERT_TRUE(error) << one.field << " = " << bad;
      EXPECT_EQ(error->param, one.field);
    }
  }
  EXPECT_EQ(refusal("max_tokens", -1)->message, "max_tokens: expected 0..8192, found -1");
  Json body = base();
  body["logprobs"] = true;
  ChatRequest request;
  for (const char* bad : {"21", "-1", "1e9"}) {
    body["top_logprobs"] = Json::parse(bad);
    EXPECT_EQ(parse_chat(body, kContext, &request)->param, "top_logprobs");
  }
}

// What is not offered yet is refused by name, never ignored.
TEST(ApiChat, WhatIsNotOfferedIsRefused) {
  const struct {
    const char* field;
    const char* value;
  } kCases[] = {{"response_format", R"({"type":"json_object"})"},
                {"response_format", R"({"type":"json_schema","json_schema":{"name":"x","schema":{}}})"},
                {"tool_choice", "\"required\""},
                {"tool_choice", R"({"type":"function","function":{"name":"f"}})"},
                {"grammar", "\"root ::= x\""},
                {"json_schema", "{}"},
                {"guided_json", "{}"},
                {"guided_regex", "\"x\""},
                {"guided_choice", "[\"a\"]"},
                {"guided_grammar", "\"x\""},
                {"structured_outputs", R"({"regex":"x"})"},
                {"structural_tag", R"({"tags":[]})"},
                {"chat_template", "\"{{ x }}\""},
                {"truncation", "\"auto\""},
                {"continue_final_message", "true"},
                {"modalities", "[\"audio\"]"}};
  for (const auto& one : kCases) {
    const auto error = refusal(one.field, Json::parse(one.value));
    ASSERT_TRUE(error) << one.field;
    EXPECT_EQ(error->code, "unsupported_value") << one.field;
    EXPECT_EQ(error->param, one.field);
  }
  EXPECT_EQ(refusal("chat_template_kwargs", {{"chat_template", "x"}})->code, "unsupported_value");
  EXPECT_EQ(refusal("reasoning_effort", "extreme")->param, "reasoning_effort");
  EXPECT_EQ(refusal("tool_choice", "sometimes")->code, "invalid_value");
  EXPECT_FALSE(refusal("truncation", "disabled"));
}

TEST(ApiChat, ToolsAndSchemas) {
  const auto tools = [](const char* text) { return refusal("tools", Json::parse(text)); };
  EXPECT_FALSE(tools(R"([{"type":"function","function":{"name":"f"}}])"));
  EXPECT_FALSE(tools(R"([{"type":"function","function":{"name":"f","parameters":null}}])"));
  EXPECT_EQ(tools(R"([{"type":"function","function":{"name":""}}])")->param, "tools[0].function.name");
  EXPECT_EQ(tools(R"([{"type":"web_search"}])")->code, "unsupported_value");
  EXPECT_EQ(tools(R"([null])")->param, "tools[0]");
  const auto schema =
      tools(R"([{"type":"function","function":{"name":"f","parameters":{"properties":{"foo":"bar"}}}}])");
  EXPECT_EQ(schema->code, "invalid_schema");
  EXPECT_NE(schema->message.find("tools/0/function/parameters/properties/foo"), std::string::npos);
}

TEST(ApiChat, WhatComesOut) {
  Json body = Json::parse(R"({
    "messages": [{"role": "developer", "content": "a"}, {"role": "system", "content": [{"type": "text", "text": "b"}]},
                 {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]},
                 {"role": "assistant", "content": null, "reasoning": "r",
                  "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}}]},
                 {"role": "tool", "tool_call_id": "1", "content": "out"}],
    "functions": [{"name": "f"}], "stop": ["x", "", "y"], "max_tokens": 3, "max_completion_tokens": 7,
    "logit_bias": {"5": -100}, "seed": -1, "unheard_of": 1, "cache_salt": "s", "prompt_cache_key": "k",
    "reasoning_effort": "minimal", "top_k": -1})");
  ChatRequest request;
  ASSERT_FALSE(parse_chat(body, kContext, &request));
  const Json& messages = request.history.messages;
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0], Json::parse(R"({"role":"system","content":"a\n\nb"})"));
  EXPECT_EQ(messages[1]["content"], "cd");
  EXPECT_EQ(messages[2]["reasoning_content"], "r");
  EXPECT_EQ(dump_json(messages[2]["tool_calls"][0]["function"]["arguments"]), R"({"z":1,"a":2})");
  EXPECT_EQ(request.tools[0]["type"], "function");
  EXPECT_EQ(request.common.stops, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(request.common.max_tokens, 7);
  EXPECT_EQ(request.common.unknown, std::vector<std::string>{"unheard_of"});
  EXPECT_NE(request.common.cache_domain, 0u);
  EXPECT_EQ(request.common.conversation, "k");
  EXPECT_EQ(request.variables["reasoning_effort"], "low");
  EXPECT_EQ(request.common.sampling.top_k, 0);
  EXPECT_FALSE(request.history.unmatched_result);
}

TEST(ApiCompletions, PromptForms) {
  const auto parse = [](const char* prompt, CompletionRequest* out) {
    return parse_completion({{"prompt", Json::parse(prompt)}}, kContext, out);
  };
  for (const char* good : {"\"a\"", "[\"a\",\"b\"]", "[1,2]", "[[1],[2,3]]", "[\"a\",[1]]"}) {
    CompletionRequest request;
    EXPECT_FALSE(parse(good, &request)) << good;
    EXPECT_FALSE(request.prompts.empty());
  }
  for (const char* bad : {"null", "5", "{}", "\"\"", "[]", "[[]]", "[null]", "[1,\"a\"]", "[1000]", "[-1]", "[1.5]",
                          "[18446744073709551615]", "[[1],[true]]"}) {
    CompletionRequest request;
    const auto error = parse(bad, &request);
    ASSERT_TRUE(error) << bad;
    EXPECT_EQ(error->param.substr(0, 6), "prompt");
  }
}

}  // namespace
}  // namespace wp
