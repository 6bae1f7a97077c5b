#include "serve/http_connection.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <unordered_map>

#include "core/log.h"
#include "serve/http_target.h"
#include "serve/routes.h"

namespace wp {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using ErrorCondition = boost::system::error_code;

constexpr int64_t kLingerMs = 1000;        // After an early refusal: time for the client to read it.
constexpr size_t kLingerBytes = 8u << 20;  // And how much of its body is read and thrown away meanwhile.

class Connection;

struct Shared {
  ServerState& state;
  WorkerPool& workers;
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections{};  // I/O thread only.
  asio::io_context io{1};  // Destroyed first: it holds the last connections, which leave the map.
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Shared& shared, tcp::socket socket)
      : shared_(shared), socket_(std::move(socket)), timer_(shared.io), native_(socket_.native_handle()) {
    ++shared_.state.connections;
  }
  ~Connection() {
    --shared_.state.connections;
    shared_.connections.erase(this);
  }

  void start() { next_request(); }

  // Readers and writers see the end of the connection, a handler on its thread included.
  void shut_down() {
    ErrorCondition ignored;
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
  }

 private:
  const HttpLimits& limits() const { return shared_.state.options.http; }

  void arm(int64_t ms) {
    timed_out_ = false;
    timer_.expires_after(std::chrono::milliseconds(ms));
    timer_.async_wait([self = shared_from_this()](ErrorCondition failed) {
      if (failed || self->timer_.expiry() > std::chrono::steady_clock::now()) return;
      self->timed_out_ = true;
      ErrorCondition ignored;
      self->socket_.cancel(ignored);
    });
  }
  // Also makes an expiry that is queued already come to nothing.
  void disarm() { timer_.expires_at(std::chrono::steady_clock::time_point::max()); }

  // Waits without a buffer of its own, so that an idle connection costs a socket and this object.
  void next_request() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(limits().header_bytes_max));
    parser_->body_limit(static_cast<uint64_t>(limits().body_bytes_max));
    if (buffer_.size() > 0) return read_header();
    buffer_.shrink_to_fit();
    arm(limits().idle_ms_max);
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](ErrorCondition failed) {
      self->disarm();
      if (!failed) self->read_header();
    });
  }

  void read_header() {
    begin_ns_ = shared_.state.clock.now_ns();
    arm(limits().header_ms_max);
    http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](ErrorCondition failed, size_t) {
      self->disarm();
      if (failed) return self->refuse_unread(failed, "header_timeout");
      self->after_header();
    });
  }

  void after_header() {
    const auto& message = parser_->get();
    const std::string expect(message[http::field::expect]);
    if (!expect.empty() && !boost::beast::iequals(expect, "100-continue")) {
      return refuse({.status = 417,
                     .type = "invalid_request_error",
                     .code = "expectation_failed",
                     .message = "expect: expected 100-continue, found something else"});
    }
    const bool takes_body = message.method() == http::verb::post || message.method() == http::verb::put;
    if (takes_body && !parser_->chunked() && !parser_->content_length()) {
      return refuse({.status = 411,
                     .type = "invalid_request_error",
                     .code = "length_required",
                     .message = "body: expected a Content-Length header or chunked encoding, found neither"});
    }
    if (expect.empty() || message.version() < 11) return read_body();
    outgoing_ = "HTTP/1.1 100 Continue\r\n\r\n";
    arm(limits().write_ms_max);
    asio::async_write(socket_, asio::buffer(outgoing_), [self = shared_from_this()](ErrorCondition failed, size_t) {
      self->disarm();
      if (!failed) self->read_body();
    });
  }

  void read_body() {
    arm(limits().body_ms_max);
    http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](ErrorCondition failed, size_t) {
      self->disarm();
      if (failed) return self->refuse_unread(failed, "body_timeout");
      self->handle();
    });
  }

  // What the parser or the network made of a request that never came whole.
  void refuse_unread(ErrorCondition failed, const char* timeout_code) {
    if (timed_out_)
      return refuse({.status = 408,
                     .type = "timeout_error",
                     .code = timeout_code,
                     .message = "the request did not come whole in time"});
    if (failed == http::error::header_limit)
      return refuse({.status = 431,
                     .type = "invalid_request_error",
                     .code = "request_too_large",
                     .message = cat("headers: expected at most ", limits().header_bytes_max, " bytes, found more")});
    if (failed == http::error::body_limit)
      return refuse({.status = 413,
                     .type = "invalid_request_error",
                     .code = "request_too_large",
                     .message = cat("body: expected at most ", limits().body_bytes_max, " bytes, found more")});
    if (failed == http::error::end_of_stream || failed == http::error::partial_message ||
        failed.category() != make_error_code(http::error::end_of_stream).category())
      return;  // The client left; nobody reads an answer.
    refuse({.status = 400,
            .type = "invalid_request_error",
            .code = "bad_http",
            .message = cat("request: not HTTP/1.1 (", failed.message(), ")")});
  }

  static void take_headers(const http::fields& fields, HttpRequest* request) {
    for (const auto& field : fields) {
      std::string name(field.name_string());
      for (char& c : name)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
      request->headers.emplace_back(std::move(name), std::string(field.value()));
    }
  }

  HttpRequest take_request() {
    auto message = parser_->release();
    HttpRequest request;
    request.id = next_request_id(shared_.state);
    request.method = std::string(message.method_string());
    request.http11 = message.version() >= 11;
    request.keep_alive = message.keep_alive();
    request.begin_ns = begin_ns_;
    take_headers(message, &request);
    target_ = std::string(message.target());
    request.body = std::move(message.body());
    return request;
  }

  void handle() {
    request_ = take_request();
    response_.emplace(request_, &native_, limits().write_ms_max);
    const bool good_target = split_target(target_, &request_.path, &request_.query);
    response_->set_error_shape(request_.error_shape());
    if (!good_target) {
      response_->fail(invalid_value("path", "path: expected an absolute path, percent-encoded, without NUL"));
      return write_answer();
    }
    if (is_quick(request_)) {
      answer(request_, *response_, shared_.state);
      return write_answer();
    }
    // The connection's buffers stay alive in the task; the I/O thread does not touch the socket until it comes back.
    const bool taken = shared_.workers.post([self = shared_from_this()]() mutable {
      answer(self->request_, *self->response_, self->shared_.state);
      Shared& shared = self->shared_;
      asio::post(shared.io, [self = std::move(self)] { self->write_answer(); });
    });
    if (taken) return;
    response_->fail(overloaded("all connection threads are busy, retry later"));
    shared_.state.metrics.count_http("any", 503);
    write_answer();
  }

  void refuse(const ApiError& error) {
    request_ = HttpRequest{};
    request_.id = next_request_id(shared_.state);
    request_.keep_alive = false;
    // What came of the head says which shape the client reads.
    take_headers(parser_->get(), &request_);
    split_target(std::string(parser_->get().target()), &request_.path, &request_.query);
    response_.emplace(request_, &native_, limits().write_ms_max);
    response_->set_error_shape(request_.error_shape());
    response_->fail(error);
    shared_.state.metrics.count_http("unread", error.status);
    linger_ = true;
    write_answer();
  }

  void write_answer() {
    outgoing_ = response_->take_whole();
    if (outgoing_.empty()) return after_answer();
    arm(limits().write_ms_max);
    asio::async_write(socket_, asio::buffer(outgoing_), [self = shared_from_this()](ErrorCondition failed, size_t) {
      self->disarm();
      if (!failed) self->after_answer();
    });
  }

  void after_answer() {
    const bool again = response_->keep_alive() && !shared_.state.cut;
    response_.reset();
    request_ = HttpRequest{};
    outgoing_ = std::string();
    if (again) return next_request();
    ErrorCondition ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    if (!linger_) return;
    // Closing with unread bytes would reset the connection, and the client might lose the answer it has not read yet.
    arm(kLingerMs);
    scratch_.resize(16 << 10);
    discard(0);
  }

  void discard(size_t done) {
    socket_.async_read_some(asio::buffer(scratch_), [self = shared_from_this(), done](ErrorCondition failed, size_t n) {
      if (failed || done + n > kLingerBytes) return self->disarm();
      self->discard(done + n);
    });
  }

  Shared& shared_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  HttpSocket native_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpRequest request_;
  std::optional<HttpResponse> response_;
  std::string target_, outgoing_, scratch_;
  int64_t begin_ns_ = 0;
  bool timed_out_ = false, linger_ = false;
};

}  // namespace

struct HttpListener::Impl {
  Impl(ServerState& state, WorkerPool& workers)
      : shared{state, workers}, acceptor(shared.io), retry(shared.io), work(shared.io.get_executor()) {}

  void accept() {
    acceptor.async_accept([this](ErrorCondition failed, tcp::socket socket) {
      if (failed == asio::error::operation_aborted || !acceptor.is_open()) return;
      if (failed) {  // No descriptors left, most likely: those that serve go on.
        log_warning("accept_failed", {{"reason", failed.message()}});
        retry.expires_after(std::chrono::milliseconds(100));
        retry.async_wait([this](ErrorCondition cancelled) {
          if (!cancelled) accept();
        });
        return;
      }
      take(std::move(socket));
      accept();
    });
  }

  void take(tcp::socket socket) {
    ErrorCondition ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.non_blocking(true, ignored);
    if (shared.state.connections >= shared.state.options.http.connections_max) {
      HttpRequest none;
      none.keep_alive = false;
      HttpResponse response(none, nullptr, 0);
      response.fail(overloaded("too many connections, retry later"));
      socket.write_some(asio::buffer(response.take_whole()), ignored);
      return;
    }
    auto connection = std::make_shared<Connection>(shared, std::move(socket));
    shared.connections[connection.get()] = connection;
    connection->start();
  }

  Shared shared;
  tcp::acceptor acceptor;
  asio::steady_timer retry;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::string host;
  uint16_t port = 0;
};

HttpListener::HttpListener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpListener::~HttpListener() = default;

Result<std::unique_ptr<HttpListener>> HttpListener::bind(ServerState& state, WorkerPool& workers) {
  auto impl = std::make_unique<Impl>(state, workers);
  const ServerOptions& options = state.options;
  const std::string where = cat(options.host, ":", options.port);
  ErrorCondition failed;
  tcp::resolver resolver(impl->shared.io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, failed);
  if (failed || found.empty())
    return Error{ErrorCode::address_in_use, cat(where, ": expected an address to bind, found ", failed.message())};
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor& acceptor = impl->acceptor;
  acceptor.open(endpoint.protocol(), failed);
  if (!failed) acceptor.set_option(tcp::acceptor::reuse_address(true), failed);
  if (!failed) acceptor.bind(endpoint, failed);
  if (!failed) acceptor.listen(1024, failed);
  if (failed == asio::error::address_in_use)
    return Error{ErrorCode::address_in_use,
                 cat(where, ": expected a free port, found it in use; find who holds it with: ss -ltnp 'sport = :",
                     options.port, "'")};
  if (failed) return Error{ErrorCode::address_in_use, cat(where, ": cannot bind (", failed.message(), ")")};
  impl->port = acceptor.local_endpoint().port();
  impl->host = options.host.find(':') == std::string::npos ? options.host : cat("[", options.host, "]");
  state.loopback = endpoint.address().is_loopback();
  return std::unique_ptr<HttpListener>(new HttpListener(std::move(impl)));
}

uint16_t HttpListener::port() const { return impl_->port; }

std::string HttpListener::url() const { return cat("http://", impl_->host, ":", impl_->port); }

void HttpListener::run() {
  impl_->accept();
  impl_->shared.io.run();
}

void HttpListener::stop_accepting() {
  asio::post(impl_->shared.io, [this] {
    ErrorCondition ignored;
    impl_->retry.cancel();
    impl_->acceptor.close(ignored);
  });
}

void HttpListener::close_connections() {
  asio::post(impl_->shared.io, [this] {
    for (auto& [address, weak] : impl_->shared.connections)
      if (auto connection = weak.lock()) connection->shut_down();
  });
}

void HttpListener::stop() {
  asio::post(impl_->shared.io, [this] { impl_->shared.io.stop(); });  // After all that was posted before.
}

}  // namespace wp
