#include "engine/spill.h"

#include <utility>
#include <vector>

namespace wp {
namespace {

constexpr int64_t kReadNsMax = 10'000'000'000;  // A disk that has not answered by then has stalled.

PageId page_of(const Lease& lease, int64_t end) { return lease.pages()[static_cast<size_t>(end / kPageTokens - 1)]; }

}  // namespace

void Spill::published(const Lease& lease, std::span<const TokenId> covered, uint64_t domain, AnchorId anchor) {
  keep_in_ram(lease, covered, domain, anchor);
  if (disk_) keep_on_disk(lease, covered, domain, anchor);
}

// The anchor first, then the pages from the deepest up: each is put below something that is wanted, so that none is
// given up as a page that no anchor needs while the rest are on their way.
void Spill::keep_on_disk(const Lease& lease, std::span<const TokenId> covered, uint64_t domain, AnchorId anchor) {
  const std::vector<uint64_t> keys = path_keys(disk_->root(), domain, covered);
  const auto page_tokens = [&](size_t at) { return covered.subspan(at * kPageTokens, kPageTokens); };
  const size_t count = covered.size() / kPageTokens;
  const auto put = [&](PartKind kind, size_t at, const std::byte* from, int64_t size_bytes, CaptureClass of) {
    if (disk_->has(kind, keys[at + 1])) return;
    std::vector<std::byte> bytes(static_cast<size_t>(size_bytes));
    step_.copy(bytes.data(), from, size_bytes);
    disk_->put(kind, domain, keys[at], static_cast<int64_t>(at + 1) * kPageTokens, page_tokens(at), of,
               std::move(bytes));
  };
  put(PartKind::anchor, count - 1, step_.anchor(anchor), step_.anchor_bytes(), cache_.class_of(anchor));
  for (size_t at = count; at-- > 0;)
    put(PartKind::page, at, step_.page(lease.pages()[at]), step_.page_bytes(), CaptureClass::tail);
}

void Spill::keep_in_ram(const Lease& lease, std::span<const TokenId> covered, uint64_t domain, AnchorId anchor) {
  if (!ram_) return;
  ram_->put_path(covered, domain, cache_.class_of(anchor),
                 [&](PartKind kind, int64_t end, std::byte* bytes, int64_t offset, int64_t count) {
                   const std::byte* from =
                       kind == PartKind::page ? step_.page(page_of(lease, end)) : step_.anchor(anchor);
                   step_.copy(bytes, from + offset, count);
                 });
}

bool Spill::waits(Sequence& sequence, const PrefixQuery& query) {
  if ((!ram_ && !disk_) || query.bypass) return false;
  if (!std::exchange(sequence.asked_tiers, true)) {
    if (ram_) from_ram(sequence, query);
    if (disk_) begin_reading(sequence, query);
  }
  if (!sequence.load) return false;
  const bool done = sequence.load->done.load(std::memory_order_acquire);
  if (!done && clock_.now_ns() - sequence.load_begun_ns < kReadNsMax) return true;
  if (!done) disk_->give_up(*sequence.load);
  if (done && sequence.load->good) from_disk(sequence, query);
  else failed(sequence, Tier::disk, done ? sequence.load->end : sequence.prompt);
  forget(sequence);
  return false;
}

void Spill::forget(Sequence& sequence) {
  if (!std::exchange(sequence.load, nullptr)) return;
  --reading_;
}

void Spill::failed(Sequence& sequence, Tier tier, int64_t position) {
  sequence.failed_tier = tier;
  sequence.failed_position = std::max(sequence.failed_position, position);
}

// The deepest that host memory has; where that turns out to be damaged, the next.
void Spill::from_ram(Sequence& sequence, const PrefixQuery& query) {
  while (true) {
    const int64_t begun_ns = clock_.now_ns();
    const int64_t cached = cache_.find(query).anchor_position;
    const RamTier::Anchor kept =
        ram_->deepest(query.tokens, query.domain, cached, static_cast<int64_t>(query.tokens.size()));
    if (kept.end == 0) return;
    const Outcome outcome =
        restore(query, cached, kept.end, kept.capture_class, [&](const Lease& lease, AnchorId anchor) {
          return ram_->get_path(query.tokens, query.domain, lease.shared_tokens(), kept.end,
                                [&](PartKind kind, int64_t end, std::byte* bytes, int64_t offset, int64_t count) {
                                  std::byte* to =
                                      kind == PartKind::page ? step_.page(page_of(lease, end)) : step_.anchor(anchor);
                                  step_.copy(to + offset, bytes, count);
                                });
        });
    if (outcome == Outcome::damaged) {
      failed(sequence, Tier::ram, kept.end);
      continue;
    }
    if (outcome == Outcome::no_room) return;
    ++restored_ram_;
    sequence.tier = Tier::ram;
    sequence.tier_position = kept.end;
    sequence.load_ns = clock_.now_ns() - begun_ns;
    return;
  }
}

void Spill::begin_reading(Sequence& sequence, const PrefixQuery& query) {
  const int64_t cached = cache_.find(query).anchor_position;
  const std::weak_ptr<Doorbell> bell = bell_;
  sequence.load = disk_->load(query.tokens, query.domain, cached, static_cast<int64_t>(query.tokens.size()), [bell] {
    if (const auto still = bell.lock()) still->ring();
  });
  sequence.load_begun_ns = clock_.now_ns();
  if (sequence.load) ++reading_;
}

void Spill::from_disk(Sequence& sequence, const PrefixQuery& query) {
  const DiskLoad& load = *sequence.load;
  const Outcome outcome =
      restore(query, load.begin, load.end, load.capture_class, [&](const Lease& lease, AnchorId anchor) {
        for (int64_t end = lease.shared_tokens() + kPageTokens; end <= load.end; end += kPageTokens)
          step_.copy(step_.page(page_of(lease, end)),
                     load.pages[static_cast<size_t>((end - load.begin) / kPageTokens - 1)].data(), step_.page_bytes());
        step_.copy(step_.anchor(anchor), load.anchor.data(), step_.anchor_bytes());
        return true;
      });
  if (outcome != Outcome::restored) return;
  ++restored_disk_;
  sequence.tier = Tier::disk;
  sequence.tier_position = load.end;
  sequence.load_ns = clock_.now_ns() - sequence.load_begun_ns;
}

// As a request that computes nothing: what it would have written into its pages and its anchor comes from a tier. What
// came from the disk is kept in host memory from now on.
Spill::Outcome Spill::restore(const PrefixQuery& query, int64_t begin, int64_t end, CaptureClass capture_class,
                              const Fill& fill) {
  PrefixQuery own = query;
  own.prefix_only = true;  // No lookup to be counted.
  std::optional<Lease> lease = cache_.acquire(own, static_cast<int64_t>(query.tokens.size()));
  if (!lease || lease->shared_tokens() < begin || lease->match().anchor_position >= end) return Outcome::no_room;
  lease->extend(end);
  cache_.expect_branch(*lease, end);  // The request waits for just this one.
  const std::optional<AnchorId> anchor = cache_.reserve_anchor(*lease, end, capture_class);
  if (!anchor) return Outcome::no_room;
  if (!fill(*lease, *anchor)) return Outcome::damaged;
  const auto covered = query.tokens.first(static_cast<size_t>(end));
  if (!cache_.publish(*lease, covered, end, *anchor)) return Outcome::no_room;
  keep_in_ram(*lease, covered, query.domain, *anchor);
  return Outcome::restored;
}

void Spill::resumed(Sequence& sequence) {
  const Match& match = sequence.lease.match();
  RequestStats& stats = sequence.stats;
  if (stats.restored && sequence.tier_position == match.anchor_position) {
    stats.tier = sequence.tier;
    stats.load_ns = sequence.load_ns;
  }
  if (sequence.failed_position > match.anchor_position && match.reason != MissReason::bypass) {
    stats.miss = MissReason::tier_fail;
    stats.miss_detail = cat("tier=", name(sequence.failed_tier));
  }
  if (!stats.restored) return;
  const auto covered = std::span(sequence.tokens).first(static_cast<size_t>(match.anchor_position));
  if (ram_) ram_->use(covered, sequence.request.cache.domain);
  if (disk_) disk_->use(covered, sequence.request.cache.domain);
}

void Spill::count(EngineStats& stats) const {
  stats.ram_restores = restored_ram_;
  stats.disk_restores = restored_disk_;
  if (ram_) stats.ram = ram_->stats();
}

}  // namespace wp
