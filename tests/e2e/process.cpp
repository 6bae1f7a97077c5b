#include "process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "testing/seeds.h"

namespace wp::e2e {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string fresh_path(const char* kind) {
  static int number = 0;
  return ::testing::TempDir() + "/warmpath_e2e_" + std::to_string(getpid()) + "_" + std::to_string(++number) + kind;
}

int start(const std::vector<std::string>& words, const std::string& out_path, const std::string& err_path) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int pid = fork();
  if (pid != 0) return pid;
  const int in = open("/dev/null", O_RDONLY);
  const int out = open(out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int err = open(err_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(in, 0);
  dup2(out, 1);
  dup2(err, 2);
  execv(argv[0], argv.data());
  _exit(127);
}

int code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// The exit code, or after the time a kill.
int wait_for(int pid, double seconds_max) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds_max);
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return code_of(status);
}

}  // namespace

std::string Finished::last_error_line() const {
  std::string text = err;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

Finished run_program(const std::vector<std::string>& words, double seconds_max) {
  const std::string out_path = fresh_path(".out"), err_path = fresh_path(".err");
  const auto begin = std::chrono::steady_clock::now();
  Finished finished;
  finished.code = wait_for(start(words, out_path, err_path), seconds_max);
  finished.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  finished.out = read_file(out_path);
  finished.err = read_file(err_path);
  std::filesystem::remove(out_path);
  std::filesystem::remove(err_path);
  return finished;
}

Finished run_warmpath(std::vector<std::string> args, double seconds_max) {
  args.insert(args.begin(), WP_BINARY);
  return run_program(args, seconds_max);
}

RunningProgram::RunningProgram(std::vector<std::string> args) : err_path_(fresh_path(".err")) {
  args.insert(args.begin(), WP_BINARY);
  pid_ = start(args, "/dev/null", err_path_);
}

RunningProgram::~RunningProgram() {
  if (pid_ >= 0) wait(0);
  std::filesystem::remove(err_path_);
}

void RunningProgram::signal(int number) { kill(pid_, number); }

std::string RunningProgram::err() const { return read_file(err_path_); }

Finished RunningProgram::wait(double seconds_max) {
  Finished finished;
  finished.code = wait_for(pid_, seconds_max);
  finished.err = err();
  pid_ = -1;
  return finished;
}

RunningServer::RunningServer(std::vector<std::string> args) : log_path_(fresh_path(".log")) {
  const std::vector<std::string> words = {WP_BINARY, "serve", bundled_model(), "--port", "0"};
  args.insert(args.begin(), words.begin(), words.end());
  pid_ = start(args, "/dev/null", log_path_);
  for (int i = 0; i < 6000; ++i) {
    const std::string log = read_file(log_path_);
    const size_t at = log.find("serving  http://");
    if (at != std::string::npos && log.find("\nnext ") != std::string::npos) {
      url_ = log.substr(at + 9, log.find(' ', at + 9) - at - 9);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int RunningServer::stop() {
  if (pid_ < 0) return -1;
  signal(SIGTERM);
  return wait(60);
}

void RunningServer::signal(int number) { kill(pid_, number); }

int RunningServer::wait(double seconds_max) {
  const int code = wait_for(pid_, seconds_max);
  pid_ = -1;
  return code;
}

std::string RunningServer::log() const { return read_file(log_path_); }

void RunningServer::kill_at_once() {
  kill(pid_, SIGKILL);
  wait_for(pid_, 60);
  pid_ = -1;
}

RunningServer::~RunningServer() {
  stop();
  std::filesystem::remove(log_path_);
}

std::string bundled_model() { return testing::source_directory() + "/models/flash-next-mini"; }

std::string temporary_folder(const std::string& name) {
  const std::string path = fresh_path(name.c_str());
  std::filesystem::create_directories(path);
  return path;
}

}  // namespace wp::e2e
