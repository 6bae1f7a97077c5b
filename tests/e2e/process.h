// Runs the warmpath binary as a user does: arguments in, exit code and both streams out; and a server that ends with
// the test.
#pragma once

#include <string>
#include <vector>

namespace wp::e2e {

struct Finished {
  int code = -1;  // 128 + n for a signal.
  std::string out, err;
  double seconds = 0;
  std::string last_error_line() const;
};

// `program` and arguments, without a shell. Killed after `seconds_max`.
Finished run_program(const std::vector<std::string>& words, double seconds_max = 300);
Finished run_warmpath(std::vector<std::string> args, double seconds_max = 300);

class RunningProgram {
 public:
  explicit RunningProgram(std::vector<std::string> args);  // `warmpath args`
  ~RunningProgram();                                       // Kills it, if it still runs.
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;
  void signal(int number);
  std::string err() const;            // So far.
  Finished wait(double seconds_max);  // Killed after that.

 private:
  int pid_ = -1;
  std::string err_path_;
};

class RunningServer {
 public:
  // `warmpath serve MODEL --port 0 args`; waits until it is ready. url() is empty if it never was.
  explicit RunningServer(std::vector<std::string> args);
  ~RunningServer();
  const std::string& url() const { return url_; }
  std::string port() const { return url_.substr(url_.rfind(':') + 1); }
  int stop();  // SIGTERM; the exit code.
  void signal(int number);
  int wait(double seconds_max = 120);  // The exit code; killed after that.
  int pid() const { return pid_; }
  std::string log() const;  // Both streams, so far.
  void kill_at_once();      // SIGKILL.

 private:
  int pid_ = -1;
  std::string url_, log_path_;
};

std::string bundled_model();
std::string temporary_folder(const std::string& name);  // Made, and empty.

}  // namespace wp::e2e
