// Anthropic's messages over the wire (spec/api.md 9): shapes, order of events, streamed equal to not streamed, tools,
// thinking, accounting and errors.
#include "rig.h"

namespace wp::testing {
namespace {

const Json kTools = Json::parse(R"([
  {"name": "ls", "input_schema": {"type": "object",
    "properties": {"path": {"type": "string"}, "depth": {"type": "integer"}}}},
  {"name": "write_file", "input_schema": {"type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}])");

const char* const kCall =
    "<tool_call>\n<function=ls>\n<parameter=path>\n.\n</parameter>\n<parameter=depth>\n2\n</parameter>\n</function>\n"
    "</tool_call>";

class Messages : public HttpRig {
 protected:
  static Json ask(std::string_view text) {
    return {{"model", "claude-x"}, {"max_tokens", 1000}, {"messages", {{{"role", "user"}, {"content", text}}}}};
  }
  static Json thinking(std::string_view text) {
    Json body = ask(text);
    body["thinking"] = {{"type", "enabled"}, {"budget_tokens", 1024}};
    return body;
  }
  WireAnswer post(const Json& body) { return client().post("/v1/messages?beta=true", body); }
  Json answer(const Json& body) {
    const WireAnswer whole = post(body);
    EXPECT_EQ(whole.status, 200) << whole.body;
    EXPECT_EQ(whole.headers.at("request-id"), whole.headers.at("x-request-id"));
    return whole.json();
  }
  std::vector<Json> stream(Json body) {
    body["stream"] = true;
    const WireAnswer streamed = post(body);
    EXPECT_EQ(streamed.status, 200) << streamed.body;
    EXPECT_EQ(streamed.headers.at("content-type"), "text/event-stream");
    EXPECT_TRUE(streamed.headers.count("request-id"));
    const WireEvents events = events_of(streamed.body);
    EXPECT_FALSE(events.done) << "[DONE] is OpenAI's";
    return events.data;
  }
  // The model says this one character a token, markup too.
  void say_slowly(std::string_view text) {
    std::vector<TokenId> script;
    for (size_t at = 0; at < text.size();) {
      size_t end = at + 1;
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
      for (const TokenId token : bundled().tokenizer.encode_plain(text.substr(at, end - at))) script.push_back(token);
      at = end;
    }
    model_->say(script);
  }
  // An error in Anthropic's shape, and nothing but.
  static void expect_error(const WireAnswer& answer, int status, const char* type) {
    SCOPED_TRACE(answer.head + answer.body);
    EXPECT_EQ(answer.status, status);
    const Json body = answer.json();
    ASSERT_TRUE(body.is_object() && body.contains("error"));
    EXPECT_EQ(body["type"], "error");
    EXPECT_EQ(body["error"]["type"], type);
    EXPECT_FALSE(body["error"]["message"].get<std::string>().empty());
    EXPECT_EQ(body["error"].size(), 2u);
    EXPECT_EQ(body["request_id"], answer.headers.at("request-id"));
  }
};

// The message that a client builds from the events; checks their order on the way.
Json join(const std::vector<Json>& events) {
  Json message;
  std::string arguments;
  bool open = false, signed_ = false, ended = false, stopped = false;
  for (const Json& event : events) {
    const std::string type = event["type"];
    EXPECT_FALSE(stopped) << "an event behind message_stop";
    if (type == "ping") continue;
    EXPECT_EQ(type == "message_start", message.is_null());
    if (type == "message_start") {
      message = event["message"];
      EXPECT_EQ(message["content"], Json::array());
      EXPECT_TRUE(message["stop_reason"].is_null());
      continue;
    }
    Json& content = message["content"];
    if (type == "content_block_start") {
      EXPECT_FALSE(open || ended);
      EXPECT_EQ(event["index"], content.size());
      content.push_back(event["content_block"]);
      const Json& block = content.back();
      if (block["type"] == "tool_use") EXPECT_EQ(block["input"], Json::object());
      else EXPECT_EQ(block[block["type"].get<std::string>()], "");
      open = true;
      signed_ = false;
      arguments.clear();
    } else if (type == "content_block_delta") {
      EXPECT_TRUE(open);
      EXPECT_EQ(event["index"], content.size() - 1);
      Json& block = content.back();
      const Json& delta = event["delta"];
      EXPECT_FALSE(signed_) << "the signature is a thought's last delta";
      if (delta["type"] == "text_delta") {
        EXPECT_EQ(block["type"], "text");
        block["text"] = block["text"].get<std::string>() + delta["text"].get<std::string>();
      } else if (delta["type"] == "thinking_delta") {
        block["thinking"] = block["thinking"].get<std::string>() + delta["thinking"].get<std::string>();
      } else if (delta["type"] == "signature_delta") {
        block["signature"] = delta["signature"];
        signed_ = true;
      } else {
        EXPECT_EQ(delta["type"], "input_json_delta");
        arguments += delta["partial_json"].get<std::string>();
      }
    } else if (type == "content_block_stop") {
      EXPECT_TRUE(std::exchange(open, false));
      EXPECT_EQ(event["index"], content.size() - 1);
      Json& block = content.back();
      EXPECT_EQ(signed_, block["type"] == "thinking");
      if (auto parsed = parse_json(arguments); block["type"] == "tool_use") {
        if (parsed.ok()) block["input"] = *parsed;
        else block["cut"] = arguments;
      }
    } else if (type == "message_delta") {
      EXPECT_FALSE(open || std::exchange(ended, true));
      for (const char* name : {"stop_reason", "stop_sequence"}) message[name] = event["delta"][name];
      for (const char* name : {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"})
        EXPECT_EQ(event["usage"][name], message["usage"][name]);
      message["usage"] = event["usage"];
      message["timings"] = event["timings"];
    } else {
      EXPECT_EQ(type, "message_stop");
      EXPECT_TRUE(ended);
      stopped = true;
    }
  }
  EXPECT_TRUE(stopped);
  return message;
}

// What has to be equal however it was sent: all but ids and times.
Json essence(Json message) {
  message.erase("id");
  message.erase("timings");
  for (const char* name : {"cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens"})
    message["usage"].erase(name);
  for (Json& block : message["content"])
    if (block["type"] == "tool_use") block.erase("id");
  return message;
}

TEST_F(Messages, WholeAnswer) {
  start();
  say("Hello there.");
  const Json message = answer(ask("hi"));
  EXPECT_EQ(message["id"].get<std::string>().substr(0, 4), "msg_");
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["model"], "mini");
  EXPECT_EQ(message["content"], Json::parse(R"([{"type":"text","text":"Hello there."}])"));
  EXPECT_EQ(message["stop_reason"], "end_turn");
  EXPECT_TRUE(message["stop_sequence"].is_null());
  const Json& usage = message["usage"];
  EXPECT_EQ(usage["cache_creation_input_tokens"], 0);
  EXPECT_EQ(usage["cache_read_input_tokens"], 0);
  EXPECT_EQ(usage["output_tokens_details"]["thinking_tokens"], 0);
  EXPECT_GT(usage["output_tokens"].get<int>(), 1);
  EXPECT_EQ(message["timings"]["prompt_n"], usage["input_tokens"]);
  EXPECT_EQ(message["timings"]["miss_reason"], "too_short");
}

TEST_F(Messages, EventsInOrder) {
  start();
  say(cat("I look.\n</think>\n\nSee:\n\n", kCall, "\n", kCall));
  Json body = thinking("list");
  body["tools"] = kTools;
  const std::vector<Json> events = stream(body);
  std::string order;
  for (const Json& event : events) {
    std::string name = event["type"];
    if (event.contains("delta") && event["delta"].contains("type")) name = event["delta"]["type"];
    if (event.contains("content_block")) name = cat("+", event["content_block"]["type"].get<std::string>());
    if (name == "content_block_stop") name = "-";
    const bool again = order.size() > name.size() && order.substr(order.size() - name.size() - 1) == name + " ";
    if (!again) order += name + " ";
  }
  EXPECT_EQ(order,
            "message_start +thinking thinking_delta signature_delta - +text text_delta - +tool_use input_json_delta - "
            "+tool_use input_json_delta - message_delta message_stop ");
  const Json& begun = events.front()["message"];
  EXPECT_GT(begun["usage"]["input_tokens"].get<int>(), 10);
  EXPECT_EQ(begun["usage"]["output_tokens"], 0);
  const Json message = join(events);
  EXPECT_EQ(message["stop_reason"], "tool_use");
  ASSERT_EQ(message["content"].size(), 4u);
  EXPECT_EQ(message["content"][2]["id"].get<std::string>().substr(0, 6), "toolu_");
  EXPECT_NE(message["content"][2]["id"], message["content"][3]["id"]);
  EXPECT_EQ(message["content"][3]["name"], "ls");
  EXPECT_EQ(message["content"][3]["input"], Json::parse(R"({"path":".","depth":2})"));
  EXPECT_GT(message["usage"]["output_tokens_details"]["thinking_tokens"].get<int>(), 1);
}

// Whatever the model says, in whatever pieces: the same blocks.
TEST_F(Messages, StreamEqualsWholeHoweverItIsCut) {
  start();
  const struct {
    const char* says;
    bool tools, thinking;
  } kCases[] = {
      {"", false, false},
      {"Hello there.\n\nMore. é", false, false},
      {"A thought.\nTwo.\n</think>\n\nThe answer with <think> quoted.", false, true},
      {"Never closed", false, true},
      {"Let me check.\n</think>\n\n", false, true},
      {kCall, true, false},
      {kCall, false, false},  // Without tools it is text.
      {"See:\n\n<tool_call>\n<function=write_file>\n<parameter=path>\na b\n</parameter>\n<parameter=content>\n"
       "line </tool_call>\n</parameter> \"q\" \\ é\n</parameter>\n</function>\n</tool_call>",
       true, false},
      {"Hm.\n</think>\n\n<tool_call>\n<function=ls>\n</function>\n</tool_call>\nAnd more.", true, true},
      {"Hm <tool_call>\n<function=ls>\n<parameter=path>\nx\n</parameter>\n</function>\n</tool_call>\n</think>\n\n"
       "<tool_call>\n<function=ls>\n</function>\n</tool_call>",
       true, true}};
  for (const auto& one : kCases) {
    SCOPED_TRACE(one.says);
    Json body = one.thinking ? thinking("go") : ask("go");
    if (one.tools) body["tools"] = kTools;
    say(one.says);
    const Json whole = answer(body);
    EXPECT_EQ(essence(join(stream(body))), essence(whole));
    say_slowly(one.says);
    const Json slow = answer(body);
    EXPECT_EQ(slow["content"].size(), whole["content"].size());
    Json content = essence(slow)["content"];
    EXPECT_EQ(content, essence(whole)["content"]);
    EXPECT_EQ(essence(join(stream(body))), essence(slow));
  }
}

// At every limit; a call that it cuts is begun in the stream, and none in the whole answer (A10).
TEST_F(Messages, CutAtEveryToken) {
  start();
  say(cat("I look.\n</think>\n\nSee:\n\n", kCall));
  Json body = thinking("list");
  body["tools"] = kTools;
  const int whole_tokens = answer(body)["usage"]["output_tokens"];
  for (int limit = 1; limit <= whole_tokens; ++limit) {
    SCOPED_TRACE(limit);
    body["max_tokens"] = limit;
    const Json whole = answer(body);
    Json joined = join(stream(body));
    if (!joined["content"].empty() && joined["content"].back().contains("cut"))
      joined["content"].erase(joined["content"].size() - 1);
    EXPECT_EQ(essence(joined), essence(whole));
    EXPECT_EQ(whole["stop_reason"], limit < whole_tokens ? "max_tokens" : "tool_use");
    EXPECT_EQ(whole["usage"]["output_tokens"], limit);
  }
}

TEST_F(Messages, StopSequences) {
  start();
  say("I say STOP in the thought.\n</think>\n\nThe answer. STOP And more.");
  Json body = thinking("go");
  body["stop_sequences"] = {"HALT", "STOP"};
  const Json message = answer(body);
  EXPECT_EQ(message["content"][1]["text"], "The answer. ");
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], "STOP");
  EXPECT_EQ(essence(join(stream(body))), essence(message));
}

TEST_F(Messages, OneCallWhereParallelUseIsOff) {
  start();
  say(cat(kCall, "\n", kCall));
  Json body = ask("list");
  body["tools"] = kTools;
  EXPECT_EQ(answer(body)["content"].size(), 2u);
  body["tool_choice"] = {{"type", "auto"}, {"disable_parallel_tool_use", true}};
  EXPECT_EQ(answer(body)["content"].size(), 1u);
  EXPECT_EQ(join(stream(body))["content"].size(), 1u);
  body["tool_choice"] = {{"type", "none"}};
  EXPECT_EQ(answer(body)["content"][0]["type"], "text");
}

// The prompt is the one that OpenAI's dialect makes of the same conversation; resent thoughts are in it (D17).
TEST_F(Messages, TheSamePromptAsOpenAis) {
  start();
  say(cat("I look.\n</think>\n\nSee:\n\n", kCall));
  Json body = thinking("list");
  body["system"] = "be brief";
  body["tools"] = kTools;
  const Json message = answer(body);
  body["messages"].push_back({{"role", "assistant"}, {"content", message["content"]}});
  body["messages"].push_back(
      {{"role", "user"},
       {"content", {{{"type", "tool_result"}, {"tool_use_id", message["content"][2]["id"]}, {"content", "a b"}}}}});
  Json tools = Json::array();
  for (const Json& tool : kTools)
    tools.push_back(
        {{"type", "function"}, {"function", {{"name", tool["name"]}, {"parameters", tool["input_schema"]}}}});
  const Json same = {
      {"tools", tools},
      {"enable_thinking", true},
      {"messages",
       {{{"role", "system"}, {"content", "be brief"}},
        {{"role", "user"}, {"content", "list"}},
        {{"role", "assistant"},
         {"content", "See:"},
         {"reasoning_content", "I look."},
         {"tool_calls", {{{"id", "c"}, {"function", {{"name", "ls"}, {"arguments", R"({"path":".","depth":2})"}}}}}}},
        {{"role", "tool"}, {"tool_call_id", "c"}, {"content", "a b"}}}}};
  const Json expected = client().post("/apply-template", same).json();
  EXPECT_EQ(client().post("/v1/messages/count_tokens", body).json(),
            Json({{"input_tokens", expected["tokens"].get<int>()}}));
  const std::string prompt = expected["prompt"];
  EXPECT_NE(prompt.find("I look."), std::string::npos);
  // Any signature is as good, none too.
  body["messages"][1]["content"][0]["signature"] = "somebody else's";
  EXPECT_EQ(client().post("/v1/messages/count_tokens", body).json()["input_tokens"], expected["tokens"]);
  body["messages"][1]["content"][0].erase("signature");
  EXPECT_EQ(client().post("/v1/messages/count_tokens", body).json()["input_tokens"], expected["tokens"]);
  say("Done.");
  const Json next = answer(body)["usage"];
  EXPECT_EQ(next["input_tokens"].get<int>() + next["cache_read_input_tokens"].get<int>() +
                next["cache_creation_input_tokens"].get<int>(),
            expected["tokens"].get<int>());
}

TEST_F(Messages, AccountingOfColdAndWarmTurns) {
  start();
  say("Noted.");
  std::string manual;
  for (int i = 0; i < 300; ++i) manual += cat("rule", i, " ");
  Json body = ask("go");
  body["system"] = Json::array({{{"type", "text"}, {"text", manual}}});
  const int total = client().post("/v1/messages/count_tokens", body).json()["input_tokens"];
  const auto sum = [](const Json& usage) {
    return usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>() +
           usage["cache_creation_input_tokens"].get<int>();
  };
  const Json plain = answer(body)["usage"];
  EXPECT_EQ(plain["input_tokens"], total);
  EXPECT_EQ(plain["cache_creation_input_tokens"], 0);  // Without a breakpoint.
  engine_->flush_cache();
  ASSERT_TRUE(soon([&] { return engine_->stats().cache.anchors_published == 0; }));

  body["system"][0]["cache_control"] = {{"type", "ephemeral"}};
  const Json cold = answer(body)["usage"];
  EXPECT_EQ(sum(cold), total);
  EXPECT_EQ(cold["cache_read_input_tokens"], 0);
  const int created = cold["cache_creation_input_tokens"];
  EXPECT_EQ(created % 64, 0);
  EXPECT_GT(created, total - 128);
  EXPECT_LT(created, total);
  EXPECT_EQ(engine_->stats().cache.anchors_held, 1);

  const Json warm = join(stream(body))["usage"];
  EXPECT_EQ(sum(warm), total);
  EXPECT_EQ(warm["cache_creation_input_tokens"], 0);
  EXPECT_GE(warm["cache_read_input_tokens"].get<int>(), created);

  body["messages"].push_back({{"role", "assistant"}, {"content", "Noted."}});
  body["messages"].push_back({{"role", "user"}, {"content", "And now?"}});
  const Json next = answer(body)["usage"];
  EXPECT_GE(next["cache_read_input_tokens"].get<int>(), created);
  EXPECT_EQ(client().post("/v1/messages/count_tokens", body).json()["input_tokens"], sum(next));
}

// prefix_cache.md 17: a line with another value in each request stands before everything else.
TEST_F(Messages, ABillingLineDoesNotSpoilTheCache) {
  start();
  say("Noted.");
  std::string manual;
  for (int i = 0; i < 300; ++i) manual += cat("rule", i, " ");
  const auto cached = [&](const char* header, const char* word) {
    Json body = ask(word);
    body["system"] =
        Json::array({{{"type", "text"}, {"text", header}}, {{"type", "text"}, {"text", cat("You are. ", manual)}}});
    return answer(body)["usage"]["cache_read_input_tokens"].get<int>();
  };
  EXPECT_EQ(cached("x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch=eb6c6;", "a"), 0);
  EXPECT_GT(cached("x-anthropic-billing-header: cc_version=2.1.100.111; cc_entrypoint=cli; cch=00aa1;", "b"), 256);
  EXPECT_NE(client().get("/metrics").body.find("\nwarmpath_volatile_lines_stripped_total 2\n"), std::string::npos);
  // Strictly: what only looks like it is the client's text.
  EXPECT_EQ(cached("x-anthropic-billing-header: is what Claude Code sends", "c"), 0);
}

TEST_F(Messages, APromptThatDoesNotFit) {
  RigOptions options;
  options.engine.context_tokens = 256;
  start(options);
  say("one two three four five six seven eight nine ten");
  const auto words = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += " a";
    return ask(text);
  };
  const auto count = [&](const Json& body) {
    return client().post("/v1/messages/count_tokens", body).json()["input_tokens"].get<int>();
  };
  const int around = count(words(10)) - 10;
  // More is asked for than is left: it is a limit, and all that is left may be said.
  Json full = words(255 - around);
  full["max_tokens"] = 64000;
  const Json last = answer(full);
  EXPECT_EQ(last["usage"]["input_tokens"], 255);
  EXPECT_EQ(last["usage"]["output_tokens"], 1);
  EXPECT_EQ(last["stop_reason"], "max_tokens");
  for (const int tokens : {256, 257, 512}) {
    const WireAnswer refused = post(words(tokens - around));
    expect_error(refused, 400, "invalid_request_error");
    EXPECT_EQ(refused.json()["error"]["message"], cat("prompt is too long: ", tokens, " tokens > 255 maximum"));
    EXPECT_EQ(count(words(tokens - around)), tokens);
  }
}

TEST_F(Messages, WhatIsRefused) {
  strict_model_ = true;
  start();
  Json body = ask("hi");
  expect_error(post(body), 404, "not_found_error");  // D7.
  expect_error(client().post("/v1/messages/count_tokens", body), 404, "not_found_error");
  body["model"] = "mini";
  EXPECT_EQ(post(body).status, 200);
  Json image = body;
  image["messages"][0]["content"] = Json::parse(R"([{"type":"image","source":{"type":"url","url":"http://x/y"}}])");
  const WireAnswer refused = post(image);
  expect_error(refused, 400, "invalid_request_error");
  EXPECT_NE(refused.json()["error"]["message"].get<std::string>().find("messages[0].content[0]"), std::string::npos);
  Json prefill = body;
  prefill["messages"].push_back({{"role", "assistant"}, {"content", "{"}});
  expect_error(post(prefill), 400, "invalid_request_error");
  EXPECT_EQ(client().post("/v1/messages/count_tokens", prefill).status, 200);
  const char* const json = "content-type: application/json\r\n";
  expect_error(client().call("POST", "/v1/messages", "{", json), 400, "invalid_request_error");
  expect_error(client().call("POST", "/v1/messages", "{\"messages\":\"\xd6\xd0\"}", json), 400,
               "invalid_request_error");
  expect_error(client().call("POST", "/v1/messages", "5", json), 400, "invalid_request_error");
  expect_error(client().call("GET", "/v1/messages", "", ""), 405, "invalid_request_error");
  expect_error(client().post("/v1/messages/batches", Json::object()), 404, "not_found_error");
  expect_error(client().call("POST", "/v1/messages", "{}", "content-type: text/plain\r\n"), 415,
               "invalid_request_error");
}

TEST_F(Messages, WhatTheTransportRefusesIsInAnthropicsShape) {
  RigOptions options;
  options.server.api_keys = {"red"};
  options.server.http.body_bytes_max = 1000;
  start(options);
  const auto call = [&](const char* method, const char* path, std::string_view body, const char* headers) {
    return client().call(method, path, body, headers);
  };
  const char* const json = "content-type: application/json\r\n";
  const char* const keyed = "content-type: application/json\r\nx-api-key: red\r\n";
  expect_error(call("POST", "/v1/messages", "{}", json), 401, "authentication_error");
  expect_error(call("POST", "/v1/messages", "{}", "content-type: application/json\r\nx-api-key: blue\r\n"), 401,
               "authentication_error");
  expect_error(call("POST", "/v1/messages", std::string(2000, ' '), keyed), 413, "request_too_large");
  expect_error(call("POST", "/v1/messages", "{}", "x-api-key: red\r\norigin: http://evil.example\r\n"), 403,
               "permission_error");
  // By the header that Anthropic's clients send, on routes that others share.
  const char* const version = "authorization: Bearer red\r\nanthropic-version: 2023-06-01\r\n";
  expect_error(call("GET", "/v1/models/other", "", version), 404, "not_found_error");
  expect_error(call("GET", "/nothing", "", version), 404, "not_found_error");
  // Another path that only begins alike, and no such header: OpenAI's.
  EXPECT_EQ(call("GET", "/v1/messages2", "", "x-api-key: red\r\n").error_code(), "not_found");
  say("Hi.");
  EXPECT_EQ(call("POST", "/v1/messages", dump_json(ask("hi")), keyed).status, 200);
}

TEST_F(Messages, LoadingDrainingAndAFullQueue) {
  RigOptions options;
  options.load = false;
  options.engine.sequences = 1;
  options.engine.queue_max = 1;
  start(options);
  const WireAnswer loading = post(ask("hi"));
  expect_error(loading, 503, "api_error");
  EXPECT_TRUE(loading.headers.count("retry-after"));
  load();
  model_->decode_ms = 5;
  Json body = ask("hi");
  body["stream"] = body["ignore_eos"] = true;
  WireClient running = client(), waiting = client();
  const std::string bytes = WireClient::request("POST", "/v1/messages", dump_json(body));
  running.send(bytes);
  ASSERT_TRUE(soon([&] { return engine_->stats().decoding == 1; }));
  waiting.send(bytes);
  ASSERT_TRUE(soon([&] { return engine_->stats().waiting == 1; }));
  const WireAnswer full = post(body);
  expect_error(full, 529, "overloaded_error");
  EXPECT_TRUE(full.headers.count("retry-after"));
  server_->begin_drain();
  expect_error(post(body), 503, "api_error");
  // What runs is cut: an event that says so, and the end.
  server_->cut();
  const WireEvents events = events_of(running.read().body);
  EXPECT_EQ(events.data.front()["type"], "message_start");
  EXPECT_EQ(events.data.back()["type"], "error");
  EXPECT_EQ(events.data.back()["error"]["type"], "api_error");
  EXPECT_TRUE(running.at_end());
}

TEST_F(Messages, LongPrefillsPing) {  // D16
  RigOptions options;
  options.server.http.first_byte_ms_max = 20;
  options.server.http.ping_ms = 20;
  start(options);
  say("done");
  model_->prefill_ms = 150;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += " a";
  const std::vector<Json> events = stream(ask(text));
  EXPECT_EQ(events.front()["type"], "message_start");  // What stands before it are comments.
  EXPECT_EQ(events[1], Json::parse(R"({"type":"ping"})"));
  EXPECT_EQ(join(events)["content"][0]["text"], "done");
}

}  // namespace
}  // namespace wp::testing
