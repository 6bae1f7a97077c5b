// Kernels that each break one numerics property of docs/invariants.md, as real ones elsewhere do: a split of K chosen
// by the number of rows, chunks counted from the pass, cached keys merged apart from new ones. Put in place by
// Stream::replace, so that the comparisons which hold the properties are seen to fail. Backends ref and cpu.
#pragma once

#include "device/stand_in.h"

namespace wp::testing {

StandIn split_by_row_count();     // N1, N2: K in two halves in passes of over 64 rows.
StandIn split_by_place();         // N2: K in two halves for rows behind the 32nd of the pass.
StandIn split_by_batch();         // N3: K in two halves from two rows on.
StandIn split_by_threads();       // N4: K in two halves on more than one thread.
StandIn chunks_from_pass();       // N2: the delta rule's state is rounded every 64 rows, counted from the segment.
StandIn cached_keys_apart();      // N2: keys of earlier passes and of this one are summed apart, then merged.
StandIn anchors_of_half_width();  // An anchor's state is rounded to 16 bits.

}  // namespace wp::testing
