// Server: the HTTP listener and its threads. bind() before the model loads, run() at once, ready() when it has loaded:
// until then inference answers 503 loading_model and /health tells phase and per cent. Idle connections cost a socket
// and a small buffer; a thread is taken only while a request is in flight, and their number has a maximum. Every
// member may be called from any thread but bind() and the destructor, which belong to the owner.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "serve/response_store.h"
#include "serve/service.h"

namespace wp {

// Sizes and times of the wire. Times in ms.
struct HttpLimits {
  int64_t header_bytes_max = 64 << 10;
  int64_t body_bytes_max = 64 << 20;
  int64_t header_ms_max = 10'000;   // From a request's first byte to the end of its headers.
  int64_t body_ms_max = 60'000;     // From there to the end of its body.
  int64_t idle_ms_max = 300'000;    // Between requests of one connection.
  int64_t write_ms_max = 60'000;    // A client that takes nothing for so long is gone.
  int64_t first_byte_ms_max = 500;  // A stream's headers and first line, at the latest.
  int64_t ping_ms = 5'000;          // A comment after so much silence in a stream.
  int32_t connections_max = 4096;
  int32_t workers_max = 288;  // Requests in flight; above: 503 overloaded. At least queue_max + sequences.
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;                      // 0: any free port, see Server::port().
  std::vector<std::string> api_keys;         // Empty: no key is asked for.
  std::vector<std::string> allowed_hosts;    // Beside the loopback names, where Host is checked.
  std::vector<std::string> allowed_origins;  // Answered with CORS headers; all others are refused.
  HttpLimits http;
  ResponseStoreLimits responses;  // Of what /v1/responses keeps.
};

class Server {
 public:
  // Binds and listens; address_in_use names host and port. Does not accept yet. The clock outlives the server.
  static Result<std::unique_ptr<Server>> bind(ServerOptions options, Clock& clock = system_clock());
  ~Server();  // stop(), if it was not called.
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:8080"

  void run();   // Starts the server's threads and returns.
  void stop();  // Cuts what is in flight, closes every connection and joins. Nothing is served afterwards.

  void set_loading(std::string_view phase, double percent);  // What /health and 503 loading_model say.
  void ready(std::shared_ptr<const Service> service);        // Inference from now on.

  // Draining: /readyz and new inference answer 503, what is in flight goes on.
  void begin_drain();
  void stop_accepting();      // Closes the listener; open connections go on.
  int64_t in_flight() const;  // Inference requests that have begun and not ended.
  void cut();                 // Ends every stream with an error event, every other inference request with 503.

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace wp
