// Device, Stream, Buffer: where numbers live and in what order work on them runs. Beside kernels/ the only place with
// vendor calls. All buffers are made at startup from the memory plan; a step allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/error.h"
#include "core/tensor.h"
#include "core/threads.h"
#include "device/recorder.h"

namespace wp {

enum class DeviceKind : uint8_t { ref, cpu, cuda, hip };  // ref: plain loops in double, on any CPU.

const char* name(DeviceKind kind);
Result<DeviceKind> device_kind(std::string_view name);

// One device and, for ref and cpu, the threads that compute on it. Outlives everything made from it.
class Device {
 public:
  // Fails with a reason where the kind is not built in or this machine lacks what it needs (cpu: AVX2 and FMA).
  // `threads`: 0 means all cores this process may use.
  static Result<std::unique_ptr<Device>> make(DeviceKind kind, int threads = 0);

  DeviceKind kind() const { return kind_; }
  const std::string& description() const { return description_; }  // "cpu Intel Xeon, 2 threads, avx512"
  ThreadPool& threads() const { return *threads_; }

  Result<std::byte*> allocate(int64_t size_bytes, const char* purpose);  // Aligned to 64 bytes, zeroed.
  void release(std::byte* data, int64_t size_bytes) noexcept;
  int64_t allocated_bytes() const { return allocated_bytes_; }

 private:
  Device(DeviceKind kind, std::string description, std::unique_ptr<ThreadPool> threads);

  DeviceKind kind_;
  std::string description_;
  std::unique_ptr<ThreadPool> threads_;
  int64_t allocated_bytes_ = 0;
};

// Work in order. On ref and cpu every call has finished when it returns.
class Stream {
 public:
  explicit Stream(Device& device) : device_(&device) {}
  Device& device() const { return *device_; }
  DeviceKind kind() const { return device_->kind(); }
  ThreadPool& threads() const { return device_->threads(); }
  void synchronize() {}

  // Launches are written down there; null ends it. Not owned.
  void record(Recorder* recorder) { recorder_ = recorder; }
  Recorder* recorder() const { return recorder_; }

 private:
  Device* device_;
  Recorder* recorder_ = nullptr;
};

// One allocation on one device. Move-only, never grows.
class Buffer {
 public:
  static Result<Buffer> make(Device& device, int64_t size_bytes, const char* purpose);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() {
    if (device_) device_->release(data_, size_bytes_);
  }

  // Non-owning; valid while this buffer lives. Asserts that the view lies inside.
  Tensor view(DType dtype, const Shape& shape, int64_t offset_bytes = 0) const;
  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Buffer(Device& device, std::byte* data, int64_t size_bytes)
      : device_(&device), data_(data), size_bytes_(size_bytes) {}
  void swap(Buffer& other) noexcept;

  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

}  // namespace wp
