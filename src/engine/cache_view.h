// CacheViewOrder: somebody asks for a look at the tree of a cache domain, and the engine thread answers between two
// passes. The asking thread waits no longer than it says.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cache/tree_view.h"

namespace wp {

struct CacheView {
  TreeView tree;
  std::vector<int64_t> saved_ns;  // Of each run: the prefill that its anchor alone saves, as the scheduler expects it.
};

class CacheViewOrder {
 public:
  explicit CacheViewOrder(uint64_t domain) : domain(domain) {}

  // Null: the engine was busy with a pass for all that time, or too many ask.
  std::shared_ptr<const CacheView> wait_within(int64_t timeout_ns);
  void give(std::shared_ptr<const CacheView> view);  // Engine thread; null: refused.

  const uint64_t domain;

 private:
  std::mutex mutex_;
  std::condition_variable given_;
  bool done_ = false;
  std::shared_ptr<const CacheView> view_;
};

}  // namespace wp
