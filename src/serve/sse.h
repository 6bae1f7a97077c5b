// SseWriter: events of one stream in the order and form of spec/api.md 3. Headers go out with the first thing sent, so
// that a refusal which comes before can still be a status. One connection thread.
#pragma once

#include <string_view>

#include "core/clock.h"
#include "serve/http_message.h"

namespace wp {

class SseWriter {
 public:
  SseWriter(HttpResponse& response, Clock& clock, int64_t first_byte_ms_max, int64_t ping_ms);

  // Each returns false when the client is gone.
  bool send(const Json& data);
  bool send_event(const Json& data);  // Named by its member "type".
  bool ping_due() const;              // Nothing was sent for so long that something must be.
  bool ping_when_due();               // Within the first-byte time, then after so much silence.
  void ping_with_events();            // Pings are Anthropic's events from now on, no comments.
  bool done();                        // data: [DONE], and the end.
  bool end();                         // The end alone.
  // Before anything was sent: a status; else an error event in the dialect's shape, and no [DONE].
  void fail(const ApiError& error);

 private:
  bool put(std::string_view text);

  HttpResponse& response_;
  Clock& clock_;
  int64_t silence_ns_max_, ping_ns_;
  int64_t last_ns_;
  std::string_view ping_ = ": ping\n\n";
};

}  // namespace wp
