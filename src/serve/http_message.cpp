#include "serve/http_message.h"

namespace wp {

std::string_view HttpRequest::key() const {
  const std::string_view given = header("authorization");
  if (given.size() > 7 && (given.substr(0, 7) == "Bearer " || given.substr(0, 7) == "bearer ")) return given.substr(7);
  return header("x-api-key");
}

ErrorShape HttpRequest::error_shape() const {
  constexpr std::string_view kMessages = "/v1/messages";
  const bool messages = path.compare(0, kMessages.size(), kMessages) == 0 &&
                        (path.size() == kMessages.size() || path[kMessages.size()] == '/');
  return messages || !header("anthropic-version").empty() ? ErrorShape::anthropic : ErrorShape::openai;
}

std::string_view HttpRequest::header(std::string_view lower_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_name) return value;
  return {};
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 411: return "Length Required";
    case 413: return "Payload Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 529: return "Overloaded";
    default: return "Status";
  }
}

HttpResponse::HttpResponse(const HttpRequest& request, HttpSocket* socket, int64_t write_ms_max)
    : socket_(socket),
      id_(request.id),
      write_ms_max_(write_ms_max),
      http11_(request.http11),
      head_only_(request.method == "HEAD"),
      keep_alive_(request.keep_alive) {
  if (!request.id.empty()) add_header("x-request-id", request.id);
}

void HttpResponse::set_error_shape(ErrorShape shape) {
  error_shape_ = shape;
  if (shape == ErrorShape::anthropic && !id_.empty()) add_header("request-id", id_);
}

void HttpResponse::add_header(std::string_view name, std::string_view value) {
  extra_headers_ += cat(name, ": ", value, "\r\n");
}

std::string HttpResponse::head(int status, std::string_view content_type) const {
  std::string out = cat(http11_ ? "HTTP/1.1 " : "HTTP/1.0 ", status, " ", reason_phrase(status), "\r\n");
  out += "server: warmpath\r\n";
  if (!content_type.empty()) out += cat("content-type: ", content_type, "\r\n");
  out += extra_headers_;
  return out;
}

void HttpResponse::send(int status, std::string_view content_type, std::string body) {
  WP_ASSERT(!answered());
  status_ = status;
  whole_ = head(status, content_type);
  whole_ += cat("connection: ", keep_alive_ ? "keep-alive" : "close", "\r\n");
  if (status != 204) whole_ += cat("content-length: ", body.size(), "\r\n");
  whole_ += "\r\n";
  if (!head_only_) whole_ += body;
}

void HttpResponse::fail(const ApiError& error) {
  if (error.retry_after_s > 0) add_header("retry-after", cat(error.retry_after_s));
  if (!error.allow.empty()) add_header("allow", error.allow);
  if (error.status == 401) add_header("www-authenticate", "Bearer");
  send_json(error.status_in(error_shape_), error_body(error));
}

bool HttpResponse::begin_stream() {
  WP_ASSERT(!answered() && socket_);
  status_ = 200;
  streaming_ = true;
  std::string bytes = head(200, "text/event-stream");
  bytes += "cache-control: no-cache\r\nx-accel-buffering: no\r\n";
  if (!http11_) keep_alive_ = false;
  bytes += http11_ ? "transfer-encoding: chunked\r\n" : "";
  bytes += cat("connection: ", keep_alive_ ? "keep-alive" : "close", "\r\n\r\n");
  gone_ = gone_ || !socket_->write(bytes, write_ms_max_);
  return !gone_;
}

bool HttpResponse::write(std::string_view bytes) {
  WP_ASSERT(streaming_);
  if (gone_ || bytes.empty()) return !gone_;
  if (!http11_) {
    gone_ = !socket_->write(bytes, write_ms_max_);
  } else {
    std::string chunk = fmt::format("{:x}\r\n", bytes.size());
    chunk += bytes;
    chunk += "\r\n";
    gone_ = !socket_->write(chunk, write_ms_max_);
  }
  return !gone_;
}

void HttpResponse::end_stream() {
  WP_ASSERT(streaming_);
  if (!gone_ && http11_) gone_ = !socket_->write("0\r\n\r\n", write_ms_max_);
}

void HttpResponse::break_stream() {
  end_stream();
  keep_alive_ = false;
}

bool HttpResponse::client_gone() {
  if (!gone_ && socket_) gone_ = socket_->peer_gone();
  return gone_;
}

}  // namespace wp
