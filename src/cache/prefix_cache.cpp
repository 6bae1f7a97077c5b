#include "cache/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "cache/prefix_cache_impl.h"
#include "core/assert.h"

namespace wp {

char letter(CaptureClass capture_class) { return "STUBAL"[static_cast<size_t>(capture_class)]; }

const char* name(MissReason reason) {
  static constexpr const char* kNames[] = {"bypass",          "none",      "too_short", "model_changed",
                                           "adapter_changed", "salt",      "tier_fail", "incomplete",
                                           "evicted",         "no_anchor", "diverged",  "cold"};
  return kNames[static_cast<size_t>(reason)];
}

const char* name(EvictionReason reason) {
  static constexpr const char* kNames[] = {"superseded", "probation", "ladder", "value", "flush"};
  return kNames[static_cast<size_t>(reason)];
}

const char* name(CaptureRefusal reason) {
  static constexpr const char* kNames[] = {"none_evictable", "worth_less"};
  return kNames[static_cast<size_t>(reason)];
}

std::span<const TokenId> tokens_around(std::span<const TokenId> tokens, int64_t position) {
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t begin = std::clamp<int64_t>(position - kDivergenceTokens, 0, n);
  const int64_t end = std::clamp<int64_t>(position + kDivergenceTokens, begin, n);
  return tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

Lease::Lease(Lease&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), record_(std::exchange(other.record_, nullptr)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  Lease ended(std::move(*this));
  cache_ = std::exchange(other.cache_, nullptr);
  record_ = std::exchange(other.record_, nullptr);
  return *this;
}

Lease::~Lease() {
  if (!cache_) return;
  cache_->impl_->end_lease(*record_);
  cache_->impl_->copy_stats();
}

const Match& Lease::match() const {
  WP_ASSERT(cache_);
  return record_->match;
}

std::span<const PageId> Lease::pages() const {
  WP_ASSERT(cache_);
  return record_->pages;
}

int64_t Lease::shared_tokens() const {
  WP_ASSERT(cache_);
  return static_cast<int64_t>(record_->path.size()) * kPageTokens;
}

void Lease::extend(int64_t tokens_end) {
  WP_ASSERT(cache_);
  if (pages_for(tokens_end) <= static_cast<int64_t>(record_->pages.size())) return;
  cache_->impl_->extend(*record_, tokens_end);
  cache_->impl_->copy_stats();
}

PrefixCache::Impl::Impl(const CacheLimits& cache_limits, Clock& cache_clock, Seed seed)
    : limits(cache_limits),
      clock(cache_clock),
      rng(seed),
      tree(limits.pages, limits.nodes_max, limits.ghosts_max, limits.conversations_max),
      conversations(limits.conversations_max),
      anchors(static_cast<size_t>(limits.anchors)) {
  WP_ASSERT(limits.pages > 0 && limits.anchors >= 0 && limits.page_bytes > 0 && limits.anchor_bytes > 0);
  for (AnchorId id = limits.anchors - 1; id >= 0; --id) free_anchors.push_back(id);  // The lowest is taken first.
  candidates.reserve(anchors.size());
  path.reserve(static_cast<size_t>(limits.pages));
  copy_stats();
}

PrefixCache::PrefixCache(const CacheLimits& limits, Clock& clock, Seed seed)
    : impl_(std::make_unique<Impl>(limits, clock, seed)) {}

PrefixCache::~PrefixCache() { WP_ASSERT(impl_->records.size() == impl_->free_records.size()); }  // Leases end before.

Match PrefixCache::find(const PrefixQuery& query) const { return impl_->decide(query, impl_->path); }

std::optional<Lease> PrefixCache::acquire(const PrefixQuery& query, int64_t tokens_max) {
  const int64_t tokens_count = static_cast<int64_t>(query.tokens.size());
  const int64_t promised = pages_for(std::max(tokens_max, tokens_count));
  LeaseRecord* record = impl_->start_lease(query, impl_->decide(query, impl_->path), promised);
  if (!record) return std::nullopt;
  impl_->copy_stats();
  return Lease(*this, record);
}

bool PrefixCache::could_fit(int64_t tokens_max) const { return pages_for(tokens_max) <= impl_->limits.pages; }

std::optional<AnchorId> PrefixCache::reserve_anchor(Lease& lease, int64_t position, CaptureClass capture_class) {
  WP_ASSERT(lease.cache_ == this);
  const std::optional<AnchorId> anchor = impl_->reserve(*lease.record_, position, capture_class);
  impl_->copy_stats();
  return anchor;
}

void PrefixCache::pin(Lease& lease, int64_t position, int64_t pin_ns) {
  WP_ASSERT(lease.cache_ == this);
  impl_->pin(*lease.record_, position, pin_ns);
  impl_->copy_stats();
}

void PrefixCache::expect_branch(Lease& lease, int64_t position) {
  WP_ASSERT(lease.cache_ == this);
  lease.record_->expected_branches.push_back(position);
}

void PrefixCache::abandon_anchor(AnchorId anchor) {
  impl_->abandon(anchor);
  impl_->copy_stats();
}

bool PrefixCache::publish(Lease& lease, std::span<const TokenId> tokens, int64_t position, AnchorId anchor) {
  WP_ASSERT(lease.cache_ == this);
  const bool published = impl_->publish(*lease.record_, tokens, position, anchor);
  impl_->copy_stats();
  return published;
}

CaptureClass PrefixCache::class_of(AnchorId anchor) const {
  const Anchor& found = impl_->anchors[anchor];
  WP_ASSERT(found.state != Anchor::State::free);
  return found.capture_class;
}

AnchorId PrefixCache::anchor_at(const Lease& lease, int64_t position) const {
  WP_ASSERT(lease.cache_ == this && position > 0 && position % kPageTokens == 0);
  const auto depth = static_cast<size_t>(position / kPageTokens);
  return depth > lease.record_->path.size() ? kNoAnchor : impl_->tree[lease.record_->path[depth - 1]].anchor;
}

void PrefixCache::forget(const PrefixQuery& query) {
  impl_->forget(query);
  impl_->copy_stats();
}

void PrefixCache::hold(std::string_view conversation) {
  impl_->hold(conversation);
  impl_->copy_stats();
}

void PrefixCache::drop_hold(std::string_view conversation) {
  impl_->drop_hold(conversation);
  impl_->copy_stats();
}

int64_t PrefixCache::flush() {
  const int64_t pages_freed = impl_->flush();
  impl_->copy_stats();
  return pages_freed;
}

void PrefixCache::listen(CacheListener* listener) { impl_->listener = listener; }

void PrefixCache::tell_all() { impl_->tell_all(); }

TreeView PrefixCache::view(uint64_t domain) { return impl_->view(domain); }

void PrefixCache::check() const { impl_->check(); }

CacheStats PrefixCache::stats() const {
  const std::lock_guard lock(impl_->stats_mutex);
  return impl_->stats_copy;
}

}  // namespace wp
