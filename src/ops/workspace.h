// How much memory a thread may use within one kernel: the same bound for all backends. Kernels assert that they keep
// to it.
#pragma once

#include <cstdint>

namespace wp::ops {

// 1 MiB, and 8 bytes for each token of the longest sequence (scores of blocks and their keys).
constexpr int64_t workspace_bytes_per_thread(int64_t context_max) {
  return (int64_t{1} << 20) + (context_max * 8 + 63) / 64 * 64;
}

}  // namespace wp::ops
