#include "serve/request_log.h"

#include "core/log.h"

namespace wp {

RequestLog::RequestLog(ServerState& state, const HttpRequest& request, HttpResponse& response, const char* route)
    : state_(state), response_(response), id_(request.id), route_(route), begin_ns_(request.begin_ns) {
  ++state_.in_flight;
}

void RequestLog::start(int64_t prompt_tokens, bool stream) {
  WP_ASSERT(!started_);
  started_ = true;
  prompt_ = prompt_tokens;
  stream_ = stream;
  log_info("req_start", {{"id", id_}, {"route", route_}, {"prompt", prompt_}, {"stream", stream_ ? 1 : 0}});
}

RequestLog::~RequestLog() {
  if (!started_) start(0, false);
  const int status = left_ ? 499 : status_ ? status_ : response_.status();
  std::vector<LogField> fields = {{"id", id_}, {"route", route_}, {"status", status}};
  if (left_) fields.emplace_back("phase", phase_);
  if (!finish_.empty()) fields.emplace_back("finish", finish_);
  fields.emplace_back("prompt", prompt_);
  if (have_stats_) {
    fields.emplace_back("cached", stats_.cached_tokens);
    fields.emplace_back("computed", stats_.computed_tokens);
    fields.emplace_back("miss", name(stats_.miss));
    if (!stats_.miss_detail.empty()) fields.emplace_back("detail", stats_.miss_detail);
    fields.emplace_back("queue_ms", stats_.queue_ns / 1'000'000);
    fields.emplace_back("ttft_ms", stats_.ttft_ns / 1'000'000);
    fields.emplace_back("gen", generated_);
    const double seconds = stats_.decode_ns * 1e-9;
    fields.emplace_back("tps", fmt::format("{:.1f}", seconds > 0 && generated_ > 1 ? (generated_ - 1) / seconds : 0.0));
  }
  fields.emplace_back("total_ms", (state_.clock.now_ns() - begin_ns_) / 1'000'000);
  log_line(LogLevel::info, "req_end", fields);
  if (left_) state_.metrics.count_cancelled(phase_);
  state_.metrics.count_http(route_, status);
  --state_.in_flight;
}

}  // namespace wp
