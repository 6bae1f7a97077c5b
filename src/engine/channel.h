// EventChannel: the bounded queue of events between the engine thread, which writes, and one reader. Doorbell: how
// readers and submitters wake the engine thread. Both outlive the engine where a stream does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/engine.h"

namespace wp {

// Any thread rings, the engine thread waits. A ring before the wait is not lost.
class Doorbell {
 public:
  void ring();
  void wait();
  void wait_within(int64_t timeout_ns);

 private:
  std::mutex mutex_;
  std::condition_variable rung_changed_;
  bool rung_ = false;
};

class EventChannel {
 public:
  EventChannel(int32_t events_max, std::shared_ptr<Doorbell> engine);

  // Engine thread. Room for another token; if there is none, the bell rings once the reader has made some.
  bool has_room();
  // Never waits. Progress replaces progress nobody has read yet, so that only tokens can fill the channel, and those
  // are asked for by has_room(); `started`, one progress and `finished` always fit. Discarded if the reader is gone.
  void push(TokenEvent event);

  // Reader. Nothing after `finished`.
  std::optional<TokenEvent> next();
  std::optional<TokenEvent> next_within(int64_t timeout_ns, bool* timed_out);
  std::optional<TokenEvent> try_next();
  void cancel();  // The request ends within one step; `finished` still comes.
  void drop();    // The reader goes away: as cancel(), and nothing is kept for it.

  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

 private:
  std::optional<TokenEvent> take(std::unique_lock<std::mutex>& lock);

  const int32_t events_max_;
  const std::shared_ptr<Doorbell> engine_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<TokenEvent> events_;
  bool engine_waits_ = false;  // has_room() said no.
  bool ended_ = false;         // `finished` was read.
  bool reader_gone_ = false;
};

struct TokenStream::Channel {
  std::shared_ptr<EventChannel> events;
};

}  // namespace wp
