#include "device/device.h"

#include <sched.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace wp {
namespace {

constexpr size_t kAlignment = 64, kHugePage = size_t{2} << 20;
constexpr int64_t kHugeFrom = int64_t{8} << 20;

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
  return Error{ErrorCode::bad_request, cat("device: expected ref or cpu, found ", text)};
}

Device::Device(DeviceKind kind, std::string description, std::unique_ptr<ThreadPool> threads)
    : kind_(kind), description_(std::move(description)), threads_(std::move(threads)) {}

Result<std::unique_ptr<Device>> Device::make(DeviceKind kind, int threads) {
  if (kind != DeviceKind::ref && kind != DeviceKind::cpu)
    return Error{ErrorCode::unsupported, cat("device ", name(kind), ": this build has the ref and cpu backends only")};
  if (threads < 0 || threads > 1024)
    return Error{ErrorCode::bad_request, cat("threads: expected 0..1024, found ", threads)};
  if (kind == DeviceKind::cpu && !cpu_has_what_it_needs())
    return Error{ErrorCode::unsupported,
                 "device cpu: expected a CPU with AVX2 and FMA, found none; --device ref runs on any"};
  if (threads == 0) threads = cores_of_this_process();
  std::string description = cat(name(kind), " ", cpu_name(), ", ", threads, threads == 1 ? " thread" : " threads");
  return std::unique_ptr<Device>(new Device(kind, std::move(description), std::make_unique<ThreadPool>(threads)));
}

Result<std::byte*> Device::allocate(int64_t bytes, const char* purpose) {
  WP_ASSERT(bytes >= 0);
  // Large allocations lie on huge pages where the system gives them: scattered keys and wide rows then cost no misses
  // of the address cache.
  const size_t alignment = bytes >= kHugeFrom ? kHugePage : kAlignment;
  const size_t rounded = (static_cast<size_t>(bytes) + alignment - 1) / alignment * alignment + kAlignment;
  void* data = std::aligned_alloc(alignment, (rounded + alignment - 1) / alignment * alignment);
  if (!data)
    return Error{ErrorCode::no_memory, cat(name(kind_), ": ", purpose, ": could not allocate ", bytes, " bytes (",
                                           allocated_bytes_, " in use)")};
#if defined(MADV_HUGEPAGE)
  if (alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
#endif
  std::memset(data, 0, rounded);
  allocated_bytes_ += bytes;
  return static_cast<std::byte*>(data);
}

void Device::release(std::byte* data, int64_t bytes) noexcept {
  std::free(data);
  allocated_bytes_ -= bytes;
}

Result<Buffer> Buffer::make(Device& device, int64_t size_bytes, const char* purpose) {
  WP_TRY(std::byte * data, device.allocate(size_bytes, purpose));
  return Buffer(device, data, size_bytes);
}

Tensor Buffer::view(DType dtype, const Shape& shape, int64_t offset_bytes) const {
  WP_ASSERT(offset_bytes >= 0 && offset_bytes + shape.count() * wp::size_bytes(dtype) <= size_bytes_);
  return Tensor(static_cast<void*>(data_ + offset_bytes), dtype, shape);
}

void Buffer::swap(Buffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
}

}  // namespace wp
