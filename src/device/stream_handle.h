// A stream's handle in its vendor's runtime and what was lent to it, for the sources that the vendor's compiler reads:
// it takes few of the headers that device.h includes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wp {

class Stream;

void* stream_handle(const Stream& stream);  // Null on ref and cpu.

// Stream::lend
struct Lent {
  std::byte* data = nullptr;
  int64_t size_bytes = 0;
};
Lent lent_to(const Stream& stream);

}  // namespace wp
