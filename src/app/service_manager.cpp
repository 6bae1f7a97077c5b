#include "app/service_manager.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "core/cat.h"

namespace wp::app {

std::string ServiceManager::address_from_environment() {
  const char* address = std::getenv("NOTIFY_SOCKET");
  return address ? address : "";
}

ServiceManager::ServiceManager(std::string_view address) : address_(address) {
  sockaddr_un to = {};
  if (address_.empty() || address_.size() >= sizeof(to.sun_path)) return;
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const timeval patience = {.tv_sec = 5, .tv_usec = 0};
  if (socket_ >= 0) setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

ServiceManager::~ServiceManager() {
  if (socket_ >= 0) close(socket_);
}

void ServiceManager::loading(std::string_view phase, double percent) {
  const int whole = static_cast<int>(percent);
  if (whole == told_percent_) return;
  told_percent_ = whole;
  tell(cat("STATUS=loading (", phase, "), ", whole, " %"), false);
}

void ServiceManager::ready(std::string_view url) { tell(cat("READY=1\nSTATUS=serving ", url), true); }

void ServiceManager::stopping(int64_t longest_ns) {
  tell(cat("STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=", longest_ns / 1000), true);
}

// A manager that went away is no reason to stop serving.
void ServiceManager::tell(const std::string& message, bool must) {
  if (socket_ < 0) return;
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  if (to.sun_path[0] == '@') to.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  sendto(socket_, message.data(), message.size(), MSG_NOSIGNAL | (must ? 0 : MSG_DONTWAIT),
         reinterpret_cast<const sockaddr*>(&to), size);
}

}  // namespace wp::app
