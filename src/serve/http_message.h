// HttpRequest and HttpResponse: one request as read from the wire and the answer to it, free of any HTTP library. A
// handler runs on a connection thread and owns both for its duration. A whole answer is collected and written by the
// connection afterwards; a stream is written here, blocking, with a time limit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/api_error.h"
#include "serve/http_socket.h"

namespace wp {

struct HttpRequest {
  std::string id;                                            // "r-17": in every log line and in x-request-id.
  std::string method;                                        // "GET"
  std::string path;                                          // Decoded, without query.
  std::string query;                                         // As sent, without '?'.
  std::vector<std::pair<std::string, std::string>> headers;  // Names in lower case.
  std::string body;
  int64_t begin_ns = 0;
  bool http11 = true;
  bool keep_alive = true;

  std::string_view header(std::string_view lower_name) const;  // "" when absent.
  std::string_view key() const;    // Of Authorization: Bearer, or X-Api-Key; "" when absent.
  ErrorShape error_shape() const;  // What its client expects, by path and headers.
};

class HttpResponse {
 public:
  // `socket` may be null where the answer is whole by construction.
  HttpResponse(const HttpRequest& request, HttpSocket* socket, int64_t write_ms_max);
  HttpResponse(const HttpResponse&) = delete;
  HttpResponse& operator=(const HttpResponse&) = delete;

  void set_error_shape(ErrorShape shape);
  ErrorShape error_shape() const { return error_shape_; }
  void add_header(std::string_view name, std::string_view value);
  void send(int status, std::string_view content_type, std::string body);
  void send_json(int status, const Json& body) { send(status, "application/json", dump_json(body)); }
  void fail(const ApiError& error);
  Json error_body(const ApiError& error) const { return error.body(error_shape_, id_); }

  // Sends the headers of an event stream at once. False: the client is gone.
  bool begin_stream();
  bool write(std::string_view bytes);  // A piece of the stream. False: the client is gone.
  void end_stream();                   // The stream is complete.
  void break_stream();                 // The stream ended in an error: complete it and close the connection.

  bool streaming() const { return streaming_; }
  bool answered() const { return status_ != 0; }
  bool client_gone();  // Looks at the socket; sticky.
  int status() const { return status_; }
  bool keep_alive() const { return keep_alive_ && !gone_; }
  void close() { keep_alive_ = false; }
  std::string take_whole() { return std::move(whole_); }  // What the connection has to write; empty after a stream.

 private:
  std::string head(int status, std::string_view content_type) const;

  HttpSocket* socket_;
  std::string id_;
  ErrorShape error_shape_ = ErrorShape::openai;
  int64_t write_ms_max_;
  bool http11_, head_only_, keep_alive_;
  bool streaming_ = false, gone_ = false;
  int status_ = 0;
  std::string extra_headers_;
  std::string whole_;
};

std::string_view reason_phrase(int status);

}  // namespace wp
