// HttpClient: one request at a time to a server of this API, plain HTTP/1.1. One owner, one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json.h"

namespace wp::measure {

struct Url {
  std::string host, port, prefix;  // "127.0.0.1", "8080", "/v1"-less path without a slash at its end.
};
Result<Url> parse_url(std::string_view text);

// Splits a text/event-stream into its events' data, however the bytes are cut. Bounded.
class SseParser {
 public:
  using Sink = std::function<void(std::string_view data)>;
  // False: an event is larger than the limit.
  bool push(std::string_view bytes, const Sink& sink);

 private:
  static constexpr size_t kEventBytesMax = 64 << 20;
  std::string line_, data_;
  bool has_data_ = false, after_cr_ = false;
};

class HttpClient {
 public:
  static Result<HttpClient> make(std::string_view url, std::string api_key = "");
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

  Result<Json> get(const std::string& path);
  Result<std::string> get_text(const std::string& path);
  Result<Json> post(const std::string& path, const Json& body);
  // Calls `event` with the data of each event as it comes ("[DONE]" too).
  Result<void> stream(const std::string& path, const Json& body, const SseParser::Sink& event);

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace wp::measure
