// BlockIndex: what a router makes of cache events: for each medium the blocks that could be restored, by hash, with all
// tokens up to each. Believes nothing: what cannot follow from what came before is a fault. Test programs only.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "cache/cache_events.h"
#include "core/cat.h"
#include "core/hash.h"
#include "testing/cache_reference.h"

namespace wp::testing {

class BlockIndex final : public CacheListener {
 public:
  // Prefixes under the extra key of their domain; "": none.
  using Prefixes = std::set<std::pair<std::string, Tokens>>;

  void stored(const StoredBlocks& blocks) override {
    store(static_cast<int>(blocks.medium), blocks.domain == 0 ? "" : hex(blocks.domain), blocks.parent, blocks.hashes,
          blocks.tokens);
  }
  void removed(CacheMedium medium, std::span<const BlockHash> hashes) override {
    remove(static_cast<int>(medium), hashes);
  }
  void cleared() override {
    for (auto& blocks : blocks_) blocks.clear();
  }

  void store(int medium, const std::string& extra, std::optional<BlockHash> parent, std::span<const BlockHash> hashes,
             std::span<const TokenId> tokens) {
    auto& blocks = blocks_[static_cast<size_t>(medium)];
    if (hashes.empty() || tokens.size() != hashes.size() * kPageTokens) return fail("blocks of another size");
    for (size_t i = 0; i < hashes.size(); ++i) {
      Block block{.parent = parent, .extra = extra, .prefix = {}};
      if (parent) {
        const auto above = blocks.find(*parent);
        if (above == blocks.end()) return fail("a block whose parent is not there");
        if (above->second.extra != extra) return fail("a block whose parent is of another domain");
        ++above->second.children;
        block.prefix = above->second.prefix;
      }
      const auto page = tokens.subspan(i * kPageTokens, kPageTokens);
      block.prefix.insert(block.prefix.end(), page.begin(), page.end());
      const uint64_t domain = extra.empty() ? 0 : std::stoull(extra, nullptr, 16);
      if (hashes[i] != block_hash(parent, domain, page)) return fail("a hash that does not follow from its tokens");
      if (!blocks.emplace(hashes[i], std::move(block)).second) return fail("a block that is there already");
      parent = hashes[i];
    }
  }

  void remove(int medium, std::span<const BlockHash> hashes) {
    auto& blocks = blocks_[static_cast<size_t>(medium)];
    for (const BlockHash hash : hashes) {
      const auto found = blocks.find(hash);
      if (found == blocks.end()) return fail("a block went that was not there");
      if (found->second.children > 0) return fail("a block went before its children");
      if (found->second.parent) --blocks.at(*found->second.parent).children;
      blocks.erase(found);
    }
  }

  Prefixes prefixes(CacheMedium medium) const {
    Prefixes found;
    for (const auto& [hash, block] : blocks_[static_cast<size_t>(medium)]) found.emplace(block.extra, block.prefix);
    return found;
  }
  // What the cache's reference model says could be restored, in the same form.
  static Prefixes expected(const CacheReference& reference, const std::set<uint64_t>& domains) {
    Prefixes found;
    for (const uint64_t domain : domains)
      for (const Tokens& prefix : reference.usable(domain)) found.emplace(domain == 0 ? "" : hex(domain), prefix);
    return found;
  }

  void fail(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
  }
  const std::string& fault() const { return fault_; }  // The first; empty: none.

 private:
  struct Block {
    std::optional<BlockHash> parent;
    std::string extra;
    Tokens prefix;
    int children = 0;
  };
  std::map<BlockHash, Block> blocks_[kCacheMedia];
  std::string fault_;
};

}  // namespace wp::testing
