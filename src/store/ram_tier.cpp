#include "store/ram_tier.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/assert.h"
#include "core/hash.h"

namespace wp {
namespace {

constexpr int64_t kBlockBytesMin = 4096;
constexpr uint64_t kRoot = 0x72616d2074696572;

int64_t block_bytes_for(const RamTierOptions& options) {
  return (std::max(options.page_bytes, kBlockBytesMin) + 63) / 64 * 64;
}

// Visits the nodes of a path from the top: the tokens of each, its key, and the key above. Stops where `visit` says no.
template <class Visit>
void each_node(std::span<const TokenId> covered, uint64_t domain, Visit visit) {
  uint64_t key = kRoot;
  for (int64_t end = kPageTokens; end <= std::ssize(covered); end += kPageTokens) {
    const auto tokens = covered.subspan(static_cast<size_t>(end - kPageTokens), kPageTokens);
    const uint64_t parent = std::exchange(key, node_key(key, domain, tokens));
    if (!visit(end, tokens, parent, key)) return;
  }
}

}  // namespace

Result<std::unique_ptr<RamTier>> RamTier::make(Device& device, const RamTierOptions& options, Clock& clock) {
  WP_ASSERT(options.page_bytes >= 0 && options.anchor_bytes >= 0);
  const int64_t block = block_bytes_for(options);
  const int64_t blocks = std::min<int64_t>(options.size_bytes / block, std::numeric_limits<int32_t>::max());
  const int64_t least = (options.anchor_bytes + block - 1) / block + 1;
  if (blocks < least)
    return Error{ErrorCode::bad_request, cat("--cache-ram: expected room for an anchor and a page, ", least * block,
                                             " bytes, found ", options.size_bytes)};
  WP_TRY(Buffer arena, Buffer::make(device, blocks * block, "the cache in host memory"));
  return std::unique_ptr<RamTier>(new RamTier(std::move(arena), options, clock));
}

RamTier::RamTier(Buffer arena, const RamTierOptions& options, Clock& clock)
    : options_(options),
      clock_(clock),
      arena_(std::move(arena)),
      block_bytes_(block_bytes_for(options)),
      index_(options.page_bytes, options.anchor_bytes, 1) {
  index_.set_root(kRoot);
  const auto blocks = static_cast<size_t>(arena_.size_bytes() / block_bytes_);
  headers_.resize(blocks);
  next_.resize(blocks, -1);
  free_.reserve(blocks);
  for (size_t i = blocks; i > 0; --i) free_.push_back(static_cast<int32_t>(i - 1));
  stats_.size_bytes = arena_.size_bytes();
}

int64_t RamTier::blocks_of(PartKind kind) const {
  return std::max<int64_t>(1, (bytes_of(kind) + block_bytes_ - 1) / block_bytes_);
}

template <class Visit>
void RamTier::each_block(int32_t first, int64_t size_bytes, Visit visit) const {
  int32_t block = first;
  for (int64_t offset = 0; offset < size_bytes; offset += block_bytes_) {
    visit(arena_.data() + block * block_bytes_, offset, std::min(block_bytes_, size_bytes - offset));
    block = next_[static_cast<size_t>(block)];
  }
}

void RamTier::free_blocks(Place place) {
  for (auto block = static_cast<int32_t>(place.where - 1); block >= 0;) {
    free_.push_back(block);
    block = std::exchange(next_[static_cast<size_t>(block)], -1);
  }
}

int64_t RamTier::blocks_missing(std::span<const TokenId> covered, uint64_t domain) const {
  int64_t blocks = 0;
  each_node(covered, domain, [&](int64_t end, std::span<const TokenId>, uint64_t, uint64_t key) {
    if (!index_.has(PartKind::page, key)) blocks += blocks_of(PartKind::page);
    if (end == std::ssize(covered) && !index_.has(PartKind::anchor, key)) blocks += blocks_of(PartKind::anchor);
    return true;
  });
  return blocks;
}

// The path's own pages stay meanwhile; its anchors may go.
bool RamTier::make_room(std::span<const TokenId> covered, uint64_t domain) {
  const auto hold = [&](bool held) {
    each_node(covered, domain, [&](int64_t, std::span<const TokenId>, uint64_t, uint64_t key) {
      index_.hold(key, held);
      return true;
    });
  };
  hold(true);
  bool enough = false;
  while (!(enough = blocks_missing(covered, domain) <= std::ssize(free_))) {
    const auto dropped = index_.drop_least(clock_.now_ns());
    if (dropped.empty()) break;
    for (const KeptIndex::Dropped& part : dropped) free_blocks(part.place);
    stats_.evicted += std::ssize(dropped);
  }
  hold(false);
  return enough;
}

void RamTier::put_path(std::span<const TokenId> covered, uint64_t domain, CaptureClass capture_class, const Move& out) {
  WP_ASSERT(!covered.empty() && std::ssize(covered) % kPageTokens == 0);
  const auto last = std::ssize(covered);
  // What would not fit alone is not worth emptying the tier for.
  const int64_t whole = last / kPageTokens * blocks_of(PartKind::page) + blocks_of(PartKind::anchor);
  if (whole > std::ssize(headers_) || !make_room(covered, domain)) {
    ++stats_.refused;
    return;
  }
  each_node(covered, domain, [&](int64_t end, std::span<const TokenId> tokens, uint64_t parent, uint64_t key) {
    if (!index_.has(PartKind::page, key)) put({PartKind::page, domain, parent, key, end, tokens}, capture_class, out);
    if (end == last && !index_.has(PartKind::anchor, key))
      put({PartKind::anchor, domain, parent, key, end, tokens}, capture_class, out);
    return true;
  });
}

void RamTier::put(const Name& name, CaptureClass capture_class, const Move& out) {
  const int64_t size_bytes = bytes_of(name.kind);
  int32_t first = -1;
  WP_ASSERT(std::ssize(free_) >= blocks_of(name.kind));
  for (int64_t i = 0; i < blocks_of(name.kind); ++i) {
    const int32_t block = free_.back();
    free_.pop_back();
    next_[static_cast<size_t>(block)] = first;
    first = block;
  }
  uint64_t hash = 0;
  each_block(first, size_bytes, [&](std::byte* bytes, int64_t offset, int64_t count) {
    out(name.kind, name.end, bytes, offset, count);
    hash = hash_bytes(bytes, static_cast<size_t>(count), hash);
  });
  RecordHeader& header = headers_[static_cast<size_t>(first)];
  header =
      describe_part(name.kind, {}, name.domain, name.parent, name.end, name.tokens, capture_class, bytes_of(name.kind));
  seal(header, hash);
  const Place place{static_cast<uint64_t>(first) + 1, 0};
  ++stats_.stored;
  if (!index_.add(header, place, clock_.now_ns())) free_blocks(place);  // Another path has its key.
}

RamTier::Anchor RamTier::deepest(std::span<const TokenId> tokens, uint64_t domain, int64_t above, int64_t below) const {
  Anchor found;
  each_node(tokens, domain, [&](int64_t end, std::span<const TokenId>, uint64_t, uint64_t key) {
    if (end >= below) return false;
    if (end <= above) return true;
    const auto page = index_.find(PartKind::page, key);
    if (!page || page->end != end) return false;
    if (const auto anchor = index_.find(PartKind::anchor, key)) found = {end, anchor->capture_class};
    return true;
  });
  return found;
}

bool RamTier::get(const Name& name, const Move& in) {
  const auto kept = index_.find(name.kind, name.key);
  if (!kept) return false;
  const auto first = static_cast<int32_t>(kept->place.where - 1);
  const auto header = parse_header(std::as_bytes(std::span(&headers_[static_cast<size_t>(first)], 1)));
  uint64_t hash = 0;
  each_block(first, bytes_of(name.kind), [&](std::byte* bytes, int64_t, int64_t count) {
    hash = hash_bytes(bytes, static_cast<size_t>(count), hash);
  });
  const bool good = header.ok() && header->kind == name.kind && header->domain == name.domain &&
                    header->end == name.end &&
                    std::equal(name.tokens.begin(), name.tokens.end(), header->tokens.begin()) &&
                    header->payload_bytes == bytes_of(name.kind) && header->payload_hash == hash;
  if (!good) {
    // Forgotten, so that it is kept again when it is next computed.
    ++stats_.corrupt;
    index_.remove(name.kind, name.key);
    free_blocks(kept->place);
    return false;
  }
  each_block(first, bytes_of(name.kind),
             [&](std::byte* bytes, int64_t offset, int64_t count) { in(name.kind, name.end, bytes, offset, count); });
  stats_.loaded_bytes += bytes_of(name.kind);
  return true;
}

bool RamTier::get_path(std::span<const TokenId> tokens, uint64_t domain, int64_t begin, int64_t end, const Move& in) {
  bool good = true;
  const auto covered = tokens.first(static_cast<size_t>(end));
  each_node(covered, domain, [&](int64_t at, std::span<const TokenId> page, uint64_t parent, uint64_t key) {
    if (at > begin) good = get({PartKind::page, domain, parent, key, at, page}, in);
    if (good && at == end) good = get({PartKind::anchor, domain, parent, key, at, page}, in);
    return good;
  });
  stats_.loads += good;
  return good;
}

void RamTier::use(std::span<const TokenId> covered, uint64_t domain) {
  uint64_t last = 0;
  each_node(covered, domain, [&](int64_t, std::span<const TokenId>, uint64_t, uint64_t key) {
    last = key;
    return true;
  });
  index_.use(last, clock_.now_ns());
}

RamTierStats RamTier::stats() const {
  RamTierStats stats = stats_;
  stats.parts = index_.parts();
  stats.anchors = index_.anchors();
  stats.bytes = index_.bytes();
  return stats;
}

}  // namespace wp
