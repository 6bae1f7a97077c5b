#include "serve/server.h"

#include <algorithm>
#include <thread>

#include "serve/http_connection.h"

namespace wp {

struct Server::Impl {
  Impl(ServerOptions options, Clock& clock)
      : state(std::move(options), clock), workers(state.options.http.workers_max) {}

  ServerState state;
  WorkerPool workers;
  std::unique_ptr<HttpListener> listener;
  std::thread io_thread;
  std::mutex stop_mutex;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { stop(); }

Result<std::unique_ptr<Server>> Server::bind(ServerOptions options, Clock& clock) {
  auto impl = std::make_unique<Impl>(std::move(options), clock);
  WP_TRY(impl->listener, HttpListener::bind(impl->state, impl->workers));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const { return impl_->listener->port(); }

std::string Server::url() const { return impl_->listener->url(); }

void Server::run() {
  WP_ASSERT(!impl_->io_thread.joinable());
  impl_->io_thread = std::thread([this] { impl_->listener->run(); });
}

void Server::stop() {
  const std::lock_guard lock(impl_->stop_mutex);
  if (!impl_->io_thread.joinable()) return;
  begin_drain();
  cut();
  stop_accepting();
  // A handler that waits for its client sees the end of the connection; where none runs, what was answered last is on
  // its way and goes first.
  const bool handled = impl_->state.in_flight == 0;
  if (!handled) impl_->listener->close_connections();
  impl_->workers.stop();  // Waits for the handlers.
  if (handled) impl_->listener->close_connections();
  impl_->listener->stop();
  impl_->io_thread.join();
}

void Server::set_loading(std::string_view phase, double percent) { impl_->state.set_loading(phase, percent); }

void Server::ready(std::shared_ptr<const Service> service) { impl_->state.set_service(std::move(service)); }

void Server::begin_drain() { impl_->state.draining = true; }

void Server::stop_accepting() { impl_->listener->stop_accepting(); }

int64_t Server::in_flight() const { return impl_->state.in_flight; }

void Server::cut() { impl_->state.cut = true; }

}  // namespace wp
