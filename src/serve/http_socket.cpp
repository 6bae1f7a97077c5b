#include "serve/http_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace wp {

bool HttpSocket::write(std::string_view bytes, int64_t timeout_ms) {
  using Steady = std::chrono::steady_clock;
  auto last_progress = Steady::now();
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      last_progress = Steady::now();
      continue;
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
    const int64_t waited_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(Steady::now() - last_progress).count();
    if (waited_ms >= timeout_ms) return false;
    pollfd entry{descriptor_, POLLOUT | POLLRDHUP, 0};
    // Wakes often enough to see a peer that left with our data unread.
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(timeout_ms - waited_ms, 100)));
    if (ready < 0 && errno != EINTR) return false;
    if (ready > 0 && (entry.revents & (POLLERR | POLLHUP | POLLRDHUP | POLLNVAL))) return false;
  }
  return true;
}

bool HttpSocket::peer_gone() const {
  pollfd entry{descriptor_, POLLRDHUP, 0};
  const int ready = ::poll(&entry, 1, 0);
  return ready > 0 && (entry.revents & (POLLERR | POLLHUP | POLLRDHUP | POLLNVAL));
}

}  // namespace wp
