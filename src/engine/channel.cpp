#include "engine/channel.h"

#include <chrono>
#include <utility>

namespace wp {

void Doorbell::ring() {
  {
    std::lock_guard lock(mutex_);
    rung_ = true;
  }
  rung_changed_.notify_one();
}

void Doorbell::wait_within(int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  rung_changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] { return rung_; });
  rung_ = false;
}

void Doorbell::wait() {
  std::unique_lock lock(mutex_);
  rung_changed_.wait(lock, [&] { return rung_; });
  rung_ = false;
}

EventChannel::EventChannel(int32_t events_max, std::shared_ptr<Doorbell> engine)
    : events_max_(events_max), engine_(std::move(engine)) {}

bool EventChannel::has_room() {
  std::lock_guard lock(mutex_);
  const bool room = reader_gone_ || static_cast<int32_t>(events_.size()) < events_max_;
  engine_waits_ = !room;
  return room;
}

void EventChannel::push(TokenEvent event) {
  {
    std::lock_guard lock(mutex_);
    if (reader_gone_) return;
    using Kind = TokenEvent::Kind;
    if (event.kind == Kind::progress && !events_.empty() && events_.back().kind == Kind::progress)
      events_.back() = std::move(event);
    else events_.push_back(std::move(event));
  }
  filled_.notify_one();
}

std::optional<TokenEvent> EventChannel::take(std::unique_lock<std::mutex>& lock) {
  if (events_.empty()) return std::nullopt;
  TokenEvent event = std::move(events_.front());
  events_.pop_front();
  if (event.kind == TokenEvent::Kind::finished) ended_ = true;
  // Half empty, not one free place: a paused sequence resumes for a run of tokens, not for one.
  const bool wake = engine_waits_ && static_cast<int32_t>(events_.size()) <= events_max_ / 2;
  if (wake) engine_waits_ = false;
  lock.unlock();
  if (wake) engine_->ring();
  return event;
}

std::optional<TokenEvent> EventChannel::next() {
  std::unique_lock lock(mutex_);
  filled_.wait(lock, [&] { return !events_.empty() || ended_; });
  return take(lock);
}

std::optional<TokenEvent> EventChannel::next_within(int64_t timeout_ns, bool* timed_out) {
  std::unique_lock lock(mutex_);
  const bool ready =
      filled_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] { return !events_.empty() || ended_; });
  if (timed_out) *timed_out = !ready;
  return take(lock);
}

std::optional<TokenEvent> EventChannel::try_next() {
  std::unique_lock lock(mutex_);
  return take(lock);
}

void EventChannel::cancel() {
  cancelled_.store(true, std::memory_order_release);
  engine_->ring();
}

void EventChannel::drop() {
  {
    std::lock_guard lock(mutex_);
    reader_gone_ = true;
    events_.clear();
  }
  cancel();
}

TokenStream::TokenStream(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}

TokenStream::TokenStream(TokenStream&&) noexcept = default;

TokenStream& TokenStream::operator=(TokenStream&& other) noexcept {
  if (this == &other) return *this;
  if (channel_) channel_->events->drop();
  channel_ = std::move(other.channel_);
  return *this;
}

TokenStream::~TokenStream() {
  if (channel_) channel_->events->drop();
}

std::optional<TokenEvent> TokenStream::next() {
  if (!channel_) return std::nullopt;
  return channel_->events->next();
}

std::optional<TokenEvent> TokenStream::next_within(int64_t timeout_ns, bool* timed_out) {
  if (timed_out) *timed_out = false;
  if (!channel_) return std::nullopt;
  return channel_->events->next_within(timeout_ns, timed_out);
}

void TokenStream::cancel() {
  if (channel_) channel_->events->cancel();
}

}  // namespace wp
