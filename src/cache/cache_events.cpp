// Which blocks are usable, kept as a count in each node: of its children that are, and of its own anchor.
#include "cache/cache_events.h"

#include <algorithm>

#include "cache/prefix_cache_impl.h"
#include "core/assert.h"
#include "core/hash.h"

namespace wp {
namespace {

constexpr uint64_t kRootSeed = 0x626c6f636b206861;

}  // namespace

BlockHash block_hash(std::optional<BlockHash> parent, uint64_t domain, std::span<const TokenId> block_tokens) {
  const uint64_t above = parent ? splitmix64(static_cast<uint64_t>(*parent)) : kRootSeed;
  return static_cast<BlockHash>(hash_bytes(block_tokens.data(), block_tokens.size_bytes(), above ^ splitmix64(domain)));
}

// The anchor at `node` was published: the blocks up to the next usable one are usable now.
void PrefixCache::Impl::announce(NodeIndex node) {
  announced.clear();
  for (NodeIndex at = node; at != kNoNode; at = tree[at].parent) {
    if (tree[at].usable++ > 0) break;
    announced.push_back(at);
  }
  std::reverse(announced.begin(), announced.end());
  tell(announced);
}

// The anchor at `node` goes: the blocks above the next surviving one are of no use any more.
void PrefixCache::Impl::withdraw(NodeIndex node) {
  hashes.clear();
  for (NodeIndex at = node; at != kNoNode; at = tree[at].parent) {
    WP_ASSERT(tree[at].usable > 0);
    if (--tree[at].usable > 0) break;
    hashes.push_back(tree[at].block);
  }
  if (listener && !silent && !hashes.empty()) listener->removed(CacheMedium::gpu, hashes);
}

// A path of nodes, from the top.
void PrefixCache::Impl::tell(std::span<const NodeIndex> nodes) {
  if (!listener || silent || nodes.empty()) return;
  hashes.clear();
  block_tokens.clear();
  for (const NodeIndex at : nodes) {
    hashes.push_back(tree[at].block);
    block_tokens.insert(block_tokens.end(), tree[at].tokens, tree[at].tokens + kPageTokens);
  }
  const NodeIndex parent = tree[nodes.front()].parent;
  listener->stored({.medium = CacheMedium::gpu,
                    .domain = tree[nodes.front()].domain,
                    .parent = parent == kNoNode ? std::nullopt : std::optional(tree[parent].block),
                    .hashes = hashes,
                    .tokens = block_tokens});
}

// Each anchor's path below the part that was told before.
void PrefixCache::Impl::tell_all() {
  if (!listener) return;
  std::vector<bool> told(static_cast<size_t>(tree.nodes_end()), false);
  for (const Anchor& anchor : anchors) {
    if (anchor.state != Anchor::State::published) continue;
    announced.clear();
    for (NodeIndex at = anchor.node; at != kNoNode && !told[static_cast<size_t>(at)]; at = tree[at].parent) {
      told[static_cast<size_t>(at)] = true;
      announced.push_back(at);
    }
    std::reverse(announced.begin(), announced.end());
    tell(announced);
  }
}

}  // namespace wp
