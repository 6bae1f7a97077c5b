// RequestLog: the two lines of one request, req_start and req_end, each exactly once whatever happens
// (spec/cli.md 4.3); and the request's place among those in flight. Lives as long as the handler. Never holds prompt
// text.
#pragma once

#include <string>
#include <string_view>

#include "engine/engine.h"
#include "serve/http_message.h"
#include "serve/server_state.h"

namespace wp {

class RequestLog {
 public:
  RequestLog(ServerState& state, const HttpRequest& request, HttpResponse& response, const char* route);
  ~RequestLog();  // Writes what was not written yet.
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  void start(int64_t prompt_tokens, bool stream);
  void phase(const char* name) { phase_ = name; }  // queued, prefill, decode: where a client left.
  void finish(std::string_view reason) { finish_ = reason; }
  void stats(const RequestStats& stats) {
    stats_ = stats;
    have_stats_ = true;
  }
  void generated(int64_t tokens) { generated_ = tokens; }
  void client_left() { left_ = true; }
  void failed(int status) { status_ = status; }  // A stream's status after its headers said 200.

 private:
  ServerState& state_;
  HttpResponse& response_;
  std::string id_;
  const char* route_;
  int64_t begin_ns_;
  int64_t prompt_ = 0, generated_ = 0;
  bool stream_ = false, started_ = false, left_ = false, have_stats_ = false;
  int status_ = 0;
  const char* phase_ = "parse";
  std::string finish_;
  RequestStats stats_;
};

}  // namespace wp
