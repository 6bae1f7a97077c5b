// SignalWaiter: SIGINT and SIGTERM as something to wait for. Blocks them in the thread that makes it and so in every
// thread started later; one thread of its own takes them. Made before any other thread, once in a process.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace wp::app {

class SignalWaiter {
 public:
  SignalWaiter();
  ~SignalWaiter();
  SignalWaiter(const SignalWaiter&) = delete;
  SignalWaiter& operator=(const SignalWaiter&) = delete;

  // While this holds a signal ends the process at once, with one line and 128 + n. So it begins.
  void end_process_on_signal(bool on);
  // Waits until at least `count` signals have come, or the time is over. Returns whether they have.
  bool wait_for(int count, int64_t timeout_ns);
  int last_signal() const;

 private:
  void take_signals();

  mutable std::mutex mutex_;
  std::condition_variable came_;
  int count_ = 0, last_ = 0;
  bool ends_process_ = true;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace wp::app
