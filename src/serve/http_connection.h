// HttpListener: accepts connections and runs each as a sequence of requests: wait, read headers, read body, answer,
// again. Everything of it runs on the one I/O thread, but the handlers, which take a worker thread each while a request
// is in flight. The only place, with its source, where the HTTP library is seen.
#pragma once

#include <memory>
#include <string>

#include "core/error.h"
#include "serve/server_state.h"
#include "serve/worker_pool.h"

namespace wp {

class HttpListener {
 public:
  // Binds and listens on state.options; sets state.loopback.
  static Result<std::unique_ptr<HttpListener>> bind(ServerState& state, WorkerPool& workers);
  ~HttpListener();

  uint16_t port() const;
  std::string url() const;
  void run();                // Serves until stop(); called once, by the I/O thread.
  void stop_accepting();     // Any thread, as the rest.
  void close_connections();  // Both directions of each: readers and writers see the end.
  void stop();

 private:
  struct Impl;
  explicit HttpListener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace wp
