// WireClient: one TCP connection to the server under test, as bytes: what no HTTP library would send can be sent, and
// what comes back is taken apart by hand.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace wp::testing {

struct WireAnswer {
  int status = 0;
  std::string head;  // Status line and headers.
  std::map<std::string, std::string> headers;
  std::string body;  // Chunks joined.
  bool whole = false;

  Json json() const;
  std::string error_code() const;
  std::string error_param() const;
};

// The data of an event stream, in order; comments are counted. An event's name is its data's type.
struct WireEvents {
  std::vector<Json> data;
  bool done = false;  // [DONE] came.
  int comments = 0;
};
WireEvents events_of(const std::string& body);

class WireClient {
 public:
  // `receive_bytes`: of the socket's buffer; 0: the system's choice.
  explicit WireClient(uint16_t port, int receive_bytes = 0);
  ~WireClient();
  WireClient(const WireClient&) = delete;
  WireClient& operator=(const WireClient&) = delete;

  void send(std::string_view bytes);
  // One answer; `head_only` for HEAD. status 0: the connection ended before one came.
  WireAnswer read(bool head_only = false, int timeout_ms = 10'000);
  std::string read_some(int timeout_ms = 10'000);  // Whatever comes next; empty at the end or timeout.
  bool at_end(int timeout_ms = 10'000);            // The server closed.
  void close(bool reset = false);
  void close_sending();

  WireAnswer get(std::string_view path) { return call("GET", path, ""); }
  WireAnswer post(std::string_view path, const Json& body) { return call("POST", path, dump_json(body)); }
  WireAnswer call(std::string_view method, std::string_view path, std::string_view body,
                  std::string_view more_headers = "content-type: application/json\r\n");
  static std::string request(std::string_view method, std::string_view path, std::string_view body,
                             std::string_view more_headers = "content-type: application/json\r\n");

 private:
  bool fill(int timeout_ms);
  int descriptor_ = -1;
  std::string buffer_;
};

}  // namespace wp::testing
