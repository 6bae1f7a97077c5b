// A clock that stands until it is moved, and the door through which tests reach the cache's innards: to break them on
// purpose, and to see what a caller cannot. Test programs only.
#pragma once

#include <cstdint>

#include "cache/prefix_cache.h"
#include "cache/prefix_cache_impl.h"
#include "core/clock.h"

namespace wp {

struct PrefixCachePeer {
  static auto& impl(PrefixCache& cache) { return *cache.impl_; }
  static auto& nodes(TokenTree& tree) { return tree.nodes_; }
  static void make_all_keys_collide(PrefixCache& cache) { cache.impl_->tree.hash_mask_ = 0; }
};

}  // namespace wp

namespace wp::testing {

class ManualClock : public Clock {
 public:
  int64_t now_ns() override { return now_ns_; }
  void advance_ns(int64_t by_ns) { now_ns_ += by_ns; }

 private:
  int64_t now_ns_ = 1;
};

}  // namespace wp::testing
