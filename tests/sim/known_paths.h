// KnownPaths: how many brought each prefix into a cache domain: the most that a request of it may restore.
#pragma once

#include <span>
#include <unordered_map>

#include "cache/prefix_cache.h"

namespace wp::sim {

class KnownPaths {
 public:
  void set_origin(uint64_t origin) { origin_ = origin; }  // What is known of another is not known.
  void clear() { count_.clear(); }
  void add(uint64_t domain, std::span<const TokenId> tokens) {
    walk(domain, tokens, [&](uint64_t key) { return ++count_[key] > 0; });
  }
  // Tokens from the first on that more than `own` have brought.
  int64_t known(uint64_t domain, std::span<const TokenId> tokens, int64_t own) const {
    return walk(domain, tokens, [&](uint64_t key) {
      const auto at = count_.find(key);
      return at != count_.end() && at->second > own;
    });
  }

 private:
  template <class Visit>
  int64_t walk(uint64_t domain, std::span<const TokenId> tokens, Visit visit) const {
    uint64_t key = splitmix64(splitmix64(origin_) ^ domain);
    size_t end = 0;
    for (; end + kPageTokens <= tokens.size(); end += kPageTokens) {
      for (const TokenId token : tokens.subspan(end, kPageTokens))
        key = splitmix64(key ^ splitmix64(static_cast<uint64_t>(token) + 1));
      if (!visit(key)) break;
    }
    return static_cast<int64_t>(end);
  }
  uint64_t origin_ = 0;
  std::unordered_map<uint64_t, int64_t> count_;
};

}  // namespace wp::sim
