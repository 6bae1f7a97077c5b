#include "engine/spill.h"

#include <utility>
#include <vector>

namespace wp {
namespace {

constexpr int64_t kReadNsMax = 10'000'000'000;  // A disk that has not answered by then has stalled.

}  // namespace

void Spill::published(const Lease& lease, std::span<const TokenId> covered, uint64_t domain, AnchorId anchor) {
  if (!tier_) return;
  uint64_t key = tier_->root();
  const auto position = static_cast<int64_t>(covered.size());
  for (int64_t begin = 0; begin < position; begin += kPageTokens) {
    const auto tokens = covered.subspan(static_cast<size_t>(begin), kPageTokens);
    const int64_t end = begin + kPageTokens;
    const uint64_t parent = std::exchange(key, node_key(key, domain, tokens));
    if (!tier_->has(PartKind::page, key)) {
      std::vector<std::byte> bytes(static_cast<size_t>(step_.page_bytes()));
      step_.save_page(lease.pages()[static_cast<size_t>(begin / kPageTokens)], bytes.data());
      tier_->put(PartKind::page, domain, parent, end, tokens, CaptureClass::tail, std::move(bytes));
    }
    if (end == position && !tier_->has(PartKind::anchor, key)) {
      std::vector<std::byte> bytes(static_cast<size_t>(step_.anchor_bytes()));
      step_.save_anchor(anchor, bytes.data());
      tier_->put(PartKind::anchor, domain, parent, end, tokens, cache_.class_of(anchor), std::move(bytes));
    }
  }
}

bool Spill::waits(Sequence& sequence, const PrefixQuery& query) {
  if (!tier_ || query.bypass) return false;
  if (!sequence.asked_tier) {
    sequence.asked_tier = true;
    const int64_t cached = cache_.find(query).anchor_position;
    const std::weak_ptr<Doorbell> bell = bell_;
    sequence.load = tier_->load(query.tokens, query.domain, cached, static_cast<int64_t>(query.tokens.size()), [bell] {
      if (const auto still = bell.lock()) still->ring();
    });
    sequence.load_begun_ns = clock_.now_ns();
    if (sequence.load) ++reading_;
  }
  if (!sequence.load) return false;
  const bool done = sequence.load->done.load(std::memory_order_acquire);
  if (!done && clock_.now_ns() - sequence.load_begun_ns < kReadNsMax) return true;
  if (!done) tier_->give_up(*sequence.load);
  if (done && sequence.load->good) restore(*sequence.load, query, sequence);
  else sequence.tier_failed = true;
  forget(sequence);
  return false;
}

void Spill::forget(Sequence& sequence) {
  if (!std::exchange(sequence.load, nullptr)) return;
  --reading_;
}

// As a request that computes nothing: what it would have written into its pages and its anchor comes from the disk.
void Spill::restore(const DiskLoad& load, const PrefixQuery& query, Sequence& sequence) {
  PrefixQuery own = query;
  own.prefix_only = true;  // No lookup to be counted.
  std::optional<Lease> lease = cache_.acquire(own, static_cast<int64_t>(query.tokens.size()));
  if (!lease || lease->shared_tokens() < load.begin || lease->match().anchor_position >= load.end) return;
  lease->extend(load.end);
  cache_.expect_branch(*lease, load.end);  // The request waits for just this one.
  const std::optional<AnchorId> anchor = cache_.reserve_anchor(*lease, load.end, load.capture_class);
  if (!anchor) return;
  for (int64_t begin = lease->shared_tokens(); begin < load.end; begin += kPageTokens)
    step_.load_page(lease->pages()[static_cast<size_t>(begin / kPageTokens)],
                    load.pages[static_cast<size_t>((begin - load.begin) / kPageTokens)].data());
  step_.load_anchor(*anchor, load.anchor.data());
  const auto covered = query.tokens.first(static_cast<size_t>(load.end));
  if (!cache_.publish(*lease, covered, load.end, *anchor)) return;
  ++restored_;
  sequence.restored_from_disk = load.end;
  sequence.load_ns = clock_.now_ns() - sequence.load_begun_ns;
}

}  // namespace wp
