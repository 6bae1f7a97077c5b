#include "serve/choice_streams.h"

#include <algorithm>

namespace wp {
namespace {

constexpr int64_t kLookNs = 40'000'000;     // Between two looks at the socket.
constexpr int64_t kManyWaitNs = 2'000'000;  // On one of several streams, before the others are asked.

}  // namespace

Result<ChoiceStreams> ChoiceStreams::submit(Engine& engine, std::vector<GenerateRequest> requests) {
  ChoiceStreams made;
  for (GenerateRequest& request : requests) {
    WP_TRY(TokenStream stream, engine.submit(std::move(request)));
    made.streams_.push_back(std::move(stream));
  }
  made.ended_.resize(made.streams_.size());
  made.live_ = made.streams_.size();
  return made;
}

bool ChoiceStreams::next(int64_t timeout_ns, size_t* choice, TokenEvent* event) {
  const size_t count = streams_.size();
  const auto take = [&](size_t index, int64_t wait_ns) {
    bool timed_out = false;
    std::optional<TokenEvent> got = streams_[index].next_within(wait_ns, &timed_out);
    if (!got) {
      if (!timed_out && !ended_[index]) {  // Closed without `finished`: the engine is gone.
        ended_[index] = true;
        --live_;
        *choice = index;
        *event = TokenEvent{.kind = TokenEvent::Kind::finished, .finish = FinishReason::cancelled};
        return true;
      }
      return false;
    }
    if (got->kind == TokenEvent::Kind::finished) {
      ended_[index] = true;
      --live_;
    }
    *choice = index;
    *event = std::move(*got);
    return true;
  };
  if (count == 1) return !ended_[0] && take(0, timeout_ns);
  size_t waiting = count;
  for (size_t i = 0; i < count; ++i) {
    const size_t index = (turn_ + i) % count;
    if (ended_[index]) continue;
    if (take(index, 0)) {
      turn_ = index + 1;
      return true;
    }
    if (waiting == count) waiting = index;
  }
  return waiting < count && take(waiting, std::min(timeout_ns, kManyWaitNs));
}

Ending drive(ChoiceStreams& streams, HttpResponse& response, ServerState& state, ChoiceHandler& handler) {
  int64_t looked_ns = state.clock.now_ns();
  while (streams.live() > 0) {
    size_t choice = 0;
    TokenEvent event;
    const bool came = streams.next(kLookNs, &choice, &event);
    const int64_t now_ns = state.clock.now_ns();
    if (!came || now_ns - looked_ns >= kLookNs) {
      looked_ns = now_ns;
      if (state.cut) return Ending::cut;
      if (response.client_gone()) return Ending::client_gone;
    }
    if (!(came ? handler.on_event(choice, event) : handler.on_silence())) return Ending::client_gone;
  }
  return Ending::finished;
}

}  // namespace wp
