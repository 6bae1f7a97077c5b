// What a router may know of the cache: which blocks of 64 tokens a request could restore, as they come and go
// (prefix_cache.md 16). Plain data; how it travels is the listener's business. A block is usable as long as an anchor
// lies at its end or deeper on its path: nothing else is told, since it could not be restored.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cache/prefix_cache.h"

namespace wp {

enum class CacheMedium : uint8_t { gpu, cpu, disk };  // The device's pools, host memory, the disk.
constexpr int kCacheMedia = 3;

// Names a block by all tokens from position 0 and by its cache domain. Equal in every process.
using BlockHash = int64_t;
BlockHash block_hash(std::optional<BlockHash> parent, uint64_t domain, std::span<const TokenId> block_tokens);

// A run of blocks, each the child of the one before.
struct StoredBlocks {
  CacheMedium medium = CacheMedium::gpu;
  uint64_t domain = 0;              // 0: that of requests without a salt. Others match within their own alone.
  std::optional<BlockHash> parent;  // None: the run begins at position 0.
  std::span<const BlockHash> hashes;
  std::span<const TokenId> tokens;  // 64 for each.
};

// Called by the cache's one thread, which must not wait. The spans end with the call.
class CacheListener {
 public:
  virtual ~CacheListener() = default;
  virtual void stored(const StoredBlocks& blocks) = 0;                              // Now usable. Their parent is.
  virtual void removed(CacheMedium medium, std::span<const BlockHash> hashes) = 0;  // Deepest first.
  // Forget all; what is usable follows, as stored().
  virtual void cleared() = 0;
  // Something was lost on the way: cleared() and all that is usable are asked for. True once for each loss.
  virtual bool wants_all() { return false; }
};

}  // namespace wp
