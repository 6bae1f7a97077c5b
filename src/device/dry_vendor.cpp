// A GPU that does nothing: addresses without memory behind them, no launches. What a pass would launch and copy is
// then known on any machine (spec/kernels.md 9.2).
#include <sys/mman.h>

#include "device/dry.h"

namespace wp {
namespace {

constexpr int64_t kHeader = 4096;  // Before each allocation: its size.

std::byte* allocate(int64_t bytes, Memory) {
  const auto size = static_cast<size_t>(bytes + kHeader);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  *static_cast<size_t*>(data) = size;
  return static_cast<std::byte*>(data) + kHeader;
}

void release(std::byte* data, Memory) {
  std::byte* begin = data - kHeader;
  ::munmap(begin, *reinterpret_cast<size_t*>(begin));
}

constexpr Vendor kVendor{
    .describe = [] { return Result<std::string>(std::string("nothing: launches are written down")); },
    .workspaces = [] { return 1; },
    .allocate = allocate,
    .release = release,
    .copy = [](void*, const void*, int64_t) {},
    .fill = [](void*, uint8_t, int64_t) {},
    .make_stream = []() -> void* { return nullptr; },
};

}  // namespace

const Vendor* dry_vendor() { return &kVendor; }

}  // namespace wp
