#include "serve/sse.h"

namespace wp {

SseWriter::SseWriter(HttpResponse& response, Clock& clock, int64_t first_byte_ms_max, int64_t ping_ms)
    : response_(response),
      clock_(clock),
      silence_ns_max_(first_byte_ms_max * 1'000'000),
      ping_ns_(ping_ms * 1'000'000),
      last_ns_(clock.now_ns()) {}

bool SseWriter::put(std::string_view text) {
  if (!response_.streaming() && !response_.begin_stream()) return false;
  last_ns_ = clock_.now_ns();
  silence_ns_max_ = ping_ns_;
  return response_.write(text);
}

bool SseWriter::send(const Json& data) { return put(cat("data: ", dump_json(data), "\n\n")); }

bool SseWriter::send_event(const Json& data) {
  return put(cat("event: ", data["type"].get_ref<const std::string&>(), "\ndata: ", dump_json(data), "\n\n"));
}

void SseWriter::ping_with_events() { ping_ = "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

bool SseWriter::ping_due() const { return clock_.now_ns() - last_ns_ >= silence_ns_max_; }

bool SseWriter::ping_when_due() { return !ping_due() || put(ping_); }

bool SseWriter::done() { return put("data: [DONE]\n\n") && end(); }

bool SseWriter::end() {
  response_.end_stream();
  return true;
}

void SseWriter::fail(const ApiError& error) {
  if (!response_.streaming()) return response_.fail(error);
  const Json body = response_.error_body(error);
  if (response_.error_shape() == ErrorShape::anthropic) send_event(body);
  else send(body);
  response_.break_stream();
}

}  // namespace wp
