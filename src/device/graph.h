// Graph: launches of a stream written down once and started again with one call. What they read and write stays where
// it was; only the bytes there may change. Move-only; the stream's thread. For devices whose work is launched (Stream::
// can_capture).
#pragma once

#include <utility>

#include "device/device.h"

namespace wp {

class Graph {
 public:
  // Runs `launch`, which only launches on the stream, without the device doing anything yet.
  template <class Launch>
  static Graph capture(Stream& stream, const Launch& launch) {
    stream.begin_capture();
    launch();
    return stream.end_capture();
  }

  Graph() = default;
  Graph(Graph&& other) noexcept { swap(other); }
  Graph& operator=(Graph other) noexcept {
    swap(other);
    return *this;
  }
  ~Graph();

  void launch(Stream& stream) const;
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  friend class Stream;
  Graph(Device& device, void* handle) : device_(&device), handle_(handle) {}
  void swap(Graph& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
  }

  Device* device_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace wp
