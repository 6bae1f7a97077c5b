// What the canonical kernels of the cpu backend return on the fixed inputs of the numerics id, as one hash: the same
// under GCC and Clang, on AVX2, AVX-512 and NEON, with any number of threads (docs/invariants.md, N4 and N5).
#pragma once

#include <cstdint>

namespace wp::testing {

// Changes only with the arithmetic of prefill, and then together with kPrefillNumerics.
constexpr uint64_t kCanonicalOutputsOfCpu = 0x36641703c83761cd;

}  // namespace wp::testing
