#include "app/signals.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace wp::app {
namespace {

sigset_t waited_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR2);  // Ends the waiting thread.
  return set;
}

}  // namespace

SignalWaiter::SignalWaiter() {
  signal(SIGPIPE, SIG_IGN);  // A client that left is an error of a write, not a signal.
  const sigset_t set = waited_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { take_signals(); });
}

SignalWaiter::~SignalWaiter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
}

void SignalWaiter::take_signals() {
  const sigset_t set = waited_signals();
  while (true) {
    int taken = 0;
    if (sigwait(&set, &taken) != 0) continue;
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (taken == SIGUSR2) continue;
    ++count_;
    last_ = taken;
    if (ends_process_) {
      std::fprintf(stderr, "\nwarmpath: stopped by signal %d while loading\n", taken);
      _exit(128 + taken);
    }
    came_.notify_all();
  }
}

void SignalWaiter::end_process_on_signal(bool on) {
  const std::lock_guard lock(mutex_);
  ends_process_ = on;
}

bool SignalWaiter::wait_for(int count, int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  return came_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] { return count_ >= count; });
}

int SignalWaiter::last_signal() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

}  // namespace wp::app
