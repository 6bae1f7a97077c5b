// Tells the service manager that started this process how far it is: systemd's notification protocol (man sd_notify),
// datagrams of "KEY=value" to the socket that NOTIFY_SOCKET names. Without one, or where nobody listens, nothing is
// told and nothing else changes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace wp::app {

class ServiceManager {
 public:
  // `address`: of NOTIFY_SOCKET, a path or, behind an @, an abstract name; empty: there is no manager.
  explicit ServiceManager(std::string_view address);
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  static std::string address_from_environment();

  void loading(std::string_view phase, double percent);  // Once for each whole percent.
  void ready(std::string_view url);
  // It will take up to `longest_ns` to end.
  void stopping(int64_t longest_ns);

 private:
  // `must`: waits for a manager that is slow to read, up to some seconds; else a full socket drops it.
  void tell(const std::string& message, bool must);

  int socket_ = -1;
  std::string address_;
  int told_percent_ = -1;
};

}  // namespace wp::app
