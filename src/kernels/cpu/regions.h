// How kernels share work among threads: ranges of rows or outputs, never parts of a sum, so the number of threads does
// not show in a bit. Work too small to pay for waking a thread runs on the caller. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/device.h"

namespace wp::kernels::cpu {

// About what a region costs in time of one thread: two microseconds, given in vector operations.
constexpr int64_t kSmallWork = 4000;

// body(begin, end, thread) over ranges of at most `grain` that cover [0, count). `work`: vector operations in all.
template <class Body>
void for_ranges(Stream& stream, int64_t count, int64_t grain, int64_t work, const Body& body) {
  if (count <= 0) return;
  if (work < kSmallWork) {
    for (int64_t begin = 0; begin < count; begin += grain) body(begin, std::min(count, begin + grain), 0);
    return;
  }
  stream.threads().run((count + grain - 1) / grain,
                       [&](int64_t i, int thread) { body(i * grain, std::min(count, (i + 1) * grain), thread); });
}

}  // namespace wp::kernels::cpu
