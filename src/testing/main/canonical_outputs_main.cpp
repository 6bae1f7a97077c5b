// Prints the hash of what the cpu backend's canonical kernels return, and exits 1 where it is not the one that every
// build gives. tools/canonical_bits.sh runs it as built by other compilers and for other processors.
#include <cinttypes>
#include <cstdio>

#include "device/device.h"
#include "model/model.h"
#include "testing/canonical_outputs.h"

int main() {
  auto device = wp::Device::make(wp::DeviceKind::cpu, 2);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.error().message.c_str());
    return 1;
  }
  wp::Stream stream(**device);
  const uint64_t found = wp::canonical_outputs(stream);
  std::printf("%016" PRIx64 " %s\n", found, (*device)->description().c_str());
  if (found == wp::testing::kCanonicalOutputsOfCpu) return 0;
  std::fprintf(stderr, "expected %016" PRIx64 "\n", wp::testing::kCanonicalOutputsOfCpu);
  return 1;
}
