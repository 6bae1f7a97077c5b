// What a kernel knows of a pass: rows, the segments they belong to, and raw pointers to their pages and states. Built
// by model/ for each pass in memory that was taken at start; const for kernels. No ids, no requests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wp::kernels {

// The recurrent state after the first `rows` rows of its segment goes to the record `anchor`, inside the pass.
struct CaptureView {
  int32_t rows = 0;  // In [1, segment rows]; ascending within a segment.
  std::byte* anchor = nullptr;
};

// Consecutive rows of one sequence. `state_in` and `state_out` are records of one layout (an anchor is the first part
// of a slot), so one offset names a layer's part in both and in captures. They may be the same record: a kernel reads
// what it needs of state_in before it writes state_out.
struct SegmentView {
  int32_t row_begin = 0;
  int32_t rows = 0;
  int32_t position = 0;                 // Of the first row.
  const std::byte* state_in = nullptr;  // Null: nothing was read before (zeros; n-gram ids: end of text).
  std::byte* state_out = nullptr;       // The slot; written at the segment's end.
  const int32_t* pages = nullptr;       // Page ids from position 0.
  const CaptureView* captures = nullptr;
  int32_t captures_count = 0;
};

struct BatchView {
  int32_t rows = 0;  // T
  int32_t segments_count = 0;
  const SegmentView* segments = nullptr;  // In row order, covering [0, T).
  const int32_t* row_segment = nullptr;   // [T]
  const int32_t* row_position = nullptr;  // [T]
  std::byte* pages = nullptr;             // Record of page id i at pages + i * page_bytes.
  int64_t page_bytes = 0;
  // Of a decode step: rows may be computed in the private family of arithmetic, by phase and never by shape. Backends
  // with one family ignore it.
  bool decode = false;
};

// Memory of each thread, for what a kernel keeps while it works on one unit. Aligned to 64 bytes, contents undefined.
struct Workspace {
  std::byte* data = nullptr;
  int64_t bytes_per_thread = 0;
  int64_t threads = 0;      // Of the pool; on a GPU blocks of threads, each with a part of its own.
  int64_t context_max = 0;  // Tokens of the longest sequence that it was made for.
  template <class T>
  T* of(int thread) const {
    return reinterpret_cast<T*>(data + thread * bytes_per_thread);
  }
};

}  // namespace wp::kernels
