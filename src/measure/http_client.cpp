#include "measure/http_client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

namespace wp::measure {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr int64_t kBodyBytesMax = 256 << 20;

// What the server said, where it said it in the API's form.
Error error_of(unsigned status, const std::string& body) {
  std::string message = body.substr(0, 200);
  const auto parsed = parse_json(body);
  if (parsed.ok() && parsed->is_object() && parsed->contains("error")) {
    const Json& error = (*parsed)["error"];
    if (error.is_object() && error.contains("message") && error["message"].is_string())
      message = error["message"].get<std::string>();
  }
  const ErrorCode code = status == 503 || status == 429 ? ErrorCode::overloaded
                         : status >= 500                ? ErrorCode::unavailable
                                                        : ErrorCode::bad_request;
  return {code, cat("server answered ", status, ": ", message)};
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (text.substr(0, kScheme.size()) != kScheme)
    return Error{ErrorCode::bad_request, cat("expected an address like http://127.0.0.1:8080, found ", text)};
  text.remove_prefix(kScheme.size());
  const size_t slash = std::min(text.find('/'), text.size());
  Url url{.host = std::string(text.substr(0, slash)), .port = "80", .prefix = std::string(text.substr(slash))};
  while (!url.prefix.empty() && url.prefix.back() == '/') url.prefix.pop_back();
  if (url.prefix == "/v1") url.prefix.clear();  // As OpenAI's clients write it.
  const size_t bracket = url.host.find(']'), colon = url.host.rfind(':');
  if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    url.port = url.host.substr(colon + 1);
    url.host.resize(colon);
  }
  if (!url.host.empty() && url.host.front() == '[' && url.host.back() == ']')
    url.host = url.host.substr(1, url.host.size() - 2);
  if (url.host.empty() || url.port.empty() || url.port.find_first_not_of("0123456789") != std::string::npos)
    return Error{ErrorCode::bad_request, cat("expected an address like http://127.0.0.1:8080, found http://", text)};
  return url;
}

bool SseParser::push(std::string_view bytes, const Sink& sink) {
  const auto end_line = [&] {
    if (line_.empty()) {
      if (has_data_) sink(data_);
      data_.clear();
      has_data_ = false;
    } else if (line_.rfind("data:", 0) == 0) {
      if (has_data_) data_ += '\n';
      data_ += line_.substr(line_.size() > 5 && line_[5] == ' ' ? 6 : 5);
      has_data_ = true;
    }  // Comments and other fields say nothing here.
    line_.clear();
  };
  for (const char c : bytes) {
    if (c == '\n' && after_cr_) {
      after_cr_ = false;
      continue;
    }
    after_cr_ = c == '\r';
    if (c == '\r' || c == '\n') {
      end_line();
    } else {
      line_ += c;
    }
    if (line_.size() + data_.size() > kEventBytesMax) return false;
  }
  return true;
}

struct HttpClient::Impl {
  Url url;
  std::string api_key;
  asio::io_context context;
  std::unique_ptr<asio::ip::tcp::socket> socket;
  beast::flat_buffer buffer;

  Error fault(const char* doing, const beast::error_code& code) {
    socket.reset();
    return {ErrorCode::unavailable,
            cat("http://", url.host, ":", url.port, ": ", doing, ": ", code.message(), "; is the server running?")};
  }

  Result<void> connect() {
    if (socket) return {};
    beast::error_code code;
    asio::ip::tcp::resolver resolver(context);
    const auto found = resolver.resolve(url.host, url.port, code);
    if (code) return fault("resolve", code);
    auto made = std::make_unique<asio::ip::tcp::socket>(context);
    asio::connect(*made, found, code);
    if (code) return fault("connect", code);
    made->set_option(asio::ip::tcp::no_delay(true), code);
    buffer.clear();
    socket = std::move(made);
    return {};
  }

  Result<void> send(http::verb verb, const std::string& path, const std::string& body) {
    http::request<http::string_body> request(verb, url.prefix + path, 11);
    request.set(http::field::host, cat(url.host, ":", url.port));
    request.set(http::field::user_agent, "warmpath");
    if (!api_key.empty()) request.set(http::field::authorization, "Bearer " + api_key);
    if (verb == http::verb::post) request.set(http::field::content_type, "application/json");
    request.body() = body;
    request.prepare_payload();
    const bool reused = socket != nullptr;
    WP_TRY(connect());
    beast::error_code code;
    http::write(*socket, request, code);
    if (code && reused) {  // The server closed an idle connection.
      socket.reset();
      WP_TRY(connect());
      http::write(*socket, request, code);
    }
    if (code) return fault("send", code);
    return {};
  }

  Result<std::string> call_text(http::verb verb, const std::string& path, const std::string& body) {
    WP_TRY(send(verb, path, body));
    http::response_parser<http::string_body> parser;
    parser.body_limit(kBodyBytesMax);
    beast::error_code code;
    http::read(*socket, buffer, parser, code);
    if (code) return fault("read", code);
    if (!parser.keep_alive()) socket.reset();
    const auto& response = parser.get();
    if (response.result_int() != 200) return error_of(response.result_int(), response.body());
    return std::move(parser.get().body());
  }

  Result<Json> call(http::verb verb, const std::string& path, const std::string& body) {
    WP_TRY(const std::string text, call_text(verb, path, body));
    return parse_json(text, {.size_bytes_max = kBodyBytesMax});
  }
};

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

Result<HttpClient> HttpClient::make(std::string_view url, std::string api_key) {
  auto impl = std::make_unique<Impl>();
  WP_TRY(impl->url, parse_url(url));
  impl->api_key = std::move(api_key);
  return HttpClient(std::move(impl));
}

Result<Json> HttpClient::get(const std::string& path) { return impl_->call(http::verb::get, path, ""); }

Result<std::string> HttpClient::get_text(const std::string& path) {
  return impl_->call_text(http::verb::get, path, "");
}

Result<Json> HttpClient::post(const std::string& path, const Json& body) {
  return impl_->call(http::verb::post, path, dump_json(body));
}

Result<void> HttpClient::stream(const std::string& path, const Json& body, const SseParser::Sink& event) {
  WP_TRY(impl_->send(http::verb::post, path, dump_json(body)));
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  beast::error_code code;
  http::read_header(*impl_->socket, impl_->buffer, parser, code);
  if (code) return impl_->fault("read", code);
  const unsigned status = parser.get().result_int();
  std::string refused;
  SseParser events;
  char chunk[16384];
  while (!parser.is_done()) {
    parser.get().body().data = chunk;
    parser.get().body().size = sizeof chunk;
    http::read_some(*impl_->socket, impl_->buffer, parser, code);
    if (code == http::error::need_buffer) code = {};
    if (code) return impl_->fault("read", code);
    const std::string_view bytes(chunk, sizeof chunk - parser.get().body().size);
    if (status != 200) {
      if (refused.size() < 1 << 20) refused += bytes;
    } else if (!events.push(bytes, event)) {
      impl_->socket.reset();
      return Error{ErrorCode::bad_request, "server sent an event larger than 64 MiB"};
    }
  }
  if (!parser.keep_alive()) impl_->socket.reset();
  if (status != 200) return error_of(status, refused);
  return {};
}

}  // namespace wp::measure
