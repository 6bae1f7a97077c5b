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
#include "device/stand_in.h"
#include "device/stream_handle.h"

namespace wp {

enum class DeviceKind : uint8_t { ref, cpu, cuda, hip };  // ref: plain loops in double, on any CPU.

// Where a buffer's bytes lie. `shared` is read and written by the host and by kernels; `device` is the device's own,
// fast for kernels, and reached from the host through Device::copy and Device::fill alone. One and the same on ref and
// cpu.
enum class Memory : uint8_t { shared, device };

const char* name(DeviceKind kind);
// Kernels of these read any host memory: weights where a file is mapped, a vector's elements.
constexpr bool reads_host_memory(DeviceKind kind) { return kind == DeviceKind::ref || kind == DeviceKind::cpu; }
Result<DeviceKind> device_kind(std::string_view name);

// What a vendor's runtime does for Device. A call that fails after startup is fatal.
struct Vendor {
  Result<std::string> (*describe)();  // "NVIDIA H200, 132 multiprocessors"; an error where there is no device.
  int (*workspaces)();
  std::byte* (*allocate)(int64_t size_bytes, Memory memory);  // Zeroed; null where there is no room.
  void (*release)(std::byte* data, Memory memory);
  void (*copy)(void* to, const void* from, int64_t size_bytes);
  void (*fill)(void* to, uint8_t value, int64_t size_bytes);
  void* (*make_stream)();
  void (*release_stream)(void* stream);
  void (*upload)(void* stream, void* to, const void* from, int64_t size_bytes);
  void (*synchronize)(void* stream);
  void (*begin_capture)(void* stream);
  void* (*end_capture)(void* stream);  // A graph, ready to be launched.
  void (*launch_graph)(void* graph, void* stream);
  void (*release_graph)(void* graph);
  void* (*make_event)();
  void (*release_event)(void* event);
  void (*record_event)(void* event, void* stream);
  double (*seconds_between)(void* begin, void* end);  // Both have happened.
  int64_t (*free_bytes)();                            // Of the device's own memory, as the driver reports it.
};

// One device and, for ref and cpu, the threads that compute on it. Outlives everything made from it.
class Device {
 public:
  // Fails with a reason where the kind is not built in or this machine lacks what it needs (cpu: AVX2 and FMA).
  // `threads`: 0 means all cores this process may use.
  static Result<std::unique_ptr<Device>> make(DeviceKind kind, int threads = 0);

  // A device of a kind with memory of its own, on any machine: nothing runs, launches are recorded. Models for it are
  // loaded on ref.
  static std::unique_ptr<Device> make_dry(DeviceKind kind);

  DeviceKind kind() const { return kind_; }
  bool is_dry() const { return dry_; }
  const std::string& description() const { return description_; }  // "cpu Intel Xeon, 2 threads, avx512"
  ThreadPool& threads() const { return *threads_; }

  // Parts of a workspace (kernels::Workspace): threads on a CPU, blocks of threads that run side by side on a GPU.
  int workspaces() const { return vendor_ ? vendor_->workspaces() : threads_->threads(); }

  // Aligned to 64 bytes, zeroed.
  Result<std::byte*> allocate(int64_t size_bytes, const char* purpose, Memory memory = Memory::shared);
  void release(std::byte* data, int64_t size_bytes, Memory memory) noexcept;
  // Between any two memories; finished on return. Not while kernels run that touch either.
  void copy(void* to, const void* from, int64_t size_bytes);
  void fill(void* to, uint8_t value, int64_t size_bytes);
  int64_t allocated_bytes() const { return allocated_bytes_; }

  // The device's own memory that can be had now: allocated in one piece, written, read back at many places, and given
  // back. 0 where kernels read host memory: the host's is theirs.
  int64_t probe_memory();

 private:
  friend class Stream;
  friend class Graph;
  friend class Recorder;
  bool holds(std::byte* data, int64_t size_bytes);
  Device(DeviceKind kind, std::string description, std::unique_ptr<ThreadPool> threads, const Vendor* vendor);

  DeviceKind kind_;
  std::string description_;
  std::unique_ptr<ThreadPool> threads_;
  const Vendor* vendor_ = nullptr;
  bool dry_ = false;
  int64_t allocated_bytes_ = 0;
};

class Graph;

// Work in order. On ref and cpu every call has finished when it returns; on a GPU after synchronize(). What
// Device::copy and Device::fill do is ordered with every stream. Move-only; does not outlive its device.
class Stream {
 public:
  explicit Stream(Device& device);
  Stream(Stream&& other) noexcept { swap(other); }
  Stream& operator=(Stream other) noexcept {
    swap(other);
    return *this;
  }
  ~Stream();

  Device& device() const { return *device_; }
  DeviceKind kind() const { return device_->kind(); }
  ThreadPool& threads() const { return device_->threads(); }
  void synchronize();
  // Graph::capture; false: work is done when it is asked for.
  bool can_capture() const { return handle_ != nullptr; }
  void begin_capture();
  Graph end_capture();
  // From shared memory that stays as it is until synchronize().
  void upload(void* to, const void* from, int64_t size_bytes);

  // The device's own memory for whatever operation runs, which may leave anything in it: operands in another form. Not
  // owned; none: operations that would use it take another way to the same bits.
  void lend(std::byte* data, int64_t size_bytes) { lent_ = {data, size_bytes}; }

  // What is launched from here on belongs to this part of the model; a constant.
  void enter(const char* place) { place_ = place; }
  const char* place() const { return place_; }
  // Launches are written down there; null ends it. Not owned.
  void record(Recorder* recorder) { recorder_ = recorder; }
  Recorder* recorder() const { return recorder_; }
  // Tests: one operation runs this kernel; null ends it. Not owned.
  void replace(const StandIn* stand_in) { stand_in_ = stand_in; }
  const StandIn* stand_in() const { return stand_in_; }

 private:
  friend void* stream_handle(const Stream& stream);
  friend Lent lent_to(const Stream& stream);
  friend class Graph;
  void swap(Stream& other) noexcept;

  Device* device_ = nullptr;
  void* handle_ = nullptr;
  Recorder* recorder_ = nullptr;
  const StandIn* stand_in_ = nullptr;
  Lent lent_;
  const char* place_ = "";
};

// One allocation on one device. Move-only, never grows.
class Buffer {
 public:
  static Result<Buffer> make(Device& device, int64_t size_bytes, const char* purpose, Memory memory = Memory::shared);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() {
    if (device_) device_->release(data_, size_bytes_, memory_);
  }

  // Non-owning; valid while this buffer lives. Asserts that the view lies inside.
  Tensor view(DType dtype, const Shape& shape, int64_t offset_bytes = 0) const;
  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Buffer(Device& device, std::byte* data, int64_t size_bytes, Memory memory)
      : device_(&device), data_(data), size_bytes_(size_bytes), memory_(memory) {}
  void swap(Buffer& other) noexcept;

  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
  Memory memory_ = Memory::shared;
};

}  // namespace wp
