#include "cache/tree_view.h"

#include <algorithm>

#include "cache/prefix_cache_impl.h"

namespace wp {

AnchorView PrefixCache::Impl::view(AnchorId id, int64_t now_ns) {
  constexpr double kMebibyte = 1 << 20;
  Anchor& anchor = anchors[static_cast<size_t>(id)];
  const AnchorId above = measure(anchor).above;
  return {.capture_class = anchor.capture_class,
          .superseded = anchor.superseded,
          .probation = anchor.probation,
          .held = anchor.held_until_ns > now_ns,
          .above = above == kNoAnchor ? 0 : anchors[static_cast<size_t>(above)].position,
          .idle_ns = std::max<int64_t>(0, now_ns - anchor.used_ns),
          .expected_uses = expected_uses(anchor, now_ns),
          .tokens_per_mib = value(anchor, Wanted::anchor, now_ns) * kMebibyte};
}

TreeView PrefixCache::Impl::view(uint64_t domain) {
  struct Branch {
    NodeIndex node;
    int32_t parent;
  };
  TreeView view;
  const int64_t now_ns = clock.now_ns();
  int64_t looked_at = 0;
  std::vector<Branch> branches;
  // The children of `node` that have pages, the newest on top. What has none is a ghost, or leads to one.
  const auto branch = [&](NodeIndex first, int32_t parent) {
    const auto begin = static_cast<ptrdiff_t>(branches.size());
    for (NodeIndex child = first; child != kNoNode && looked_at <= TreeView::kNodesMax;
         child = tree[child].next_sibling, ++looked_at)
      if (tree[child].page != kNoPage) branches.push_back({child, parent});
    std::reverse(branches.begin() + begin, branches.end());
    return static_cast<ptrdiff_t>(branches.size()) - begin;
  };
  branch(tree.first_child(kNoNode, domain), -1);
  while (!branches.empty() && view.runs.size() < TreeView::kRunsMax && looked_at <= TreeView::kNodesMax) {
    const Branch top = branches.back();
    branches.pop_back();
    const auto index = static_cast<int32_t>(view.runs.size());
    NodeIndex at = top.node;
    TreeRun run{.parent = top.parent, .begin = tree[at].end - kPageTokens};
    while (branch(tree[at].first_child, index) == 1 && tree[at].anchor == kNoAnchor &&
           looked_at <= TreeView::kNodesMax) {
      at = branches.back().node;
      branches.pop_back();
    }
    run.end = tree[at].end;
    run.readers = tree[at].holders;
    if (tree[at].anchor != kNoAnchor) run.anchor = this->view(tree[at].anchor, now_ns);
    view.runs.push_back(run);
  }
  view.whole = branches.empty() && looked_at <= TreeView::kNodesMax;
  return view;
}

}  // namespace wp
