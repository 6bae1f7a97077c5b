#include "testing/cache_reference.h"

#include <algorithm>

#include "core/cat.h"

namespace wp::testing {
namespace {

bool of_one_conversation(CaptureClass capture_class) {
  return capture_class == CaptureClass::tail || capture_class == CaptureClass::user ||
         capture_class == CaptureClass::assistant;
}

std::span<const TokenId> prefix(std::span<const TokenId> tokens, int64_t count) {
  return tokens.first(static_cast<size_t>(count));
}

}  // namespace

std::string ReferenceMatch::text() const {
  return cat("match=", match, " anchor=", anchor_position, " id=", anchor, " reason=", name(reason),
             " diverged_at=", diverged_at, " branch=", branch_position);
}

ReferenceMatch comparable(const Match& match) {
  return {.match = match.match,
          .anchor_position = match.anchor_position,
          .anchor = match.anchor,
          .reason = match.reason,
          .diverged_at = match.diverged_at,
          .branch_position = match.branch_position};
}

int64_t CacheReference::agreeing(std::span<const TokenId> a, std::span<const TokenId> b) {
  size_t count = 0;
  while (count < a.size() && count < b.size() && a[count] == b[count]) ++count;
  return static_cast<int64_t>(count);
}

std::vector<CacheReference::Path> CacheReference::known_paths(uint64_t domain) const {
  std::vector<Path> paths;
  const auto add = [&](const Path& path, int64_t count) {
    if (path.domain == domain && count > 0)
      paths.push_back({domain, Tokens(path.tokens.begin(), path.tokens.begin() + count)});
  };
  for (const auto& [id, anchor] : anchors_) add(anchor.path, static_cast<int64_t>(anchor.path.tokens.size()));
  for (const AnchorState& ghost : ghosts_) add(ghost.path, static_cast<int64_t>(ghost.path.tokens.size()));
  for (const auto& [id, lease] : leases_) add(lease.prompt, lease.held_tokens);
  return paths;
}

std::set<Tokens> CacheReference::usable(uint64_t domain) const {
  std::set<Tokens> prefixes;
  for (const auto& [id, anchor] : anchors_)
    for (size_t end = anchor.path.tokens.size(); anchor.path.domain == domain && end > 0; end -= kPageTokens)
      prefixes.insert(Tokens(anchor.path.tokens.begin(), anchor.path.tokens.begin() + static_cast<ptrdiff_t>(end)));
  return prefixes;
}

const CacheReference::Conversation* CacheReference::conversation(uint64_t domain, std::string_view label) const {
  for (const Conversation& known : conversations_)
    if (!label.empty() && known.domain == domain && known.label == label) return &known;
  return nullptr;
}

// First token that differs from the nearest known path that goes on behind the match; -1: none does, or none is near.
int64_t CacheReference::divergence(const PrefixQuery& query, int64_t match) const {
  const int64_t tokens_count = static_cast<int64_t>(query.tokens.size());
  int64_t nearest = -1;
  const auto consider = [&](const Path& path, bool near_anyway) {
    const int64_t agree = agreeing(path.tokens, query.tokens);
    if (agree < match || static_cast<int64_t>(path.tokens.size()) <= match) return;
    // At the very beginning something must agree for a path to be near, unless it is the conversation's own.
    if (agree == 0 && !near_anyway) return;
    nearest = std::max(nearest, agree);
  };
  for (const Path& path : known_paths(query.domain)) consider(path, false);
  if (const Conversation* own = conversation(query.domain, query.conversation); own && own->tail != kNoAnchor)
    consider(anchors_.at(own->tail).path, true);
  return nearest == tokens_count ? -1 : nearest;
}

MissReason CacheReference::reason(const PrefixQuery& query, const ReferenceMatch& found, bool diverged) const {
  const int64_t tokens_count = static_cast<int64_t>(query.tokens.size());
  const int64_t gap = found.match - found.anchor_position;
  if (found.match >= 64 && gap <= 128 && !diverged) return MissReason::none;
  if (tokens_count <= 64 || (tokens_count < 256 && found.match == 0)) return MissReason::too_short;
  if (query.domain != 0 && found.match == 0 &&
      std::find(domains_.begin(), domains_.end(), query.domain) == domains_.end())
    return MissReason::salt;
  if (diverged && tokens_count - found.match > gap) return MissReason::diverged;
  for (const auto& [id, pending] : pending_) {
    const LeaseState& lease = leases_.at(pending.lease);
    if (lease.prompt.domain == query.domain && pending.position > found.anchor_position &&
        pending.position < tokens_count && agreeing(lease.prompt.tokens, query.tokens) >= pending.position)
      return MissReason::incomplete;
  }
  for (const AnchorState& ghost : ghosts_) {
    const int64_t position = static_cast<int64_t>(ghost.path.tokens.size());
    if (ghost.path.domain == query.domain && position > found.anchor_position && position < tokens_count &&
        agreeing(ghost.path.tokens, query.tokens) == position)
      return MissReason::evicted;
  }
  if (found.match >= 64 && gap > 128) return MissReason::no_anchor;
  return diverged ? MissReason::diverged : MissReason::cold;
}

ReferenceMatch CacheReference::find(const PrefixQuery& query) const {
  ReferenceMatch found;
  if (query.bypass) {
    found.reason = MissReason::bypass;
    return found;
  }
  const int64_t tokens_count = static_cast<int64_t>(query.tokens.size());
  for (const Path& path : known_paths(query.domain))
    found.match = std::max(found.match, agreeing(path.tokens, query.tokens) / 64 * 64);
  for (const auto& [id, anchor] : anchors_) {
    const int64_t position = static_cast<int64_t>(anchor.path.tokens.size());
    if (anchor.path.domain != query.domain || position >= tokens_count || position <= found.anchor_position) continue;
    if (agreeing(anchor.path.tokens, query.tokens) < position) continue;
    found.anchor_position = position;
    found.anchor = id;
  }
  found.diverged_at = divergence(query, found.match);
  const bool continues = query.continues || conversation(query.domain, query.conversation);
  found.reason = reason(query, found, continues && found.diverged_at >= 0);
  if (found.diverged_at >= 0 && found.match > found.anchor_position && tokens_count >= 256)
    found.branch_position = found.match;
  return found;
}

void CacheReference::acquired(LeaseId id, const PrefixQuery& query) {
  const ReferenceMatch found = find(query);
  LeaseState& lease = leases_[id];
  lease.prompt = {query.domain, Tokens(query.tokens.begin(), query.tokens.end())};
  lease.held_tokens = found.anchor_position;
  lease.bypass = query.bypass != nullptr;
  if (lease.bypass) return;
  // Ghosts on the way are seen, the deepest last.
  std::vector<AnchorState> seen;
  std::erase_if(ghosts_, [&](const AnchorState& ghost) {
    const bool walked = ghost.path.domain == query.domain && ghost.path.tokens.size() <= query.tokens.size() &&
                        agreeing(ghost.path.tokens, query.tokens) == static_cast<int64_t>(ghost.path.tokens.size());
    if (walked) seen.push_back(ghost);
    return walked;
  });
  std::sort(seen.begin(), seen.end(),
            [](const AnchorState& a, const AnchorState& b) { return a.path.tokens.size() < b.path.tokens.size(); });
  ghosts_.insert(ghosts_.end(), seen.begin(), seen.end());
  if (std::find(domains_.begin(), domains_.end(), query.domain) == domains_.end()) domains_.push_back(query.domain);

  if (!query.conversation.empty()) {
    Conversation own{.id = 0, .domain = query.domain, .label = std::string(query.conversation)};
    if (const Conversation* known = conversation(query.domain, query.conversation)) own = *known;
    else own.id = ++newest_conversation_;
    std::erase_if(conversations_, [&](const Conversation& other) { return other.id == own.id; });
    if (static_cast<int32_t>(conversations_.size()) == limits_.conversations_max)
      conversations_.erase(conversations_.begin());
    conversations_.push_back(own);
    lease.conversation = own.id;
  } else if (found.anchor != kNoAnchor && of_one_conversation(anchors_.at(found.anchor).capture_class)) {
    lease.conversation = anchors_.at(found.anchor).conversation;
  }
}

void CacheReference::reserved(LeaseId lease, int64_t position, AnchorId anchor, CaptureClass capture_class) {
  pending_[anchor] = {lease, position, capture_class};
}

void CacheReference::published(LeaseId id, AnchorId anchor, int64_t position, bool in_tree) {
  LeaseState& lease = leases_.at(id);
  lease.held_tokens = std::max(lease.held_tokens, position);
  const CaptureClass capture_class = pending_.at(anchor).capture_class;
  pending_.erase(anchor);
  if (!in_tree) return;
  const auto tokens = prefix(lease.prompt.tokens, position);
  const Path path{lease.prompt.domain, Tokens(tokens.begin(), tokens.end())};
  anchors_[anchor] = {path, capture_class, lease.conversation};
  std::erase_if(ghosts_, [&](const AnchorState& ghost) {
    return ghost.path.domain == path.domain && ghost.path.tokens == path.tokens;
  });
  if (capture_class != CaptureClass::tail && capture_class != CaptureClass::assistant) return;
  for (Conversation& known : conversations_)
    if (known.id == lease.conversation) known.tail = anchor;
}

void CacheReference::evicted(AnchorId anchor) {
  if (limits_.ghosts_max > 0) {
    if (static_cast<int32_t>(ghosts_.size()) == limits_.ghosts_max) ghosts_.erase(ghosts_.begin());
    ghosts_.push_back(anchors_.at(anchor));
  }
  anchors_.erase(anchor);
  for (Conversation& known : conversations_)
    if (known.tail == anchor) known.tail = kNoAnchor;
}

void CacheReference::ended(LeaseId lease) {
  leases_.erase(lease);
  std::erase_if(pending_, [&](const auto& entry) { return entry.second.lease == lease; });
}

void CacheReference::flushed() {
  ghosts_.clear();
  conversations_.clear();
}

}  // namespace wp::testing
