// A stream's handle in its vendor's runtime, for the sources that the vendor's compiler reads: it takes few of the
// headers that device.h includes.
#pragma once

namespace wp {

class Stream;

void* stream_handle(const Stream& stream);  // Null on ref and cpu.

}  // namespace wp
