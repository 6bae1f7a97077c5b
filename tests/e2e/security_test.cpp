// Security and signals of the program as it runs (spec/api.md 12 F1, F7, F12, G3).
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "../http/wire_client.h"
#include "process.h"

namespace wp::e2e {
namespace {

using testing::WireAnswer;
using testing::WireClient;

uint16_t port_of(const RunningServer& server) { return static_cast<uint16_t>(std::stoi(server.port())); }

// Inodes of the sockets that a process has.
std::set<std::string> sockets_of(int pid) {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// Ports on which these sockets listen: what `ss -ltn` prints of the process. UNIX sockets that listen count as 0.
std::multiset<int> listening(int pid) {
  const std::set<std::string> own = sockets_of(pid);
  std::multiset<int> ports;
  for (const char* table : {"tcp", "tcp6", "udp", "udp6", "unix"}) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/net/" + table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream text(line);
      std::vector<std::string> words;
      for (std::string word; text >> word;) words.push_back(word);
      if (std::string(table) == "unix") {  // Num RefCount Protocol Flags Type St Inode Path
        if (words.size() > 6 && own.contains(words[6]) && words[3] == "00010000") ports.insert(0);
      } else if (words.size() > 9 && own.contains(words[9])) {
        const bool tcp = table[0] == 't';
        if (!tcp || words[3] == "0A") ports.insert(std::stoi(words[1].substr(words[1].find(':') + 1), nullptr, 16));
      }
    }
  }
  return ports;
}

TEST(Security, F1ThereIsOneListener) {
  const std::string folder = temporary_folder(".cache");
  RunningServer server({"--cache-disk", folder, "--cache-ram", "64MiB"});
  ASSERT_FALSE(server.url().empty());
  EXPECT_EQ(WireClient(port_of(server)).get("/livez").status, 200);
  EXPECT_EQ(listening(server.pid()), std::multiset<int>{port_of(server)});
  EXPECT_EQ(server.stop(), 0);
  std::filesystem::remove_all(folder);
}

TEST(Security, F7AGgufFileIsRefusedInOneLine) {
  const std::string folder = temporary_folder(".gguf");
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    std::filesystem::copy(bundled_model() + "/" + name, folder + "/" + name);
  // A header that promises 2^64 - 1 tensors and keys.
  const std::string hostile = std::string("GGUF\3\0\0\0", 8) + std::string(16, '\xFF');
  std::ofstream(folder + "/model.gguf", std::ios::binary) << hostile;
  std::ofstream(folder + "/model.safetensors", std::ios::binary) << hostile;
  for (const std::string& model : {folder, folder + "/model.gguf"}) {
    const Finished run = run_warmpath({"serve", model, "--port", "0"});
    EXPECT_EQ(run.code, 3) << run.err;
    EXPECT_NE(run.last_error_line().find("expected"), std::string::npos) << run.err;
    EXPECT_LT(run.last_error_line().size(), 400u) << run.err;
  }
  std::filesystem::remove_all(folder);
}

TEST(Security, F12TheKeyIsInNoLogAndNoProcessList) {
  const std::string key = "kQ7-not-to-be-seen", folder = temporary_folder(".key"), log = folder + "/log.jsonl";
  std::ofstream(folder + "/keys") << "kQ7-from-the-file\n";
  for (const std::vector<std::string>& given :
       {std::vector<std::string>{"--api-key", key}, {"--api-key=" + key}, {"--api-key-file", folder + "/keys"}}) {
    std::vector<std::string> args = given;
    args.insert(args.end(), {"--verbose", "--log-jsonl", log});
    RunningServer server(args);
    ASSERT_FALSE(server.url().empty());
    WireClient c(port_of(server));
    const std::string used = given[0] == "--api-key-file" ? "kQ7-from-the-file" : key;
    EXPECT_EQ(c.call("GET", "/v1/models", "", "authorization: Bearer " + used + "\r\n").status, 200);
    EXPECT_EQ(c.call("GET", "/v1/models", "", "authorization: Bearer kQ7-another\r\n").status, 401);
    EXPECT_EQ(c.call("POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":2})",
                     "content-type: application/json\r\nx-api-key: " + used + "\r\n")
                  .status,
              200);
    for (const char* file : {"cmdline", "environ"}) {
      std::ifstream in("/proc/" + std::to_string(server.pid()) + "/" + file, std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(in)), {});
      EXPECT_FALSE(std::string(file) == "cmdline" && text.find("serve") == std::string::npos) << "nothing was read";
      EXPECT_EQ(text.find("kQ7-not"), std::string::npos) << file;
      EXPECT_EQ(text.find("kQ7-from"), std::string::npos) << file;
    }
    const std::string shown = server.log();
    EXPECT_EQ(server.stop(), 0);
    std::ifstream in(log);
    const std::string lines((std::istreambuf_iterator<char>(in)), {});
    EXPECT_NE(lines.find("req_end"), std::string::npos) << "nothing was logged";
    EXPECT_EQ((shown + lines).find("kQ7"), std::string::npos) << shown << lines;
    std::filesystem::remove(log);
  }
  std::filesystem::remove_all(folder);
}

// A stream that goes on until the context is full; its first bytes have come.
std::unique_ptr<WireClient> endless(const RunningServer& server) {
  auto client = std::make_unique<WireClient>(port_of(server));
  client->send(WireClient::request(
      "POST", "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"Hi"}],"stream":true,"ignore_eos":true,"enable_thinking":false})"));
  EXPECT_NE(client->read_some(60'000).find("200 OK"), std::string::npos);
  return client;
}

std::string rest_of(WireClient& client) {
  std::string all;
  for (std::string piece = client.read_some(60'000); !piece.empty(); piece = client.read_some(60'000)) all += piece;
  return all;
}

TEST(Signals, G3BeforeItServesASignalEndsItAtOnce) {
  for (const int signal : {SIGTERM, SIGINT})
    for (const bool began : {false, true}) {  // At any moment of the start; and in the load, once that has a line.
      RunningProgram program({"serve", bundled_model(), "--port", "0"});
      for (int i = 0; began && i < 2000 && program.err().empty(); ++i) usleep(500);
      program.signal(signal);
      const Finished end = program.wait(60);
      EXPECT_TRUE(end.code == 128 + signal || end.code == 0) << end.code << end.err;  // 0: it served already.
    }
}

TEST(Signals, G3TermDrainsAndASecondTermCuts) {
  RunningServer server({"--drain-delay", "60s", "--drain-timeout", "60s"});
  ASSERT_FALSE(server.url().empty());
  const auto stream = endless(server);
  WireClient watch(port_of(server));
  EXPECT_EQ(watch.get("/readyz").status, 200);
  server.signal(SIGTERM);
  WireAnswer ready;
  for (int i = 0; i < 6000 && ready.status != 503; ++i) ready = watch.get("/readyz");
  EXPECT_EQ(ready.error_code(), "draining");
  EXPECT_EQ(WireClient(port_of(server)).get("/livez").status, 200);  // In the delay it accepts still.
  EXPECT_EQ(WireClient(port_of(server)).post("/v1/chat/completions", Json::object()).error_code(), "draining");
  server.signal(SIGTERM);
  const std::string rest = rest_of(*stream);
  EXPECT_NE(rest.find("\"code\":\"draining\""), std::string::npos)
      << rest.substr(rest.size() > 500 ? rest.size() - 500 : 0);
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
  EXPECT_EQ(server.wait(), 0);
}

TEST(Signals, G3WhatDoesNotEndInTimeIsCutWithAnErrorEvent) {
  RunningServer server({"--drain-timeout", "100ms"});
  ASSERT_FALSE(server.url().empty());
  const auto stream = endless(server);
  server.signal(SIGTERM);
  const std::string rest = rest_of(*stream);
  EXPECT_NE(rest.find("\"code\":\"draining\""), std::string::npos) << server.log();
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
  EXPECT_EQ(server.wait(), 0);
}

TEST(Signals, G3WhatEndsInTimeIsWhole) {
  RunningServer server({"--drain-timeout", "120s"});
  ASSERT_FALSE(server.url().empty());
  WireClient client(port_of(server));
  client.send(WireClient::request("POST", "/v1/chat/completions",
                                  R"({"messages":[{"role":"user","content":"Hi"}],"stream":true,"ignore_eos":true,
                                      "enable_thinking":false,"max_tokens":300})"));
  ASSERT_NE(client.read_some(60'000).find("200 OK"), std::string::npos);
  server.signal(SIGTERM);
  const std::string rest = rest_of(client);
  EXPECT_NE(rest.find("data: [DONE]"), std::string::npos);
  EXPECT_EQ(rest.find("\"error\""), std::string::npos);
  EXPECT_EQ(server.wait(), 0);
}

TEST(Signals, G3IntSkipsTheDelay) {
  RunningServer server({"--drain-delay", "600s"});
  ASSERT_FALSE(server.url().empty());
  server.signal(SIGINT);
  EXPECT_EQ(server.wait(60), 0);  // Killed after the time: 137.
}

}  // namespace
}  // namespace wp::e2e
