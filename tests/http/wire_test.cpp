// The wire itself, byte by byte (spec/api.md 7, 12 E17, F9, F10): whatever comes in, a well-formed answer goes out, and
// the server serves on.
#include <map>

#include "rig.h"

namespace wp::testing {
namespace {

class Wire : public HttpRig {
 protected:
  void expect_alive() { EXPECT_EQ(client().get("/livez").status, 200); }
};

TEST_F(Wire, RoutesThatDoNotExist) {
  start();
  WireClient c = client();
  EXPECT_EQ(c.get("/nothing").error_code(), "not_found");
  EXPECT_EQ(c.get("/v1/models/other").error_code(), "model_not_found");
  const WireAnswer wrong = c.get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(c.call("DELETE", "/health", "").status, 405);
  for (const char* path : {"/v1/embeddings", "/v1/responses/compact", "/v1/audio/speech", "/rerank"}) {
    const WireAnswer missing = c.post(path, Json::object());
    EXPECT_EQ(missing.status, 501) << path;
    EXPECT_EQ(missing.json()["error"]["type"], "not_implemented_error");
  }
}

TEST_F(Wire, CacheIsShownFlushedAndNotSavedWithoutADisk) {
  start();
  WireClient c = client();
  say("Yes.");
  std::string text;
  for (int i = 0; i < 400; ++i) text += " word";
  const auto cached = [&] {
    return c.post("/v1/chat/completions", chat(text)).json()["usage"]["prompt_tokens_details"]["cached_tokens"];
  };
  EXPECT_EQ(cached(), 0);
  EXPECT_GT(cached(), 0);
  Json stats = c.get("/cache").json();
  EXPECT_EQ(stats["enabled"], true);
  EXPECT_EQ(stats["lookups"], 2);
  EXPECT_EQ(stats["restores"]["device"], 1);
  EXPECT_GT(stats["device"]["anchors"]["published"], 0);
  EXPECT_TRUE(stats["ram"].is_null() && stats["disk"].is_null());
  EXPECT_EQ(c.post("/cache/flush", Json::object()).status, 200);
  EXPECT_EQ(cached(), 0);
  EXPECT_EQ(c.get("/cache/flush").status, 405);
  const WireAnswer save = c.post("/cache/save", Json::object());
  EXPECT_EQ(save.status, 501);
  EXPECT_EQ(save.error_code(), "no_disk_tier");
}

TEST_F(Wire, StatusAndTreeShowWhatTheServerHolds) {
  RigOptions options;
  options.engine.consolidate = false;  // Nothing changes between two looks.
  start(options);
  WireClient c = client();
  EXPECT_EQ(c.get("/cache/tree").json(), Json({{"busy", false}, {"whole", true}, {"runs", Json::array()}}));
  say("Yes.");
  std::string text;
  for (int i = 0; i < 400; ++i) text += " word";
  const Json cold = c.post("/v1/chat/completions", chat(text)).json();
  const Json warm = c.post("/v1/chat/completions", chat(text)).json();
  const Json status = c.get("/status").json();
  EXPECT_EQ(status["state"], "serving");
  EXPECT_EQ(status["model"], "mini");
  EXPECT_EQ(status["requests"]["running"], 0);
  EXPECT_EQ(status["requests"]["slots"], 4);
  ASSERT_EQ(status["recent"].size(), 2u);
  EXPECT_EQ(status["recent"][0]["cached_tokens"], 0);
  EXPECT_EQ(status["recent"][0]["miss_reason"], "cold");
  EXPECT_EQ(status["recent"][1]["number"], 2);
  EXPECT_EQ(status["recent"][1]["prompt_tokens"], warm["usage"]["prompt_tokens"]);
  EXPECT_EQ(status["recent"][1]["cached_tokens"], warm["usage"]["prompt_tokens_details"]["cached_tokens"]);
  EXPECT_EQ(status["recent"][1]["cache_source"], "device");
  EXPECT_TRUE(status["recent"][1]["miss_reason"].is_null());
  // The pools, in the script model's sizes.
  std::map<std::string, std::pair<int64_t, int64_t>> pools;
  for (const Json& pool : status["memory"]["pools"]) pools[pool["pool"]] = {pool["bytes"], pool["used_bytes"]};
  const Json stats = c.get("/cache").json();
  EXPECT_EQ(pools.at("pages").first, 512 * 64);
  EXPECT_EQ(pools.at("pages").second, 64 * stats["device"]["pages"]["cached"].get<int64_t>());
  EXPECT_EQ(pools.at("anchors").second, 64 * stats["device"]["anchors"]["published"].get<int64_t>());
  EXPECT_GT(pools.at("anchors").second, 0);
  EXPECT_EQ(pools.count("ram"), 0u);
  // The tree: as many tokens as there are pages, as many anchors as are published.
  const Json tree = c.get("/cache/tree").json();
  int64_t tokens = 0, anchors = 0;
  for (const Json& run : tree["runs"]) {
    tokens += run["end"].get<int64_t>() - run["begin"].get<int64_t>();
    anchors += !run["anchor"].is_null();
  }
  EXPECT_EQ(tokens, 64 * stats["device"]["pages"]["cached"].get<int64_t>());
  EXPECT_EQ(anchors, stats["device"]["anchors"]["published"]);
  EXPECT_GT(anchors, 0);
  EXPECT_EQ(dump_json(tree).find("word"), std::string::npos);
  EXPECT_EQ(c.post("/status", Json::object()).status, 405);
}

TEST_F(Wire, StatusTellsTheLoadAndATreeWaitsForIt) {
  RigOptions options;
  options.load = false;
  start(options);
  server_->set_loading("weights", 40);
  WireClient c = client();
  const Json status = c.get("/status").json();
  EXPECT_EQ(status["state"], "loading");
  EXPECT_EQ(status["phase"], "weights");
  EXPECT_EQ(status["percent"], 40);
  EXPECT_EQ(c.get("/cache/tree").error_code(), "loading_model");
}

TEST_F(Wire, SlotsAreShownErasedAndNotSavedWithoutAFolder) {
  start();
  WireClient c = client();
  say("Yes.");
  std::string text;
  for (int i = 0; i < 400; ++i) text += " word";
  const Json answer = c.post("/v1/chat/completions", chat(text)).json();
  const int slot = answer["timings"]["id_slot"];
  const Json slots = c.get("/slots?fail_on_no_slot=1").json();
  ASSERT_EQ(slots.size(), 4u);
  const Json& used = slots[static_cast<size_t>(slot)];
  EXPECT_EQ(used["id"], slot);
  EXPECT_EQ(used["is_processing"], false);
  EXPECT_EQ(used["n_prompt_tokens"], answer["usage"]["prompt_tokens"]);
  EXPECT_EQ(used["next_token"]["n_decoded"], answer["timings"]["predicted_n"]);
  EXPECT_EQ(used["miss_reason"], "cold");
  const std::string path = cat("/slots/", slot, "?action=");
  EXPECT_EQ(c.post(path + "save", {{"filename", "a"}}).error_code(), "no_slot_folder");
  EXPECT_EQ(c.post(path + "fly", Json::object()).error_param(), "action");
  EXPECT_EQ(c.post("/slots/9?action=erase", Json::object()).error_param(), "id_slot");
  const Json erased = c.post(path + "erase", Json::object()).json();
  EXPECT_GT(erased["n_erased"].get<int>(), 0) << dump_json(erased);
  EXPECT_EQ(c.post(path + "erase", Json::object()).json()["n_erased"], 0);
}

TEST_F(Wire, PropsSayWhatIsLoaded) {
  start();
  const Json props = client().get("/props").json();
  EXPECT_EQ(props["n_ctx"], 4096);
  EXPECT_EQ(props["total_slots"], 4);
  EXPECT_EQ(props["model_alias"], "mini");
  EXPECT_EQ(props["build_info"], "warmpath test");
  EXPECT_EQ(props["modalities"], Json::parse(R"({"vision":false,"audio":false})"));
  EXPECT_EQ(props["chat_template"], bundled().chat_template.source());
  EXPECT_EQ(props["chat_template_caps"]["supports_tools"], true);
  EXPECT_EQ(props["chat_template_caps"]["supports_reasoning_effort"], false);  // The bundled one has no such switch.
  EXPECT_EQ(props["default_generation_settings"]["params"]["temperature"], 0.0);
}

TEST_F(Wire, HeadOptionsAndRoot) {
  start();
  WireClient c = client();
  const WireAnswer head = c.call("HEAD", "/v1/models", "");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_GT(std::stoi(head.headers.at("content-length")), 10);
  const WireAnswer options = c.call("OPTIONS", "/v1/chat/completions", "");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(options.headers.count("access-control-allow-origin"), 0u);
  EXPECT_EQ(c.get("/v1/models?limit=3").json()["data"][0]["id"], "mini");
  EXPECT_EQ(c.get("http://localhost/v1/models/%6dini").json()["id"], "mini");
}

// One page, and nothing runs in it but its own script: the digests are of what stands in it.
TEST_F(Wire, ThePageHoldsAllItNeeds) {
  start();
  WireClient c = client();
  const WireAnswer page = c.get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  const std::string& policy = page.headers.at("content-security-policy");
  EXPECT_EQ(policy.find("default-src 'none'; style-src 'sha256-"), 0u) << policy;
  EXPECT_NE(policy.find("; connect-src 'self'; "), std::string::npos) << policy;
  EXPECT_NE(policy.find("frame-ancestors 'none'"), std::string::npos) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos) << policy;
  EXPECT_EQ(page.headers.at("x-content-type-options"), "nosniff");
  EXPECT_EQ(page.body.find(" src="), std::string::npos);
  EXPECT_EQ(page.body.find("@import"), std::string::npos);
  EXPECT_EQ(page.body.find("innerHTML"), std::string::npos);
  EXPECT_EQ(page.body.find(".css@"), std::string::npos) << "a part was not put in";
  EXPECT_NE(page.body.find("</html>"), std::string::npos);
  EXPECT_EQ(c.call("HEAD", "/", "").headers.at("content-length"), std::to_string(page.body.size()));
  c.send("GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n");
  EXPECT_EQ(c.read().error_code(), "forbidden_host");
}

TEST_F(Wire, MalformedRequestsGetJsonAndAnEnd) {
  RigOptions options;
  options.server.http.header_bytes_max = 4096;
  options.server.http.body_bytes_max = 10'000;
  start(options);
  const struct {
    const char* name;
    std::string bytes;
    int status;
  } kCases[] = {
      {"not HTTP", "hello\r\n\r\n", 400},
      {"binary", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15), 400},
      {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"bad length", "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: abc\r\n\r\n", 400},
      {"two lengths",
       "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd", 400},
      {"bad chunk", "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400},
      {"no length", "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\r\n", 411},
      {"huge header", "GET /livez HTTP/1.1\r\nhost: localhost\r\nx: " + std::string(8000, 'x') + "\r\n\r\n", 431},
      {"huge path", "GET /" + std::string(8000, 'x') + " HTTP/1.1\r\nhost: localhost\r\n\r\n", 431},
      {"huge body", "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n", 413},
      {"huge chunk",
       "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nfffff\r\n" +
           std::string(20'000, 'x'),
       413},
      {"other expectation", "GET /livez HTTP/1.1\r\nhost: localhost\r\nexpect: cake\r\n\r\n", 417},
      {"NUL in the path", std::string("GET /li\0ez HTTP/1.1\r\nhost: localhost\r\n\r\n", 43), 400},
      {"escaped NUL", "GET /livez%00 HTTP/1.1\r\nhost: localhost\r\n\r\n", 400},
      {"bad escape", "GET /livez%zz HTTP/1.1\r\nhost: localhost\r\n\r\n", 400},
      {"no host", "GET /livez HTTP/1.1\r\n\r\n", 400},
  };
  for (const auto& one : kCases) {
    SCOPED_TRACE(one.name);
    WireClient c = client();
    c.send(one.bytes);
    const WireAnswer answer = c.read();
    EXPECT_EQ(answer.status, one.status);
    EXPECT_TRUE(answer.whole);
    EXPECT_TRUE(answer.json()["error"]["message"].is_string());
    expect_alive();
  }
}

TEST_F(Wire, SlowHeadersAndBodiesEndIn408) {
  RigOptions options;
  options.server.http.header_ms_max = 100;
  options.server.http.body_ms_max = 100;
  options.server.http.idle_ms_max = 300;
  start(options);
  WireClient headers = client(), body = client(), idle = client();
  headers.send("GET /livez HT");
  body.send("POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{");
  const WireAnswer first = headers.read(), second = body.read();
  EXPECT_EQ(first.status, 408);
  EXPECT_EQ(first.error_code(), "header_timeout");
  EXPECT_EQ(second.status, 408);
  EXPECT_EQ(second.error_code(), "body_timeout");
  EXPECT_TRUE(idle.at_end(2000));
}

TEST_F(Wire, KeepAlivePipeliningAndOldVersions) {
  start();
  WireClient c = client();
  const std::string body = R"({"content":"a"})";
  std::string burst;
  for (int i = 0; i < 20; ++i) {
    burst += "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
    burst += WireClient::request("POST", "/tokenize", body);
  }
  c.send(burst);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(c.read().json()["status"], "ok");
    EXPECT_EQ(c.read().json()["count"], 1);
  }
  c.send("GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
  EXPECT_EQ(c.read().headers.at("connection"), "close");
  EXPECT_TRUE(c.at_end());

  WireClient old = client();
  old.send("GET /livez HTTP/1.0\r\n\r\n");
  const WireAnswer answer = old.read();
  EXPECT_EQ(answer.head.substr(0, 12), "HTTP/1.0 200");
  EXPECT_TRUE(old.at_end());
}

TEST_F(Wire, ExpectContinueAndChunkedBodies) {
  start();
  WireClient c = client();
  c.send(
      "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
      "expect: 100-continue\r\ncontent-length: 15\r\n\r\n");
  EXPECT_EQ(c.read().status, 100);
  c.send(R"({"content":"a"})");
  EXPECT_EQ(c.read().json()["count"], 1);
  c.send(
      "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
      "transfer-encoding: chunked\r\n\r\n5\r\n{\"con\r\na\r\ntent\":\"a\"}\r\n0\r\n\r\n");
  EXPECT_EQ(c.read().json()["count"], 1);
}

TEST_F(Wire, F9ForeignHostsOriginsAndMediaTypes) {
  start();
  const std::string body = R"({"content":"a"})";
  const auto post = [&](const std::string& headers) {
    WireClient c = client();
    c.send(cat("POST /tokenize HTTP/1.1\r\n", headers, "content-length: ", body.size(), "\r\n\r\n", body));
    return c.read();
  };
  const std::string json = "content-type: application/json\r\n";
  EXPECT_EQ(post("host: evil.example\r\n" + json).error_code(), "forbidden_host");
  EXPECT_EQ(post("host: 127.0.0.1.evil.example\r\n" + json).error_code(), "forbidden_host");
  EXPECT_EQ(post("host: [::1]:8080\r\n" + json).status, 200);
  EXPECT_EQ(post("host: 127.0.0.1:99\r\n" + json).status, 200);
  EXPECT_EQ(post("host: localhost\r\norigin: https://evil.example\r\n" + json).error_code(), "forbidden_origin");
  EXPECT_EQ(post("host: localhost\r\norigin: null\r\n" + json).error_code(), "forbidden_origin");
  EXPECT_EQ(post("host: localhost:1\r\norigin: http://localhost:1\r\n" + json).status, 200);
  EXPECT_EQ(post("host: localhost\r\ncontent-type: text/plain\r\n").status, 415);
  EXPECT_EQ(post("host: localhost\r\ncontent-type: multipart/form-data; boundary=x\r\n").status, 415);
  EXPECT_EQ(post("host: localhost\r\ncontent-type: application/JSON; charset=utf-8\r\n").status, 200);
  EXPECT_EQ(post("host: localhost\r\ncontent-type: application/x-www-form-urlencoded\r\n").status, 200);
  EXPECT_EQ(post("host: localhost:1\r\norigin: http://localhost:1\r\ncontent-type: "
                 "application/x-www-form-urlencoded\r\n")
                .status,
            415);
}

TEST_F(Wire, F9ConfiguredOriginsAloneGetCorsHeaders) {
  RigOptions options;
  options.server.allowed_origins = {"https://app.example"};
  start(options);
  WireClient c = client();
  const WireAnswer answer = c.call("OPTIONS", "/v1/chat/completions", "", "origin: https://app.example\r\n");
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(c.call("OPTIONS", "/v1/chat/completions", "", "origin: https://b.example\r\n").status, 403);
}

TEST_F(Wire, KeysGuardEveryRouteButHealth) {
  RigOptions options;
  options.server.api_keys = {"secret-one", "secret-two"};
  start(options);
  WireClient c = client();
  // The page is the same for everybody and asks for all it shows with a key.
  for (const char* path : {"/livez", "/readyz", "/health", "/"}) EXPECT_EQ(c.get(path).status, 200) << path;
  for (const char* path : {"/v1/models", "/v1/models/mini", "/metrics", "/status", "/cache", "/cache/tree", "/slots",
                           "/nothing", "/v1/embeddings"})
    EXPECT_EQ(c.get(path).error_code(), "invalid_api_key") << path;
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template"}) {
    const WireAnswer answer = c.post(path, Json::object());
    EXPECT_EQ(answer.status, 401) << path;
    EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
  }
  EXPECT_EQ(c.call("GET", "/v1/models", "", "authorization: Bearer secret-two\r\n").status, 200);
  EXPECT_EQ(c.call("GET", "/v1/models", "", "x-api-key: secret-one\r\n").status, 200);
  EXPECT_EQ(c.call("GET", "/v1/models", "", "authorization: Bearer secret-twO\r\n").status, 401);
  EXPECT_EQ(c.call("GET", "/v1/models", "", "authorization: Bearer secret\r\n").status, 401);
  // With a key the name of the host does not matter.
  c.send("GET /v1/models HTTP/1.1\r\nhost: gpu.example\r\nauthorization: Bearer secret-one\r\n\r\n");
  EXPECT_EQ(c.read().status, 200);
}

TEST_F(Wire, AThousandIdleConnectionsAndThreads) {
  start();
  std::vector<std::unique_ptr<WireClient>> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(std::make_unique<WireClient>(server_->port()));
    if (i % 10 != 0) continue;
    EXPECT_EQ(idle.back()->get("/livez").status, 200);
  }
  const Json health = client().get("/health").json();
  EXPECT_GE(health["connections"].get<int>(), 1000);
  say("fine");
  Json body = chat("hi");
  body["enable_thinking"] = false;
  EXPECT_EQ(client().post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"], "fine");
  EXPECT_EQ(idle[500]->get("/livez").status, 200);
  idle.clear();
  EXPECT_TRUE(soon([&] { return client().get("/health").json()["connections"].get<int>() <= 2; }));
}

TEST_F(Wire, TooManyConnectionsAreRefusedNotQueued) {
  RigOptions options;
  options.server.http.connections_max = 3;
  start(options);
  WireClient a = client(), b = client(), c = client();
  EXPECT_EQ(a.get("/livez").status, 200);
  EXPECT_EQ(b.get("/livez").status, 200);
  EXPECT_EQ(c.get("/livez").status, 200);
  WireClient d = client();
  EXPECT_EQ(d.read().error_code(), "overloaded");
  a.close();
  EXPECT_TRUE(soon([&] { return client().get("/livez").status == 200; }));
}

TEST_F(Wire, APortInUseIsNamed) {
  start();
  ServerOptions options;
  options.port = server_->port();
  auto second = Server::bind(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::address_in_use);
  EXPECT_NE(second.error().message.find(cat("127.0.0.1:", options.port)), std::string::npos) << second.error().message;
}

// Random bytes, and real requests with random damage: every connection ends or answers, and the server serves on.
TEST_F(Wire, RandomDamage) {
  RigOptions options;
  options.server.http.header_ms_max = 50;
  options.server.http.body_ms_max = 50;
  start(options);
  const std::string good = WireClient::request("POST", "/v1/chat/completions", dump_json(chat("hi")));
  Marks marks({"served", "refused", "left"});
  for (const Seed seed : seeds_of_this_run()) {
    SCOPED_TRACE(repeat_hint(seed));
    Rng rng(seed);
    for (int i = 0; i < 150; ++i) {
      std::string bytes = good;
      for (int64_t n = rng.between(0, 6); n > 0; --n) {  // Undamaged ones are served for sure.
        const size_t at = static_cast<size_t>(rng.between(0, static_cast<int64_t>(bytes.size()) - 1));
        if (rng.percent(50)) bytes[at] = static_cast<char>(rng.next());
        else bytes.erase(at, static_cast<size_t>(rng.between(1, 8)));
      }
      WireClient c = client();
      c.send(bytes);
      if (rng.percent(30)) {
        marks.reach("left");
        c.close(rng.percent(50));
        continue;
      }
      if (rng.percent(50)) c.close_sending();
      const WireAnswer answer = c.read();
      EXPECT_TRUE(answer.status == 0 || answer.status == 200 || answer.status >= 400) << answer.head;
      if (answer.status == 200) marks.reach("served");
      if (answer.status >= 400) marks.reach("refused");
      EXPECT_TRUE(answer.status < 400 || answer.json()["error"].is_object());
    }
    expect_alive();
  }
  EXPECT_TRUE(soon([&] { return server_->in_flight() == 0; }));
  EXPECT_TRUE(marks.all_reached()) << marks.missing();
}

}  // namespace
}  // namespace wp::testing
