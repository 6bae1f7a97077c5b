// What packaging/ promises a service manager and an image: readiness after the load, an end within the time that the
// unit gives, flags that exist, libraries that are installed.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <regex>
#include <sstream>
#include <thread>
#include <utility>

#include "process.h"
#include "testing/seeds.h"

namespace wp::e2e {
namespace {

std::string packaged(const std::string& name) {
  std::ifstream file(testing::source_directory() + "/packaging/" + name);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

// The value of NAME= in the unit.
std::string unit_value(const std::string& name) {
  std::smatch found;
  const std::string unit = packaged("warmpath.service");
  return std::regex_search(unit, found, std::regex("(?:^|\n)" + name + "=([^\n]*)")) ? found[1].str() : "";
}

// A service manager that listens.
class Manager {
 public:
  Manager() : path_(temporary_folder(".notify") + "/socket"), socket_(socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un at = {};
    at.sun_family = AF_UNIX;
    path_.copy(at.sun_path, sizeof(at.sun_path) - 1);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
    setenv("NOTIFY_SOCKET", path_.c_str(), 1);
    reader_ = std::thread([this] { read(); });
  }
  ~Manager() {
    unsetenv("NOTIFY_SOCKET");
    shutdown(socket_, SHUT_RDWR);
    reader_.join();
    close(socket_);
  }
  // All that was told since the last time, once a message that begins with `last` has come.
  std::vector<std::string> told_until(const std::string& last) {
    std::unique_lock lock(mutex_);
    const bool came = came_.wait_for(lock, std::chrono::seconds(60),
                                     [&] { return !told_.empty() && told_.back().rfind(last, 0) == 0; });
    EXPECT_TRUE(came) << last;
    return std::exchange(told_, {});
  }
  std::vector<std::string> told() {
    const std::lock_guard lock(mutex_);
    return std::exchange(told_, {});
  }

 private:
  void read() {
    char bytes[4096];
    for (ssize_t size; (size = recv(socket_, bytes, sizeof(bytes), 0)) > 0;) {
      const std::lock_guard lock(mutex_);
      told_.emplace_back(bytes, static_cast<size_t>(size));
      came_.notify_all();
    }
  }

  std::string path_;
  int socket_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> told_;
  std::thread reader_;
};

TEST(Packaging, TheManagerHearsOfTheLoadThenReadyThenStopping) {
  Manager manager;
  RunningServer server({});
  ASSERT_FALSE(server.url().empty());
  std::vector<std::string> told = manager.told_until("READY");
  ASSERT_GE(told.size(), 2u);
  EXPECT_EQ(told[0].find("STATUS=loading ("), 0u) << told[0];
  EXPECT_EQ(told.back(), "READY=1\nSTATUS=serving " + server.url());
  for (size_t i = 0; i + 1 < told.size(); ++i) EXPECT_EQ(told[i].find("READY"), std::string::npos) << told[i];
  EXPECT_EQ(server.stop(), 0);
  told = manager.told_until("STOPPING");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0], "STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=40000000");
}

TEST(Packaging, NobodyHearsOfAServerThatDidNotLoad) {
  Manager manager;
  EXPECT_EQ(run_warmpath({"serve", "/nowhere/model", "--port", "0"}).code, 3);
  for (const std::string& message : manager.told()) EXPECT_EQ(message.find("READY"), std::string::npos) << message;
}

TEST(Packaging, AManagerThatDoesNotListenChangesNothing) {
  for (const std::string& address : {std::string("/nowhere/socket"), std::string("@nobody"), std::string(200, 'x')}) {
    setenv("NOTIFY_SOCKET", address.c_str(), 1);
    RunningServer server({});
    EXPECT_FALSE(server.url().empty()) << address;
    EXPECT_EQ(server.stop(), 0);
  }
  unsetenv("NOTIFY_SOCKET");
}

TEST(Packaging, TheUnitWaitsForTheModelAndForTheDrain) {
  EXPECT_EQ(unit_value("Type"), "notify");
  EXPECT_EQ(unit_value("TimeoutStartSec"), "infinity");
  const std::string help = run_warmpath({"serve", "--help-all"}).out;
  double drain_s = 0;
  for (const char* name : {"drain-delay", "drain-timeout"}) {
    std::smatch found;
    ASSERT_TRUE(std::regex_search(help, found, std::regex(std::string("--") + name + "[^\n]*default: ([0-9.]+)s")))
        << name << " in\n"
        << help;
    drain_s += std::stod(found[1]);
  }
  EXPECT_GT(drain_s, 0);
  EXPECT_GT(std::stod(unit_value("TimeoutStopSec")), drain_s);
}

// Flags of both are flags of serve, and a start that cannot end well is not repeated.
TEST(Packaging, FlagsAndExitCodesAreThoseOfTheProgram) {
  const std::string help = run_warmpath({"serve", "--help-all"}).out;
  const std::string used = unit_value("ExecStart") + packaged("Containerfile");
  const std::regex flag("--[a-z][a-z-]+");
  int seen = 0;
  for (std::sregex_iterator at(used.begin(), used.end(), flag), end; at != end; ++at) {
    const std::string name = at->str();
    if (name == "--no-install-recommends" || name == "--system" || name == "--uid" || name == "--no-create-home" ||
        name == "--from")
      continue;
    EXPECT_NE(help.find(name + " "), std::string::npos) << name;
    ++seen;
  }
  EXPECT_GE(seen, 3);
  EXPECT_EQ(run_warmpath({"serve", "--prot"}).code, 2);
  EXPECT_EQ(unit_value("RestartPreventExitStatus"), "2 3 4");
  EXPECT_EQ(unit_value("SuccessExitStatus"), "143");
}

TEST(Packaging, TheImageHasTheLibrariesOfTheProgram) {
  const std::string image = packaged("Containerfile");
  const Finished linked = run_program({"/usr/bin/ldd", WP_BINARY});
  ASSERT_EQ(linked.code, 0) << linked.err;
  const std::regex any("\n\\s*(lib\\S+) =>");
  int seen = 0;
  const std::string text = "\n" + linked.out;
  for (std::sregex_iterator at(text.begin(), text.end(), any), end; at != end; ++at) {
    const std::string name = (*at)[1];
    if (name.rfind("libm.", 0) == 0 || name.rfind("libc.", 0) == 0 || name.rfind("libgcc_s.", 0) == 0) continue;
    const Finished owner = run_program({"/usr/bin/dpkg-query", "-S", "*/" + name});
    ASSERT_EQ(owner.code, 0) << name << ": " << owner.err;
    const std::string package = owner.out.substr(0, owner.out.find(':'));
    EXPECT_NE(image.find(" " + package + " "), std::string::npos) << name << " of " << package;
    ++seen;
  }
  EXPECT_GE(seen, 5);
}

}  // namespace
}  // namespace wp::e2e
