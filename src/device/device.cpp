#include "device/device.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "device/cuda.h"
#include "device/dry.h"
#include "device/graph.h"
#include "device/stream_handle.h"

namespace wp {
namespace {

constexpr size_t kAlignment = 64, kHugePage = size_t{2} << 20;
constexpr int64_t kHugeFrom = int64_t{8} << 20;

const Vendor* vendor_of(DeviceKind kind) { return kind == DeviceKind::cuda ? cuda_vendor() : nullptr; }

int cores_of_this_process() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    const int count = CPU_COUNT(&set);
    if (count > 0) return count;
  }
  const unsigned count = std::thread::hardware_concurrency();
  return count ? static_cast<int>(count) : 1;
}

std::string cpu_name() {
  std::string found = "unknown CPU";
  if (std::FILE* file = std::fopen("/proc/cpuinfo", "r")) {
    char line[512];
    while (std::fgets(line, sizeof line, file)) {
      if (std::strncmp(line, "model name", 10) != 0) continue;
      if (const char* colon = std::strchr(line, ':')) found = colon + 2;
      while (!found.empty() && found.back() == '\n') found.pop_back();
      break;
    }
    std::fclose(file);
  }
  return found;
}

bool cpu_has_what_it_needs() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

// Zeroed. Large allocations lie on huge pages where the system gives them: scattered keys and wide rows then cost no
// misses of the address cache.
void* allocate_host(int64_t bytes) {
  const size_t alignment = bytes >= kHugeFrom ? kHugePage : kAlignment;
  const size_t rounded = (static_cast<size_t>(bytes) + alignment - 1) / alignment * alignment + kAlignment;
  void* data = std::aligned_alloc(alignment, (rounded + alignment - 1) / alignment * alignment);
  if (!data) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
#endif
  std::memset(data, 0, rounded);
  return data;
}

}  // namespace

const char* name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::ref: return "ref";
    case DeviceKind::cpu: return "cpu";
    case DeviceKind::cuda: return "cuda";
    case DeviceKind::hip: return "hip";
  }
  return "?";
}

Result<DeviceKind> device_kind(std::string_view text) {
  if (text == "ref") return DeviceKind::ref;
  if (text == "cpu") return DeviceKind::cpu;
  if (text == "cuda") return DeviceKind::cuda;
  if (text == "hip") return DeviceKind::hip;
  return Error{ErrorCode::bad_request, cat("device: expected ref, cpu or cuda, found ", text)};
}

Device::Device(DeviceKind kind, std::string description, std::unique_ptr<ThreadPool> threads, const Vendor* vendor)
    : kind_(kind), description_(std::move(description)), threads_(std::move(threads)), vendor_(vendor) {}

Result<std::unique_ptr<Device>> Device::make(DeviceKind kind, int threads) {
  const Vendor* vendor = vendor_of(kind);
  if (!vendor && !reads_host_memory(kind))
    return Error{ErrorCode::unsupported, cat("device ", name(kind), ": this build has no such backend")};
  if (threads < 0 || threads > 1024)
    return Error{ErrorCode::bad_request, cat("threads: expected 0..1024, found ", threads)};
  if (kind == DeviceKind::cpu && !cpu_has_what_it_needs())
    return Error{ErrorCode::unsupported,
                 "device cpu: expected a CPU with AVX2 and FMA, found none; --device ref runs on any"};
  if (threads == 0) threads = cores_of_this_process();
  std::string description = cat(name(kind), " ", cpu_name(), ", ", threads, threads == 1 ? " thread" : " threads");
  if (vendor) {
    WP_TRY(const std::string found, vendor->describe());
    description = cat(name(kind), " ", found);
  }
  return std::unique_ptr<Device>(
      new Device(kind, std::move(description), std::make_unique<ThreadPool>(vendor ? 1 : threads), vendor));
}

std::unique_ptr<Device> Device::make_dry(DeviceKind kind) {
  WP_ASSERT(!reads_host_memory(kind));
  std::unique_ptr<Device> device(
      new Device(kind, cat("dry ", name(kind)), std::make_unique<ThreadPool>(1), dry_vendor()));
  device->dry_ = true;
  return device;
}

Result<std::byte*> Device::allocate(int64_t bytes, const char* purpose, Memory memory) {
  WP_ASSERT(bytes >= 0);
  void* data = vendor_ ? vendor_->allocate(bytes + static_cast<int64_t>(kAlignment), memory) : allocate_host(bytes);
  if (!data)
    return Error{ErrorCode::no_memory, cat(name(kind_), ": ", purpose, ": could not allocate ", bytes, " bytes (",
                                           allocated_bytes_, " in use)")};
  allocated_bytes_ += bytes;
  return static_cast<std::byte*>(data);
}

void Device::release(std::byte* data, int64_t bytes, Memory memory) noexcept {
  if (vendor_) vendor_->release(data, memory);
  else std::free(data);
  allocated_bytes_ -= bytes;
}

bool Device::holds(std::byte* data, int64_t bytes) {
  constexpr int64_t kStep = int64_t{64} << 20;
  for (const uint8_t pattern : {0xA5, 0x5A}) {
    fill(data, pattern, bytes);
    for (int64_t at = 0; at < bytes; at += kStep) {
      uint8_t found[64];
      copy(found, data + std::min(at, bytes - int64_t{64}), sizeof found);
      for (const uint8_t byte : found)
        if (byte != pattern) return false;
    }
  }
  return true;
}

int64_t Device::probe_memory() {
  constexpr int64_t kStep = int64_t{256} << 20;
  if (!vendor_) return 0;
  for (int64_t bytes = vendor_->free_bytes() / kStep * kStep; bytes > 0; bytes -= kStep) {
    std::byte* data = vendor_->allocate(bytes, Memory::device);
    if (!data) continue;
    const bool good = holds(data, bytes);
    vendor_->release(data, Memory::device);
    return good ? bytes : 0;
  }
  return 0;
}

void Device::copy(void* to, const void* from, int64_t bytes) {
  if (vendor_) vendor_->copy(to, from, bytes);
  else std::memcpy(to, from, static_cast<size_t>(bytes));
}

void Device::fill(void* to, uint8_t value, int64_t bytes) {
  if (vendor_) vendor_->fill(to, value, bytes);
  else std::memset(to, value, static_cast<size_t>(bytes));
}

Stream::Stream(Device& device) : device_(&device) {
  if (device.vendor_) handle_ = device.vendor_->make_stream();
}

Stream::~Stream() {
  if (handle_) device_->vendor_->release_stream(handle_);
}

void Stream::swap(Stream& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  std::swap(recorder_, other.recorder_);
  std::swap(stand_in_, other.stand_in_);
  std::swap(place_, other.place_);
}

void* stream_handle(const Stream& stream) { return stream.handle_; }
Lent lent_to(const Stream& stream) { return stream.lent_; }

void Stream::synchronize() {
  if (handle_) device_->vendor_->synchronize(handle_);
}

void Stream::begin_capture() { device_->vendor_->begin_capture(handle_); }

Graph Stream::end_capture() { return Graph(*device_, device_->vendor_->end_capture(handle_)); }

Graph::~Graph() {
  if (handle_) device_->vendor_->release_graph(handle_);
}

void Graph::launch(Stream& stream) const { device_->vendor_->launch_graph(handle_, stream.handle_); }

void Stream::upload(void* to, const void* from, int64_t bytes) {
  if (recorder_) recorder_->begin(*this, "upload", {0, static_cast<double>(bytes)});
  if (handle_) device_->vendor_->upload(handle_, to, from, bytes);
  else if (!device_->is_dry()) std::memcpy(to, from, static_cast<size_t>(bytes));
  if (recorder_) recorder_->end(*this);
}

Result<Buffer> Buffer::make(Device& device, int64_t size_bytes, const char* purpose, Memory memory) {
  WP_TRY(std::byte * data, device.allocate(size_bytes, purpose, memory));
  return Buffer(device, data, size_bytes, memory);
}

Tensor Buffer::view(DType dtype, const Shape& shape, int64_t offset_bytes) const {
  WP_ASSERT(offset_bytes >= 0 && offset_bytes + shape.count() * wp::size_bytes(dtype) <= size_bytes_);
  return Tensor(static_cast<void*>(data_ + offset_bytes), dtype, shape);
}

void Buffer::swap(Buffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(memory_, other.memory_);
}

}  // namespace wp
