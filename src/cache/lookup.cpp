// The restore decision (prefix_cache.md 8) and the reason for what was not restored (15.2). Nothing here changes the
// cache, and nothing outside the request's domain is looked at, not even to explain.
#include <algorithm>
#include <cstring>

#include "cache/prefix_cache_impl.h"
#include "core/assert.h"
#include "core/cat.h"

namespace wp {
namespace {

// Children compared to find the nearest: a bound, since a system prompt may have thousands.
constexpr int kChildrenCompared = 64;

int64_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto [end, unused] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return end - a.begin();
}

}  // namespace

AnchorId PrefixCache::Impl::deepest_usable(const std::vector<NodeIndex>& path, int64_t position_max) const {
  for (auto index = path.rbegin(); index != path.rend(); ++index) {
    const Node& node = tree[*index];
    if (node.anchor == kNoAnchor || node.end > position_max) continue;  // A node with an anchor has all pages below it.
    WP_ASSERT(node.page != kNoPage && anchors[node.anchor].position == node.end);  // C4
    return node.anchor;
  }
  return kNoAnchor;
}

Match PrefixCache::Impl::decide(const PrefixQuery& query, std::vector<NodeIndex>& path) const {
  Match match;
  path.clear();
  if (query.bypass) {
    match.reason = MissReason::bypass;
    match.detail = cat("bypass=", query.bypass);
    return match;
  }
  tree.walk(query.tokens, query.domain, path);
  const int64_t tokens_count = static_cast<int64_t>(query.tokens.size());
  match.match = static_cast<int64_t>(path.size()) * kPageTokens;
  // Below n: a state at n cannot give the logits of token n - 1.
  match.anchor = deepest_usable(path, tokens_count - (query.prefix_only ? 0 : 1));
  if (match.anchor != kNoAnchor) {
    match.anchor_position = anchors[match.anchor].position;
    match.anchor_class = anchors[match.anchor].capture_class;
  }
  explain(query, path, match);
  // A branch is where known tokens go on in another way; where they end, the next tail will do.
  if (match.diverged_at >= 0 && match.match > match.anchor_position && tokens_count >= kCapturePromptTokensMin)
    match.branch_position = match.match;
  return match;
}

void PrefixCache::Impl::explain(const PrefixQuery& query, const std::vector<NodeIndex>& path, Match& match) const {
  const int64_t tokens_count = static_cast<int64_t>(query.tokens.size());
  const int64_t gap = match.match - match.anchor_position;
  const bool continues = query.continues || conversations.find(query.domain, query.conversation) != nullptr;
  const bool diverged = find_divergence(query, path, match) && continues;

  if (match.match >= kPageTokens && gap <= kGapTokensMax && !diverged) {
    match.reason = MissReason::none;
  } else if (tokens_count <= kPageTokens || (tokens_count < kCapturePromptTokensMin && match.match == 0)) {
    match.reason = MissReason::too_short;
    match.detail = cat("n=", tokens_count);
  } else if (query.domain != 0 && match.match == 0 && !tree.domain_known(query.domain)) {
    match.reason = MissReason::salt;
  } else {
    // More lost above the match than below it: the tokens are to blame, not the cache.
    const bool tokens_first = diverged && tokens_count - match.match > gap;
    if (tokens_first || !explain_lost_state(query, path, match)) {
      match.reason = diverged ? MissReason::diverged : MissReason::cold;
      if (diverged) match.detail = cat("at=", match.diverged_at);
    }
  }
}

bool PrefixCache::Impl::explain_lost_state(const PrefixQuery& query, const std::vector<NodeIndex>& path,
                                           Match& match) const {
  const int64_t tokens_count = static_cast<int64_t>(query.tokens.size());
  if (const int64_t pending = pending_on_path(query, match.anchor_position); pending > 0) {
    match.reason = MissReason::incomplete;
    match.detail = cat("pending=", pending);
    return true;
  }
  for (auto index = path.rbegin(); index != path.rend(); ++index) {
    const Node& node = tree[*index];
    if (node.end <= match.anchor_position) break;
    if (!node.ghost || node.end >= tokens_count) continue;
    match.reason = MissReason::evicted;
    match.detail = cat("age_s=", (clock.now_ns() - node.ghost_seen_ns) / 1'000'000'000);
    return true;
  }
  if (match.match < kPageTokens || match.match - match.anchor_position <= kGapTokensMax) return false;
  match.reason = MissReason::no_anchor;
  match.detail = cat("match=", match.match);
  return true;
}

int64_t PrefixCache::Impl::pending_on_path(const PrefixQuery& query, int64_t above) const {
  int64_t deepest = 0;
  for (const Anchor& anchor : anchors)
    if (anchor.state == Anchor::State::pending && anchor.position > std::max(above, deepest) &&
        anchor.position < static_cast<int64_t>(query.tokens.size()) && anchor.record->domain == query.domain &&
        same_prefix(query.tokens, anchor.record->tokens, anchor.position))
      deepest = anchor.position;
  return deepest;
}

bool same_prefix(std::span<const TokenId> a, std::span<const TokenId> b, int64_t tokens_count) {
  const size_t count = static_cast<size_t>(tokens_count);
  if (a.size() < count || b.size() < count) return false;
  // The last page first: prompts that share a system block differ there.
  const size_t last = count - std::min<size_t>(count, kPageTokens);
  return std::memcmp(a.data() + last, b.data() + last, (count - last) * sizeof(TokenId)) == 0 &&
         std::memcmp(a.data(), b.data(), last * sizeof(TokenId)) == 0;
}

NodeIndex PrefixCache::Impl::child_towards_tail(const PrefixQuery& query, const std::vector<NodeIndex>& path) const {
  const Conversation* conversation = conversations.find(query.domain, query.conversation);
  if (!conversation || conversation->tail == kNoAnchor) return kNoNode;
  const NodeIndex parent = path.empty() ? kNoNode : path.back();
  const int64_t child_end = static_cast<int64_t>(path.size() + 1) * kPageTokens;
  NodeIndex at = anchors[conversation->tail].node;
  while (at != kNoNode && tree[at].end > child_end) at = tree[at].parent;
  return at != kNoNode && tree[at].end == child_end && tree[at].parent == parent ? at : kNoNode;
}

NodeIndex PrefixCache::Impl::nearest_child(const PrefixQuery& query, const std::vector<NodeIndex>& path,
                                           int64_t& common) const {
  const std::span<const TokenId> rest = query.tokens.subspan(path.size() * kPageTokens);
  // The request's own conversation is the nearest among equals, and near even where no token agrees.
  NodeIndex nearest = child_towards_tail(query, path);
  common = nearest == kNoNode ? (path.empty() ? 0 : -1) : common_prefix(rest, tree[nearest].tokens);
  NodeIndex child = tree.first_child(path.empty() ? kNoNode : path.back(), query.domain);
  for (int compared = 0; child != kNoNode && compared < kChildrenCompared; ++compared) {
    const int64_t tokens_common = common_prefix(rest, tree[child].tokens);
    if (tokens_common > common) {
      nearest = child;
      common = tokens_common;
    }
    child = tree[child].next_sibling;
  }
  return nearest;
}

bool PrefixCache::Impl::find_divergence(const PrefixQuery& query, const std::vector<NodeIndex>& path,
                                        Match& match) const {
  if (static_cast<int64_t>(query.tokens.size()) == match.match) return false;  // All of it is known.
  int64_t common = 0;
  NodeIndex at = nearest_child(query, path, common);
  if (at == kNoNode || match.match + common == static_cast<int64_t>(query.tokens.size())) return false;

  match.diverged_at = match.match + common;
  if (const Conversation* conversation = conversations.find(tree[at].conversation)) match.nearest = conversation->label;
  const int64_t before = std::min(kDivergenceTokens, match.diverged_at);
  const auto shared =
      query.tokens.subspan(static_cast<size_t>(match.diverged_at - before), static_cast<size_t>(before));
  match.had.assign(shared.begin(), shared.end());
  int64_t missing = kDivergenceTokens;
  for (int64_t from = common; at != kNoNode && missing > 0; at = tree[at].first_child, from = 0)
    for (; from < kPageTokens && missing > 0; ++from, --missing) match.had.push_back(tree[at].tokens[from]);
  return true;
}

}  // namespace wp
