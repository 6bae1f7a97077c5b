// ServerState: what the connection threads share: phase of life, counters, the service once there is one. Every member
// function from any thread. Holds no socket.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "serve/metrics.h"
#include "serve/response_store.h"
#include "serve/server.h"

namespace wp {

class ServerState {
 public:
  ServerState(ServerOptions server_options, Clock& server_clock)
      : options(std::move(server_options)),
        clock(server_clock),
        created_s(unix_time_s()),
        responses(options.responses, server_clock) {}

  struct Loading {
    std::string phase;
    double percent;
  };
  void set_loading(std::string_view phase, double percent) {
    const std::lock_guard lock(mutex_);
    loading_ = {std::string(phase), percent};
  }
  Loading loading() const {
    const std::lock_guard lock(mutex_);
    return loading_;
  }
  void set_service(std::shared_ptr<const Service> service) {
    const std::lock_guard lock(mutex_);
    service_ = std::move(service);
  }
  std::shared_ptr<const Service> service() const {  // Null while loading.
    const std::lock_guard lock(mutex_);
    return service_;
  }

  // True once for each name: what would otherwise be in the log with every request of a client.
  bool first_time(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return named_.size() < kNamedMax && named_.insert(name).second;
  }

  ServerOptions options;  // Const after bind().
  Clock& clock;
  const int64_t created_s;
  std::atomic<bool> loopback{true};  // Bound to a loopback address: Host is checked where no key is.
  std::atomic<bool> draining{false};
  std::atomic<bool> cut{false};         // Every request under way ends now.
  std::atomic<int64_t> in_flight{0};    // Inference requests.
  std::atomic<int64_t> connections{0};  // Open.
  std::atomic<uint64_t> requests{0};    // Numbered from 1.
  std::atomic<uint64_t> draws{0};       // Seeds given to requests without one.
  Metrics metrics;
  ResponseStore responses;

 private:
  static constexpr size_t kNamedMax = 256;

  mutable std::mutex mutex_;
  Loading loading_{"starting", 0};
  std::shared_ptr<const Service> service_;
  std::set<std::string> named_;
};

}  // namespace wp
