// From bind to stop: loading, clients that leave at every point, silence, floods, draining and cutting; and one
// req_start and one req_end for each request whatever happens (spec/api.md 12 D16, G; spec/cli.md 4.3).
#include <cstdio>
#include <fstream>
#include <set>

#include "rig.h"

namespace wp::testing {
namespace {

class Lifecycle : public HttpRig {
 protected:
  // A request that takes a while: long prefill, long decoding, or both.
  static Json long_chat(int words, bool stream) {
    std::string text;
    for (int i = 0; i < words; ++i) text += " a";
    Json body = chat(text);
    body["enable_thinking"] = false;
    body["ignore_eos"] = true;
    body["stream"] = stream;
    return body;
  }
  static std::string post(const Json& body) {
    return WireClient::request("POST", "/v1/chat/completions", dump_json(body));
  }
  bool all_quiet() {
    const EngineStats stats = engine_->stats();
    return stats.running == 0 && stats.waiting == 0 && server_->in_flight() == 0;
  }
};

TEST_F(Lifecycle, LoadingThenServing) {
  RigOptions options;
  options.load = false;
  start(options);
  server_->set_loading("weights", 37.5);
  WireClient c = client();
  EXPECT_EQ(c.get("/livez").status, 200);
  const WireAnswer ready = c.get("/readyz"), refused = c.post("/v1/chat/completions", chat("hi"));
  EXPECT_EQ(ready.error_code(), "loading_model");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.error_code(), "loading_model");
  EXPECT_TRUE(refused.headers.count("retry-after"));
  const WireAnswer health = c.get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json()["phase"], "weights");
  EXPECT_EQ(health.json()["percent"], 37.5);
  const Json models = c.get("/v1/models").json();
  EXPECT_EQ(models["data"][0]["status"], "loading");
  EXPECT_EQ(c.post("/tokenize", {{"content", "x"}}).status, 503);
  EXPECT_EQ(c.get("/metrics").status, 200);
  load();
  EXPECT_EQ(c.get("/readyz").status, 200);
  EXPECT_EQ(c.get("/health").json()["status"], "ok");
  say("hi");
  EXPECT_EQ(c.post("/v1/chat/completions", chat("hi")).status, 200);
}

TEST_F(Lifecycle, G1ClientsThatLeaveFreeTheirSlots) {
  RigOptions options;
  options.engine.sequences = 1;
  start(options);
  model_->decode_ms = 5;
  for (const bool stream : {false, true}) {
    for (const bool reset : {false, true}) {
      // In decode.
      WireClient decoding = client();
      decoding.send(post(long_chat(10, stream)));
      ASSERT_TRUE(soon([&] { return engine_->stats().decoding == 1; }));
      // In the queue, behind it.
      WireClient queued = client();
      queued.send(post(long_chat(10, stream)));
      ASSERT_TRUE(soon([&] { return engine_->stats().waiting == 1; }));
      queued.close(reset);
      EXPECT_TRUE(soon([&] { return engine_->stats().waiting == 0; }, 300));
      EXPECT_EQ(engine_->stats().decoding, 1);
      decoding.close(reset);
      EXPECT_TRUE(soon([&] { return all_quiet(); }, 300));
      // In prefill.
      model_->prefill_ms = 100;
      WireClient prefilling = client();
      prefilling.send(post(long_chat(2000, stream)));
      ASSERT_TRUE(soon([&] { return engine_->stats().prefilling == 1; }));
      prefilling.close(reset);
      EXPECT_TRUE(soon([&] { return all_quiet(); }, 500));
      model_->prefill_ms = 0;
    }
  }
  const std::string page = client().get("/metrics").body;
  for (const char* phase : {"queued", "prefill", "decode"})
    EXPECT_NE(page.find(cat("warmpath_requests_cancelled_total{phase=\"", phase, "\"} 4\n")), std::string::npos)
        << page;
}

// A thousand times: in the queue, in decode, in prefill, streamed and not. Each is counted once and leaves nothing.
TEST_F(Lifecycle, G1AThousandThatLeaveLeaveNothing) {
  constexpr int kEach = 8, kRounds = 42;  // Of three times as many that leave.
  RigOptions options;
  options.engine.sequences = options.engine.queue_max = kEach;
  options.engine.pages = 1024;
  start(options);
  model_->decode_ms = 1;
  using Clients = std::vector<std::unique_ptr<WireClient>>;
  for (int round = 0; round < kRounds; ++round) {
    const auto arrive = [&](Json body) {
      Clients clients;
      for (int i = 0; i < kEach; ++i) {
        clients.push_back(std::make_unique<WireClient>(server_->port()));
        clients.back()->send(post(body));
      }
      return clients;
    };
    const auto leave = [&](Clients& clients) {
      for (size_t i = 0; i < clients.size(); ++i) clients[i]->close((static_cast<size_t>(round) + i) % 3 == 0);
    };
    const bool stream = round % 2 == 0;
    Clients decoding = arrive(long_chat(2, stream));
    ASSERT_TRUE(soon([&] { return engine_->stats().decoding == kEach; }));
    Clients queued = arrive(long_chat(2, stream));
    ASSERT_TRUE(soon([&] { return engine_->stats().waiting == kEach; }));
    leave(queued);
    ASSERT_TRUE(soon([&] { return engine_->stats().waiting == 0; }));
    leave(decoding);
    ASSERT_TRUE(soon([&] { return all_quiet(); }));
    model_->prefill_ms = 5;
    Json body = long_chat(2000, stream);
    body["cache_prompt"] = false;  // All of it is computed, in dozens of passes.
    Clients prefilling = arrive(body);
    ASSERT_TRUE(soon([&] { return engine_->stats().running == kEach; }));
    leave(prefilling);
    ASSERT_TRUE(soon([&] { return all_quiet(); }));
    model_->prefill_ms = 0;
  }
  const EngineStats stats = engine_->stats();
  constexpr int kAll = 3 * kEach * kRounds;
  static_assert(kAll >= 1000);
  EXPECT_EQ(stats.requests_total, kAll);
  EXPECT_EQ(stats.cancelled_queued + stats.cancelled_prefill + stats.cancelled_decode, kAll);
  EXPECT_EQ(stats.cancelled_queued, kEach * kRounds);
  EXPECT_GT(stats.cancelled_prefill, 0);
  EXPECT_GE(stats.cancelled_decode, kEach * kRounds);
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.cache.pages_leased, 0);
  EXPECT_EQ(stats.cache.anchors_pending, 0);
  say("still here");
  EXPECT_EQ(client().post("/v1/chat/completions", chat("hi")).status, 200);
}

// Three streams and then a long prompt: it comes in pieces, and between two of them each stream goes on.
TEST_F(Lifecycle, G4ALongPromptNeverStallsRunningStreams) {
  RigOptions options;
  options.engine.context_tokens = 32768;
  options.engine.pages = 2048;
  start(options);
  std::string script;
  for (int i = 0; i < 3000; ++i) script += " a";
  say(script);
  Json body = long_chat(5, true);
  body["max_tokens"] = 400;
  const auto alone = events_of(client().post("/v1/chat/completions", body).body).data;
  model_->decode_ms = 1;
  std::vector<std::unique_ptr<WireClient>> streams;
  for (int i = 0; i < 3; ++i) {
    streams.push_back(std::make_unique<WireClient>(server_->port()));
    streams.back()->send(post(body));
  }
  ASSERT_TRUE(soon([&] { return engine_->stats().decoding == 3; }));
  const size_t before = model_->passes().size();
  WireClient late = client();
  Json prompt = long_chat(20'000, true);
  prompt["max_tokens"] = 1;
  late.send(post(prompt));
  EXPECT_TRUE(events_of(late.read(false, 60'000).body).done);
  const auto passes = model_->passes();
  size_t pieces = 0;
  bool streams_went_on = true;
  for (size_t i = before; i < passes.size() && !(passes[i].prefill == false && passes[i].sequences < 3); ++i) {
    if (!passes[i].prefill) {
      streams_went_on = true;
      continue;
    }
    EXPECT_TRUE(streams_went_on) << "two pieces and no step of the streams between, pass " << i;
    streams_went_on = false;
    ++pieces;
  }
  EXPECT_GT(pieces, 5u);
  for (const auto& stream : streams) {
    const auto beside = events_of(stream->read(false, 60'000).body).data;
    ASSERT_EQ(beside.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(beside[i]["choices"], alone[i]["choices"]) << i;
  }
}

TEST_F(Lifecycle, G2OneLeavesTheOtherStays) {
  start();
  say("one two three four five six seven eight nine ten");
  const Json alone = client().post("/v1/chat/completions", long_chat(5, false)).json();
  model_->decode_ms = 2;
  Json body = long_chat(5, false);
  body["max_tokens"] = 60;
  WireClient stays = client();
  stays.send(post(body));
  ASSERT_TRUE(soon([&] { return engine_->stats().decoding == 1; }));
  for (int i = 0; i < 5; ++i) {
    WireClient leaves = client();
    leaves.send(post(long_chat(20, true)));
    leaves.read_some(1000);
  }
  const Json answer = stays.read().json();
  const std::string text = answer["choices"][0]["message"]["content"],
                    whole = alone["choices"][0]["message"]["content"];
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(whole.substr(0, text.size()), text);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 60);
}

TEST_F(Lifecycle, LongPrefillsKeepTheStreamAlive) {  // D16
  RigOptions options;
  options.server.http.first_byte_ms_max = 100;
  options.server.http.ping_ms = 60;
  start(options);
  say("done");
  model_->prefill_ms = 150;
  Json body = long_chat(2000, true);
  body.erase("ignore_eos");
  body["return_progress"] = true;
  WireClient c = client();
  const auto begin = std::chrono::steady_clock::now();
  c.send(post(body));
  EXPECT_NE(c.read_some(2000).find("text/event-stream"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(900));
  std::string rest;
  while (rest.find("[DONE]") == std::string::npos) {
    const std::string more = c.read_some(2000);
    ASSERT_FALSE(more.empty());
    rest += more;
  }
  EXPECT_NE(rest.find(": ping\n\n"), std::string::npos);
  EXPECT_NE(rest.find("\"prompt_progress\":{\"total\":"), std::string::npos);
}

TEST_F(Lifecycle, G7AFullQueueIsRefusedAtOnce) {
  RigOptions options;
  options.engine.sequences = 1;
  options.engine.queue_max = 2;
  start(options);
  model_->decode_ms = 5;
  std::vector<std::unique_ptr<WireClient>> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(std::make_unique<WireClient>(server_->port()));
    held.back()->send(post(long_chat(5, true)));
    ASSERT_TRUE(soon([&] { return engine_->stats().running == 1 && engine_->stats().waiting == i; }));
  }
  const WireAnswer refused = client().post("/v1/chat/completions", long_chat(5, true));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.error_code(), "overloaded");
  EXPECT_TRUE(refused.headers.count("retry-after"));
  EXPECT_EQ(client().get("/health").status, 200);
  held.clear();
  EXPECT_TRUE(soon([&] { return all_quiet(); }));
  say("x");
  EXPECT_GE(client().post("/v1/chat/completions", chat("x")).json()["timings"]["queue_ms"].get<double>(), 0);
}

TEST_F(Lifecycle, BusyThreadsRefuseAtOnce) {
  RigOptions options;
  options.server.http.workers_max = 2;
  start(options);
  model_->decode_ms = 5;
  WireClient a = client(), b = client();
  a.send(post(long_chat(5, true)));
  b.send(post(long_chat(5, true)));
  ASSERT_TRUE(soon([&] { return engine_->stats().running == 2; }));
  EXPECT_EQ(client().post("/v1/chat/completions", chat("x")).error_code(), "overloaded");
  EXPECT_EQ(client().get("/v1/models").status, 200);
}

TEST_F(Lifecycle, AClientThatDoesNotReadIsDropped) {
  RigOptions options;
  options.server.http.write_ms_max = 200;
  options.engine.context_tokens = 65536;
  options.engine.pages = 2048;
  start(options);
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += " a";
  say(text);
  WireClient slow(server_->port(), 4096);
  Json body = long_chat(5, true);
  body["logprobs"] = true;
  body["top_logprobs"] = 20;  // Much to write for each token.
  slow.send(post(body));
  ASSERT_TRUE(soon([&] { return engine_->stats().running == 1; }));
  EXPECT_TRUE(soon([&] { return all_quiet(); }, 15'000));
  const std::string page = client().get("/metrics").body;
  EXPECT_NE(page.find("warmpath_requests_cancelled_total{phase=\"decode\"} 1\n"), std::string::npos) << page;
}

TEST_F(Lifecycle, G3DrainFinishesWhatRunsThenCutEndsIt) {
  start();
  model_->decode_ms = 3;
  Json body = long_chat(5, true);
  body["max_tokens"] = 60;
  WireClient finishes = client();
  finishes.send(post(body));
  ASSERT_TRUE(soon([&] { return engine_->stats().decoding == 1; }));
  WireClient open = client();
  EXPECT_EQ(open.get("/readyz").status, 200);
  server_->begin_drain();
  EXPECT_EQ(open.get("/readyz").error_code(), "draining");
  EXPECT_EQ(open.get("/livez").status, 200);
  const WireAnswer refused = open.post("/v1/chat/completions", chat("x"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.error_code(), "draining");
  EXPECT_TRUE(events_of(finishes.read().body).done);
  EXPECT_TRUE(soon([&] { return server_->in_flight() == 0; }));
}

TEST_F(Lifecycle, G3CutEndsStreamsWithAnErrorEvent) {
  start();
  model_->decode_ms = 3;
  WireClient streamed = client(), plain = client();
  streamed.send(post(long_chat(5, true)));
  plain.send(post(long_chat(5, false)));
  ASSERT_TRUE(soon([&] { return engine_->stats().decoding == 2; }));
  server_->begin_drain();
  server_->stop_accepting();
  server_->cut();
  const WireAnswer stream = streamed.read(), whole = plain.read();
  const WireEvents events = events_of(stream.body);
  EXPECT_FALSE(events.done);
  EXPECT_EQ(events.data.back()["error"]["code"], "draining");
  EXPECT_TRUE(streamed.at_end());
  EXPECT_EQ(whole.error_code(), "draining");
  EXPECT_TRUE(soon([&] { return all_quiet(); }));
}

TEST_F(Lifecycle, AnEngineThatStopsEndsStreamsToo) {
  start();
  model_->decode_ms = 3;
  WireClient c = client();
  c.send(post(long_chat(5, true)));
  ASSERT_TRUE(soon([&] { return engine_->stats().decoding == 1; }));
  engine_->cancel_all();
  const WireEvents events = events_of(c.read().body);
  EXPECT_FALSE(events.done);
  EXPECT_EQ(events.data.back()["error"]["code"], "draining");
}

TEST_F(Lifecycle, StopInTheMiddleOfEverything) {
  start();
  model_->decode_ms = 3;
  std::vector<std::unique_ptr<WireClient>> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(std::make_unique<WireClient>(server_->port()));
    if (i % 3 != 0) clients.back()->send(post(long_chat(5, i % 2 == 0)));
  }
  ASSERT_TRUE(soon([&] { return engine_->stats().running > 0; }));
  server_->stop();
  for (auto& c : clients) c->read(false, 1000);
  EXPECT_TRUE(soon([&] { return engine_->stats().running + engine_->stats().waiting == 0; }));
}

// Chaos, then the log is counted.
TEST_F(Lifecycle, G6EveryRequestHasOneStartAndOneEnd) {
  start();
  const std::string path = ::testing::TempDir() + cat("/wp_requests_", server_->port(), ".log");
  configure_log({.level = LogLevel::info, .file = path});
  model_->decode_ms = 1;
  say("some words and then the end");
  for (const Seed seed : seeds_of_this_run()) {
    SCOPED_TRACE(repeat_hint(seed));
    Rng rng(seed);
    for (int i = 0; i < 60; ++i) {
      WireClient c = client();
      Json body = long_chat(static_cast<int>(rng.between(1, 400)), rng.percent(50));
      if (rng.percent(70)) body.erase("ignore_eos");
      if (rng.percent(10)) body["temperature"] = "hot";
      if (rng.percent(10)) body["n"] = 2;
      c.send(post(body));
      if (body.contains("ignore_eos") || rng.percent(40)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(rng.between(0, 20)));
        c.close(rng.percent(50));
      } else {
        c.read();
      }
    }
  }
  EXPECT_TRUE(soon([&] { return all_quiet(); }));
  configure_log({.level = LogLevel::error});
  std::multiset<std::string> starts, ends;
  int left = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find("id=");
    if (at == std::string::npos) continue;
    const std::string id = line.substr(at, line.find(' ', at) - at);
    if (line.find("req_start") != std::string::npos) starts.insert(id);
    if (line.find("req_end") != std::string::npos) {
      ends.insert(id);
      left += line.find("status=499") != std::string::npos && line.find("phase=") != std::string::npos;
    }
  }
  std::remove(path.c_str());
  EXPECT_GT(starts.size(), 20u);
  EXPECT_GT(left, 0);
  EXPECT_EQ(starts, ends);
  EXPECT_EQ(std::set<std::string>(starts.begin(), starts.end()).size(), starts.size());
}

}  // namespace
}  // namespace wp::testing
