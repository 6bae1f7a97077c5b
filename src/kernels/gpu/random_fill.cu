// Synthetic weights, made on the device: bound by the bytes written.
#include "kernels/gpu/device_math.h"
#include "kernels/gpu/gpu.h"

namespace wp::kernels::gpu {
namespace {

constexpr unsigned kBlocks = 4096;

// Each thread takes words in turn; the last one may be cut.
__global__ void random_fill_kernel(RandomBytes p) {
  const int64_t words = (p.fill.size_bytes + 7) / 8, step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < words; i += step) {
    const uint64_t word = random_word(p.fill, i);
    if ((i + 1) * 8 <= p.fill.size_bytes) {
      reinterpret_cast<uint64_t*>(p.to)[i] = word;
      continue;
    }
    for (int64_t at = i * 8; at < p.fill.size_bytes; ++at)
      p.to[at] = static_cast<std::byte>(word >> 8 * (at - i * 8) & 0xFF);
  }
}

}  // namespace

void random_fill(Stream& stream, const RandomBytes& p) {
  const unsigned wanted = blocks_for((p.fill.size_bytes + 7) / 8, kThreads), grid = wanted < kBlocks ? wanted : kBlocks;
  random_fill_kernel<<<grid, kThreads, 0, on(stream)>>>(p);
  check_launch();
}

}  // namespace wp::kernels::gpu
