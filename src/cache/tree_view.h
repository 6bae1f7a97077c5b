// TreeView: a bounded copy of what the tree of one cache domain holds, for people to look at: runs of nodes, and at
// their ends the anchors with what each is worth. Token ids are not in it. Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/prefix_cache.h"

namespace wp {

struct AnchorView {
  CaptureClass capture_class = CaptureClass::tail;
  bool superseded = false;  // First to go.
  bool probation = false;
  bool held = false;          // By a tool call or a client's wish.
  int64_t above = 0;          // Position of the next anchor above it; 0: there is none.
  int64_t idle_ns = 0;        // Since it was published or last restored.
  double expected_uses = 0;   // By its class, its age and its conversation's pace: what the order of eviction goes by.
  double tokens_per_mib = 0;  // Expected to be saved, by what its end would free.
};

// Nodes in a row: no anchor and no branch but at its end.
struct TreeRun {
  int32_t parent = -1;  // In TreeView::runs, before this one; -1: it begins at 0.
  int64_t begin = 0, end = 0;
  int32_t readers = 0;  // Leases that hold its last node.
  std::optional<AnchorView> anchor;
};

struct TreeView {
  static constexpr size_t kRunsMax = 512;
  static constexpr int64_t kNodesMax = 8192;  // That are looked at: well below a millisecond.
  std::vector<TreeRun> runs;                  // A parent before its children, the newest branch first.
  bool whole = true;                          // false: a limit was met, and there is more.
};

}  // namespace wp
