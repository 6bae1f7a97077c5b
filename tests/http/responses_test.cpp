// POST /v1/responses and what is kept of it, over the wire, with what the model says written down: every event in its
// order, streamed equal to not streamed, conversations that are continued, what other keys see (spec/api.md 8, 12 D).
#include "rig.h"
#include "testing/response_replay.h"

namespace wp::testing {
namespace {

const Json kTools = Json::parse(R"([
  {"type": "function", "name": "ls", "parameters": {"type": "object",
    "properties": {"path": {"type": "string"}, "depth": {"type": "integer"}}}},
  {"type": "custom", "name": "patch", "description": "Edits."}])");

const char* const kCall =
    "<tool_call>\n<function=ls>\n<parameter=path>\n.\n</parameter>\n<parameter=depth>\n2\n</parameter>\n</function>\n"
    "</tool_call>";

std::string words(int count, const char* word = "word") {
  std::string text;
  for (int i = 0; i < count; ++i) text += cat(word, i, " ");
  return text;
}

Json without(Json object, std::initializer_list<const char*> names) {
  for (const char* name : names) object.erase(name);
  return object;
}

// What two runs of one request share.
Json plain(Json response) {
  response = without(std::move(response), {"id", "created_at", "completed_at", "usage", "timings"});
  for (Json& item : response["output"]) item = without(item, {"id", "call_id"});
  return response;
}

class Responses : public HttpRig {
 protected:
  Json create(const Json& body, std::string_view key = {}) {
    const WireAnswer answer = client().call("POST", "/v1/responses", dump_json(body), headers(key));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  static std::string headers(std::string_view key) {
    return cat("content-type: application/json\r\n", key.empty() ? "" : "authorization: Bearer ", key,
               key.empty() ? "" : "\r\n");
  }
  // The stream's events, read as a strict client does; the last one's response.
  Json stream(Json body, std::string* outline = nullptr) {
    body["stream"] = true;
    const WireAnswer answer = client().post("/v1/responses", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
    const WireEvents events = events_of(answer.body);
    EXPECT_FALSE(events.done) << "[DONE] is of another dialect";
    EXPECT_EQ(events.comments, 0);
    ResponseReplay replay;
    for (const Json& event : events.data) replay.read(event);
    if (outline) *outline = replay.outline();
    if (events.data.size() < 3) return nullptr;
    EXPECT_EQ(events.data[0]["type"], "response.created");
    EXPECT_EQ(events.data[1]["type"], "response.in_progress");
    const Json last = events.data.back()["response"];
    EXPECT_EQ(last["output"], replay.items());
    for (const Json& event : events.data) EXPECT_EQ(event.value("response", last)["id"], last["id"]);
    return last;
  }
  static Json body(const Json& input) {
    return {{"model", "mini"}, {"input", input}, {"reasoning", {{"effort", "none"}}}};
  }
  static Json user(std::string_view text) { return {{"role", "user"}, {"content", text}}; }
  static int64_t cached(const Json& response) { return response["usage"]["input_tokens_details"]["cached_tokens"]; }
  bool consolidated(int count) {
    return soon([&] {
      return client().get("/metrics").body.find(cat("consolidations_total{event=\"done\"} ", count)) !=
             std::string::npos;
    });
  }
};

TEST_F(Responses, WholeAnswer) {
  start();
  say("Hello there.");
  Json asked = body("hi");
  asked["instructions"] = "Be brief.";
  asked["metadata"] = {{"a", "b"}};
  asked["temperature"] = 0.5;
  const Json answer = create(asked);
  EXPECT_EQ(answer["id"].get<std::string>().substr(0, 5), "resp_");
  EXPECT_EQ(answer["object"], "response");
  EXPECT_TRUE(answer["created_at"].is_number_integer());
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(plain(answer)["output"], Json::parse(R"([{"type":"message","role":"assistant","status":"completed",
      "content":[{"type":"output_text","text":"Hello there.","annotations":[],"logprobs":[]}]}])"));
  EXPECT_EQ(answer["output"][0]["id"].get<std::string>().substr(0, 4), "msg_");
  const Json repeated = Json::parse(R"({"error":null,"incomplete_details":null,"instructions":"Be brief.",
      "max_output_tokens":null,"model":"mini","parallel_tool_calls":true,"previous_response_id":null,
      "reasoning":{"effort":"none","summary":null},"store":true,"temperature":0.5,"text":{"format":{"type":"text"}},
      "tool_choice":"auto","tools":[],"truncation":"disabled","metadata":{"a":"b"},"user":null})");
  for (const auto& [name, value] : repeated.items()) EXPECT_EQ(answer.at(name), value) << name;
  EXPECT_TRUE(answer.contains("top_p"));
  const Json& usage = answer["usage"];
  EXPECT_EQ(usage["total_tokens"], usage["input_tokens"].get<int>() + usage["output_tokens"].get<int>());
  EXPECT_EQ(usage["input_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(usage["output_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_EQ(answer["timings"]["miss_reason"], "too_short");
}

TEST_F(Responses, StreamEqualsWholeAndEveryEventStandsInItsPlace) {
  start();
  const std::string begin = "created in_progress ";
  const std::string thought = "output_item.added reasoning_text.delta reasoning_text.done output_item.done ";
  const std::string message =
      "output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done ";
  const std::string call =
      "output_item.added function_call_arguments.delta function_call_arguments.done output_item.done ";
  const std::string custom =
      "output_item.added custom_tool_call_input.delta custom_tool_call_input.done output_item.done ";
  const struct {
    std::string says;
    bool thinking;
    std::string outline;
  } kCases[] = {
      {"Hello there.\n\nMore.", false, message},
      {"A thought.\nTwo.\n</think>\n\nThe answer with <think> quoted.", true, thought + message},
      {"Never closed", true, thought},
      {kCall, false, call},
      {cat(kCall, "\n", kCall), false, call + call},
      {cat("Hm.\n</think>\n\nI look.\n\n", kCall), true, thought + message + call},
      {"<tool_call>\n<function=patch>\n<parameter=input>\n*** \"q\" \\ é\nx\n</parameter>\n</function>\n</tool_call>",
       false, custom},
      {"", false, ""}};
  for (const auto& one : kCases) {
    SCOPED_TRACE(one.says);
    say(one.says);
    Json asked = body("go");
    if (one.thinking) asked.erase("reasoning");
    asked["tools"] = kTools;
    const Json whole = create(asked);
    std::string outline;
    const Json streamed = stream(asked, &outline);
    EXPECT_EQ(outline, cat(begin, one.outline, "completed "));
    EXPECT_EQ(plain(streamed), plain(whole));
    EXPECT_EQ(without(streamed["usage"], {"input_tokens_details"}), without(whole["usage"], {"input_tokens_details"}));
    EXPECT_EQ(streamed["status"], "completed");
  }
}

TEST_F(Responses, CallsCarryWhatTheClientNamed) {
  start();
  say("<tool_call>\n<function=agents__spawn>\n<parameter=task>\nx\n</parameter>\n</function>\n</tool_call>");
  Json asked = body("go");
  asked["tools"] = Json::parse(R"([{"type":"namespace","name":"agents","description":"d","tools":[
      {"type":"function","name":"spawn","parameters":{"type":"object","properties":{"task":{"type":"string"}}}}]}])");
  const Json item = create(asked)["output"][0];
  EXPECT_EQ(item["id"].get<std::string>().substr(0, 3), "fc_");
  EXPECT_EQ(item["call_id"].get<std::string>().substr(0, 5), "call_");
  EXPECT_EQ(without(item, {"id", "call_id"}), Json::parse(R"({"type":"function_call","name":"spawn",
      "namespace":"agents","arguments":"{\"task\":\"x\"}","status":"completed"})"));
  // A name that was not given is the model's own.
  say("<tool_call>\n<function=other>\n</function>\n</tool_call>");
  EXPECT_EQ(create(asked)["output"][0]["name"], "other");
}

TEST_F(Responses, ThoughtsAsSummaryAndSealed) {
  start();
  say("Hm.\nWell.\n</think>\n\nYes.");
  Json asked = body("go");
  asked["reasoning"] = {{"effort", "high"}, {"summary", "auto"}};
  asked["include"] = {"reasoning.encrypted_content"};
  std::string outline;
  const Json streamed = stream(asked, &outline);
  EXPECT_EQ(outline,
            "created in_progress output_item.added reasoning_summary_part.added reasoning_summary_text.delta "
            "reasoning_summary_text.done reasoning_summary_part.done output_item.done output_item.added "
            "content_part.added output_text.delta output_text.done content_part.done output_item.done completed ");
  EXPECT_EQ(plain(create(asked)), plain(streamed));
  const Json& thought = streamed["output"][0];
  EXPECT_EQ(thought["summary"][0]["text"], "Hm.\nWell.");
  EXPECT_TRUE(thought["encrypted_content"].is_string());
  EXPECT_GT(streamed["usage"]["output_tokens_details"]["reasoning_tokens"].get<int>(), 2);
}

TEST_F(Responses, ALimitMakesItIncomplete) {  // A10, A17
  start();
  say("one two three four five six seven eight nine ten");
  Json asked = body("go");
  asked["max_output_tokens"] = 4;
  std::string outline;
  const Json cut = stream(asked, &outline);
  EXPECT_EQ(outline.substr(outline.size() - 11), "incomplete ");
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"], Json::parse(R"({"reason":"max_output_tokens"})"));
  EXPECT_EQ(cut["output"][0]["status"], "incomplete");
  EXPECT_EQ(cut["usage"]["output_tokens"], 4);
  EXPECT_EQ(plain(create(asked)), plain(cut));
  say(kCall);
  asked["tools"] = kTools;
  asked["max_output_tokens"] = 12;
  const Json call = stream(asked);
  EXPECT_EQ(call["output"], Json::array());
  EXPECT_EQ(plain(create(asked)), plain(call));
}

TEST_F(Responses, Logprobs) {
  start();
  say("Hi there.");
  Json asked = body("go");
  asked["top_logprobs"] = 2;
  const Json part = create(asked)["output"][0]["content"][0];
  std::string text;
  for (const Json& one : part["logprobs"]) {
    text += one["token"].get<std::string>();
    EXPECT_EQ(one["top_logprobs"].size(), 2u);
  }
  EXPECT_EQ(text, "Hi there.");
  EXPECT_EQ(stream(asked)["output"][0]["content"][0], part);
}

TEST_F(Responses, D1ToolsOfEveryKindAreNoError) {
  start();
  say("Fine.");
  Json asked = body("go");
  asked["tools"] = Json::parse(R"([{"type":"function","name":"f","parameters":{"type":"object","properties":{}}},
      {"type":"namespace","name":"n","tools":[{"type":"function","name":"g"}]},{"type":"web_search"},
      {"type":"image_generation"},{"type":"local_shell"},{"type":"mcp","server_label":"x"},
      {"type":"custom","name":"c"}])");
  const Json answer = create(asked);
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["tools"], asked["tools"]);
}

TEST_F(Responses, D2ANamespaceIsFlattened) {
  start();
  say("Fine.");
  Json asked = body("go");
  const int64_t none = client().post("/v1/responses/input_tokens", asked).json()["input_tokens"];
  asked["tools"] = Json::parse(R"([{"type":"namespace","name":"multi_agent_v1","tools":[
      {"type":"function","name":"spawn_agent","description":"d","parameters":{"type":"object","properties":{}}}]}])");
  EXPECT_EQ(create(asked)["status"], "completed");
  const int64_t flat = client().post("/v1/responses/input_tokens", asked).json()["input_tokens"];
  EXPECT_GT(flat, none + 20);  // The model is told of it.
  asked["tools"] = Json::parse(R"([{"type":"function","name":"multi_agent_v1__spawn_agent","description":"d",
      "parameters":{"type":"object","properties":{}}}])");
  EXPECT_EQ(client().post("/v1/responses/input_tokens", asked).json()["input_tokens"], flat);
}

TEST_F(Responses, D3OutputsOfCallsAreTextOrParts) {
  start();
  say("Fine.");
  const auto tokens = [&](const Json& output) {
    Json asked = body(Json::array({user("go"),
                                   {{"type", "function_call"}, {"call_id", "c"}, {"name", "ls"}, {"arguments", "{}"}},
                                   {{"type", "function_call_output"}, {"call_id", "c"}, {"output", output}}}));
    EXPECT_EQ(create(asked)["status"], "completed");
    return client().post("/v1/responses/input_tokens", asked).json()["input_tokens"].get<int64_t>();
  };
  const int64_t text = tokens("ok");
  EXPECT_EQ(tokens(Json::parse(R"([{"type":"input_text","text":"ok"}])")), text);
  EXPECT_GT(tokens(Json::parse(R"([{"type":"input_text","text":"ok"},{"type":"input_image","image_url":"data:,"}])")),
            text);
}

TEST_F(Responses, D4ProbesUnknownConversationsAndModels) {
  start();
  say("never said");
  const Json probe = {{"input", Json::array()}, {"max_output_tokens", 1}};
  const Json answer = create(probe);
  EXPECT_EQ(answer["output"], Json::array());
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["usage"]["total_tokens"], 0);
  std::string outline;
  EXPECT_EQ(stream(probe, &outline)["output"], Json::array());
  EXPECT_EQ(outline, "created in_progress completed ");
  EXPECT_EQ(engine_->stats().generated_tokens, 0);

  Json asked = body("hi");
  asked["previous_response_id"] = "resp_unknown";
  const WireAnswer unknown = client().post("/v1/responses", asked);
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(unknown.error_code(), "previous_response_not_found");
  EXPECT_EQ(unknown.error_param(), "previous_response_id");

  EXPECT_EQ(client().get("/v1/models").json()["models"][0]["slug"], "mini");
}

TEST_F(Responses, RefusalsUseThisDialectsNames) {
  RigOptions options;
  options.engine.context_tokens = 256;
  start(options);
  const auto refused = [&](const Json& asked) {
    const WireAnswer answer = client().post("/v1/responses", asked);
    EXPECT_EQ(answer.status, 400) << answer.body;
    return answer;
  };
  EXPECT_EQ(refused({{"model", "mini"}}).error_param(), "input");
  EXPECT_EQ(refused({{"input", {{{"role", "system"}, {"content", "x"}}}}}).error_param(), "input");
  EXPECT_EQ(refused({{"input", "x"}, {"max_output_tokens", "5"}}).error_param(), "max_output_tokens");
  const WireAnswer large = refused(body(words(300)));  // D13
  EXPECT_EQ(large.error_code(), "context_length_exceeded");
  EXPECT_EQ(large.error_param(), "input");
  EXPECT_EQ(
      large.json()["error"]["message"].get<std::string>().find("This model's maximum context length is 256 tokens."),
      0u);
  Json streamed = body(words(300));
  streamed["stream"] = true;
  EXPECT_EQ(refused(streamed).error_code(), "context_length_exceeded");  // A status, as nothing was sent.
  EXPECT_EQ(client().post("/v1/responses/compact", {{"input", "x"}}).status, 501);
}

TEST_F(Responses, InputTokensEqualWhatTheResponseReports) {
  start();
  say("Hm.\n</think>\n\nFine.");
  Json asked = {{"input", "hi"}, {"instructions", words(50)}, {"tools", kTools}};
  const Json counted = client().post("/v1/responses/input_tokens", asked).json();
  EXPECT_EQ(counted["object"], "response.input_tokens");
  const Json first = create(asked);
  EXPECT_EQ(counted["input_tokens"], first["usage"]["input_tokens"]);
  asked["previous_response_id"] = first["id"];
  EXPECT_EQ(client().post("/v1/responses/input_tokens", asked).json()["input_tokens"],
            create(asked)["usage"]["input_tokens"]);
  EXPECT_EQ(client().post("/v1/responses/input_tokens", {{"input", Json::array()}}).json()["input_tokens"], 0);
}

// The next turn finds all that the one before it read and said, however it is continued.
TEST_F(Responses, TheNextTurnIsWarmByIdAndByItems) {
  RigOptions options;
  options.engine.anchors = 16;
  start(options);
  int turns = 0;
  for (const bool by_id : {true, false}) {
    for (const char* form : {"content", "summary", "sealed"}) {
      SCOPED_TRACE(cat(by_id ? "by id, " : "by items, ", form));
      say(cat(words(40, form), "\n</think>\n\nI look.\n\n", kCall, "\n", kCall));
      Json asked = {{"input", Json::array({user(cat(words(200), form, by_id))})}, {"tools", kTools}};
      const bool sealed = std::string_view(form) == "sealed";
      asked["store"] = by_id;
      if (std::string_view(form) == "summary") asked["reasoning"] = {{"summary", "detailed"}};
      if (sealed) asked["include"] = {"reasoning.encrypted_content"};
      const Json first = by_id ? create(asked) : stream(asked);
      ASSERT_EQ(first["output"].size(), 4u);
      ASSERT_TRUE(consolidated(++turns));
      Json items = by_id ? Json::array() : asked["input"];
      for (Json item : first["output"]) {
        if (by_id) break;
        // As Codex sends them back: without ids; the thought of another without its text.
        item.erase("id");
        if (sealed && item["type"] == "reasoning") item.erase("content");
        items.push_back(item);
      }
      for (const size_t call : {2, 3})
        items.push_back(
            {{"type", "function_call_output"}, {"call_id", first["output"][call]["call_id"]}, {"output", "a b c"}});
      asked["input"] = items;
      if (by_id) asked["previous_response_id"] = first["id"];
      say("\n</think>\n\nFine.");
      const Json next = create(asked);
      EXPECT_GT(cached(next), first["usage"]["total_tokens"].get<int64_t>() - 64);
      EXPECT_EQ(next["timings"]["cache_n"], cached(next));
      ASSERT_TRUE(consolidated(++turns));
    }
  }
}

TEST_F(Responses, AThirdTurnStandsBehindBothBefore) {
  start();
  say("One.");
  const Json first = create(body("first"));
  Json asked = body("second");
  asked["previous_response_id"] = first["id"];
  say("Two.");
  const Json second = create(asked);
  EXPECT_EQ(second["previous_response_id"], first["id"]);
  asked = body("third");
  asked["previous_response_id"] = second["id"];
  const Json by_id = client().post("/v1/responses/input_tokens", asked).json();
  Json all = body(Json::array({user("first"), first["output"][0], user("second"), second["output"][0], user("third")}));
  EXPECT_EQ(by_id, client().post("/v1/responses/input_tokens", all).json());
  all["input"][1] = {{"type", "item_reference"}, {"id", first["output"][0]["id"]}};
  EXPECT_EQ(by_id, client().post("/v1/responses/input_tokens", all).json());
  // Instructions are not carried over.
  asked["instructions"] = "Be brief.";
  EXPECT_GT(client().post("/v1/responses/input_tokens", asked).json()["input_tokens"], by_id["input_tokens"]);
}

TEST_F(Responses, WhatIsStoredIsReadListedAndDeleted) {
  start();
  say("One.");
  Json asked = body("first");
  const Json first = create(asked);
  const std::string path = cat("/v1/responses/", first["id"].get<std::string>());
  EXPECT_EQ(client().get(path).json(), first);
  asked = body(Json::array({user("second"), user("more")}));
  asked["previous_response_id"] = first["id"];
  const Json second = stream(asked);
  const std::string items = cat("/v1/responses/", second["id"].get<std::string>(), "/input_items");
  EXPECT_EQ(client().get(cat("/v1/responses/", second["id"].get<std::string>())).json(), second);

  const Json list = client().get(items + "?order=asc").json();
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 4u);
  EXPECT_EQ(without(list["data"][0], {"id"}), Json::parse(R"({"type":"message","role":"user",
      "content":[{"type":"input_text","text":"first"}],"status":"completed"})"));
  EXPECT_EQ(list["data"][1], first["output"][0]);
  EXPECT_FALSE(list["has_more"]);
  const Json page = client().get(items + "?limit=2").json();  // The newest first.
  EXPECT_EQ(page["data"], Json::array({list["data"][3], list["data"][2]}));
  EXPECT_TRUE(page["has_more"]);
  const Json rest = client().get(cat(items, "?limit=2&after=", page["last_id"].get<std::string>())).json();
  EXPECT_EQ(rest["data"], Json::array({list["data"][1], list["data"][0]}));
  EXPECT_FALSE(rest["has_more"]);
  for (const char* bad : {"?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=msg_none"})
    EXPECT_EQ(client().get(items + bad).status, 400) << bad;
  EXPECT_EQ(client().get(path + "?stream=true").status, 400);

  const WireAnswer gone = client().call("DELETE", path, "");
  EXPECT_EQ(gone.json(), Json({{"id", first["id"]}, {"object", "response"}, {"deleted", true}}));
  for (const char* method : {"GET", "DELETE"}) {
    const WireAnswer again = client().call(method, path, "");
    EXPECT_EQ(again.status, 404);
    EXPECT_EQ(again.error_code(), "not_found");
  }
  EXPECT_EQ(client().get(items).json()["data"].size(), 4u);  // The conversation behind it is whole.
  const WireAnswer wrong = client().call("PATCH", path, "");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "GET, HEAD, DELETE, OPTIONS");
}

TEST_F(Responses, NothingIsKeptThatWasNotToBeKept) {
  RigOptions options;
  options.server.responses.bytes_max = 0;
  start(options);
  say("One.");
  const std::string unkept = create(body("first"))["id"];
  EXPECT_EQ(client().get("/v1/responses/" + unkept).status, 404);
  Json asked = body("next");
  asked["previous_response_id"] = unkept;
  EXPECT_EQ(client().post("/v1/responses", asked).status, 400);
}

TEST_F(Responses, StoreFalseIsNotKept) {
  start();
  say("One.");
  Json asked = body("first");
  asked["store"] = false;
  EXPECT_EQ(client().get("/v1/responses/" + create(asked)["id"].get<std::string>()).status, 404);
  EXPECT_EQ(client().get("/v1/responses/" + stream(asked)["id"].get<std::string>()).status, 404);
}

TEST_F(Responses, OneKeyNeverReadsAnothers) {
  RigOptions options;
  options.server.api_keys = {"red", "blue"};
  start(options);
  say("One.");
  const Json first = create(body("first"), "red");
  const std::string path = "/v1/responses/" + first["id"].get<std::string>();
  const auto status = [&](const char* method, const std::string& where, const Json& sent, const char* key) {
    return client().call(method, where, sent.is_null() ? "" : dump_json(sent), headers(key)).status;
  };
  Json next = body("next"),
       reference = body(Json::array({user("x"), {{"type", "item_reference"}, {"id", first["output"][0]["id"]}}}));
  next["previous_response_id"] = first["id"];
  EXPECT_EQ(status("GET", path, nullptr, "blue"), 404);
  EXPECT_EQ(status("GET", path + "/input_items", nullptr, "blue"), 404);
  EXPECT_EQ(status("DELETE", path, nullptr, "blue"), 404);
  EXPECT_EQ(status("POST", "/v1/responses", next, "blue"), 400);
  EXPECT_EQ(status("POST", "/v1/responses", reference, "blue"), 400);
  EXPECT_EQ(status("GET", path, nullptr, ""), 401);
  EXPECT_EQ(status("GET", path, nullptr, "red"), 200);
  EXPECT_EQ(status("POST", "/v1/responses", next, "red"), 200);
  EXPECT_EQ(status("POST", "/v1/responses", reference, "red"), 200);
  EXPECT_EQ(status("DELETE", path, nullptr, "red"), 200);
}

// While the prompt is read a client with an idle timer gets events, not comments.
TEST_F(Responses, SilenceIsFilledWithEvents) {
  RigOptions options;
  options.server.http.first_byte_ms_max = 5;
  options.server.http.ping_ms = 5;
  start(options);
  model_->prefill_ms = 60;
  say("Hi.");
  std::string outline;
  EXPECT_EQ(stream(body(words(300)), &outline)["status"], "completed");
  EXPECT_EQ(outline.find("created in_progress in_progress "), 0u) << outline;
}

TEST_F(Responses, ProgressComesWithTheState) {
  start();
  say("Hi.");
  Json asked = body(words(300));
  asked["return_progress"] = true;
  asked["stream"] = true;
  int seen = 0;
  for (const Json& event : events_of(client().post("/v1/responses", asked).body).data)
    if (event.contains("prompt_progress")) {
      EXPECT_EQ(event["type"], "response.in_progress");
      ++seen;
    }
  EXPECT_GT(seen, 0);
}

TEST_F(Responses, AStreamThatIsCutSaysThatItFailed) {
  start();
  model_->decode_ms = 20;
  say(words(100));
  Json asked = body("go");
  asked["stream"] = true;
  WireClient reader = client();
  reader.send(WireClient::request("POST", "/v1/responses", dump_json(asked)));
  std::string got;
  while (got.find("output_text.delta") == std::string::npos) {
    const std::string more = reader.read_some();
    ASSERT_FALSE(more.empty()) << got;
    got += more;
  }
  server_->cut();
  for (std::string more = reader.read_some(); !more.empty(); more = reader.read_some()) got += more;
  EXPECT_NE(got.find("event: response.failed\n"), std::string::npos) << got;
  EXPECT_NE(got.find(R"("error":{"code":"server_error","message":"the server is shutting down)"), std::string::npos);
  EXPECT_EQ(got.find("response.completed"), std::string::npos);
}

}  // namespace
}  // namespace wp::testing
