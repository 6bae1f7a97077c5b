#include "testing/fake_model.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/rng.h"

namespace wp::testing {
namespace {

constexpr int32_t kLayers = 3;  // Parts of a state, receipts of a capture.

struct Row {
  uint64_t chain, pure;
  int32_t position;
  TokenId token;
  int32_t phase;
  int32_t written;  // kWritten: a page never written holds zeros, which must not pass for a row.
};
constexpr int32_t kWritten = 0x600DDA7A;

struct Part {
  uint64_t chain, pure;
  int64_t position;
  int32_t layer;
  int32_t written;
};

struct NoScratch final : Scratch {
  int64_t size_bytes() const override { return 0; }
};

uint64_t mix(uint64_t history, uint64_t token) { return splitmix64(history ^ splitmix64(token + 1)); }
uint64_t next_chain(uint64_t chain, TokenId token, int32_t phase) {
  return mix(mix(chain, static_cast<uint64_t>(token)), static_cast<uint64_t>(phase) + 1'000'003);
}
uint64_t next_pure(uint64_t pure, TokenId token) { return mix(pure, static_cast<uint64_t>(token)); }

Row& row_at(Pools& pools, std::span<const int32_t> pages, int64_t position) {
  std::byte* page = pools.page(pages[static_cast<size_t>(position / kPageRows)]);
  return reinterpret_cast<Row*>(page)[position % kPageRows];
}

}  // namespace

// A history as far as it was read.
struct FakeModel::Walk {
  uint64_t chain = 0xC0FFEE, pure = kNoHistory;
  int64_t position = 0;
  uint64_t chain_before = 0;  // The last token.
  void step(TokenId token, int32_t phase) {
    chain_before = chain;
    chain = next_chain(chain, token, phase);
    pure = next_pure(pure, token);
    ++position;
  }
  void store(std::byte* to, int32_t layer) const {
    reinterpret_cast<Part*>(to)[layer] = {chain, pure, position, layer, kWritten};
  }
};

FakeModel::FakeModel(const FakeModelOptions& options) : options_(options) {
  info_.family = "fake";
  info_.description = "hashes of the token history";
  info_.layers = kLayers;
  info_.vocabulary = options.vocabulary;
  info_.context_max = options.context_max;
  info_.page_bytes = kPageRows * static_cast<int64_t>(sizeof(Row));
  info_.anchor_bytes = info_.slot_bytes = kLayers * static_cast<int64_t>(sizeof(Part));
  info_.capture_receipts = kLayers;
  info_.fingerprint = 0xFA4E;
  info_.multiply_adds_per_token = static_cast<double>(std::max<int64_t>(1, options.prefill_row_ns));
  info_.multiply_adds_per_token_and_key = static_cast<double>(options.prefill_row_and_key_ns);
}

Result<std::unique_ptr<Scratch>> FakeModel::make_scratch(Device&, const ScratchLimits& limits) const {
  pure_of_row_.reserve(static_cast<size_t>(limits.rows_max));
  return std::unique_ptr<Scratch>(new NoScratch);
}

void FakeModel::found(const std::string& what) const {
  std::lock_guard lock(mutex_);
  if (violation_.empty()) violation_ = what;
}

std::string FakeModel::violation() const {
  std::lock_guard lock(mutex_);
  return violation_;
}

void FakeModel::forward(Stream&, const Batch& batch, Pools& pools, Scratch&, const Tensor& logits) const {
  ++passes_;
  if (batch.phase == Phase::prefill && batch.segments.size() > 1) ++shared_passes_;
  pure_of_row_.resize(batch.tokens.size());
  int32_t row = 0;
  for (const Segment& segment : batch.segments) {
    if (segment.row_begin != row || segment.rows < 1) found(cat("segments do not cover the rows at ", row));
    if (batch.phase == Phase::decode && segment.rows != 1) found(cat("a decode segment of ", segment.rows, " rows"));
    row += segment.rows;
    for (const Segment& other : batch.segments)
      if (&other != &segment && other.slot == segment.slot) found(cat("two segments write slot ", segment.slot));
    run_segment(batch, segment, pools);
  }
  if (row != static_cast<int32_t>(batch.tokens.size())) found("segments do not cover the tokens");
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const auto at = static_cast<size_t>(batch.logit_rows[i]);
    write_logits(
        pure_of_row_[at], batch.tokens[at],
        {logits.f32() + static_cast<int64_t>(i) * options_.vocabulary, static_cast<size_t>(options_.vocabulary)});
  }
  if (!options_.clock) return;
  int64_t elapsed_ns = options_.pass_ns;
  for (const Segment& segment : batch.segments)
    elapsed_ns +=
        segment.rows * (batch.phase == Phase::decode ? options_.decode_row_ns
                                                     : options_.prefill_row_ns + (segment.position + segment.rows / 2) *
                                                                                     options_.prefill_row_and_key_ns);
  options_.clock->advance(elapsed_ns);
}

bool FakeModel::read_state(const Segment& segment, Pools& pools, Walk& walk) const {
  if (segment.slot < 0 || segment.slot >= pools.slots_count()) {
    found(cat("slot ", segment.slot, " of ", pools.slots_count()));
    return false;
  }
  if (segment.source == StateSource::zero) {
    if (segment.position != 0) found(cat("a zero state at position ", segment.position));
    return segment.position == 0;
  }
  const bool from_anchor = segment.source == StateSource::anchor;
  if (from_anchor && (segment.anchor < 0 || segment.anchor >= pools.anchors_count())) {
    found(cat("anchor ", segment.anchor, " of ", pools.anchors_count()));
    return false;
  }
  const std::byte* from = from_anchor ? pools.anchor(segment.anchor) : pools.slot(segment.slot);
  const Part* parts = reinterpret_cast<const Part*>(from);
  const char* source = from_anchor ? "anchor" : "slot";
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    const Part& part = parts[layer];
    if (part.written != kWritten || part.layer != layer) {
      found(cat(source, ": layer ", layer, " was never written"));
      return false;
    }
    if (part.position != segment.position || part.chain != parts[0].chain || part.pure != parts[0].pure) {
      found(cat(source, ": layer ", layer, " stands at ", part.position, ", expected ", segment.position));
      return false;
    }
  }
  walk = {parts[0].chain, parts[0].pure, parts[0].position};
  return true;
}

// Every row below the segment, against the state that goes with it.
bool FakeModel::read_context(const Batch& batch, const Segment& segment, Pools& pools, const Walk& state) const {
  Walk walk;
  for (int64_t position = 0; position < segment.position; ++position) {
    const int32_t page = segment.pages[static_cast<size_t>(position / kPageRows)];
    if (page < 0 || page >= pools.pages_count()) {
      found(cat("page ", page, " of ", pools.pages_count()));
      return false;
    }
    const Row& row = row_at(pools, segment.pages, position);
    if (row.written != kWritten || row.position != position) {
      found(cat("page ", page, ": row of position ", position, " holds ", row.position));
      return false;
    }
    if (batch.phase == Phase::prefill && row.phase != 0) {
      found(cat("page ", page, ": prefill reads the decoded row of position ", position));
      return false;
    }
    walk.step(row.token, row.phase);
    if (walk.chain != row.chain || walk.pure != row.pure) {
      found(cat("page ", page, ": position ", position, " is of another history"));
      return false;
    }
  }
  rows_checked_ += segment.position;
  if (walk.chain == state.chain && walk.pure == state.pure) return true;
  found(cat("the state at ", segment.position, " is of another history than the pages below it"));
  return false;
}

void FakeModel::run_segment(const Batch& batch, const Segment& segment, Pools& pools) const {
  if (static_cast<int64_t>(segment.pages.size()) * kPageRows < segment.position + segment.rows) {
    found(cat("pages end before position ", segment.position + segment.rows));
    return;
  }
  Walk walk;
  if (!read_state(segment, pools, walk) || !read_context(batch, segment, pools, walk)) {
    for (int32_t row = 0; row < segment.rows; ++row)
      pure_of_row_[static_cast<size_t>(segment.row_begin + row)] = splitmix64(static_cast<uint64_t>(row));
    return;
  }
  const auto phase = static_cast<int32_t>(batch.phase);
  size_t next_capture = 0;
  Walk on_grid[2] = {walk, walk};  // At the last grid positions: before, and newest.
  for (int32_t i = 0; i < segment.rows; ++i) {
    const TokenId token = batch.tokens[static_cast<size_t>(segment.row_begin + i)];
    walk.step(token, phase);
    pure_of_row_[static_cast<size_t>(segment.row_begin + i)] = walk.pure;
    const int64_t position = segment.position + i;
    Row& row = row_at(pools, segment.pages, position);
    const bool reused = options_.fault == Fault::rows_reused && segment.source == StateSource::anchor &&
                        row.written == kWritten && row.position == position;
    const bool lost = options_.fault == Fault::row_not_written && position % kPageRows == kPageRows - 1;
    if (!reused && !lost) row = {walk.chain, walk.pure, static_cast<int32_t>(position), token, phase, kWritten};
    if (walk.position % kPageRows != 0) continue;
    on_grid[0] = on_grid[1];
    on_grid[1] = walk;
    if (next_capture < segment.captures.size() && segment.captures[next_capture].position == walk.position) {
      if (options_.fault != Fault::capture_at_pass_end)
        capture(segment, static_cast<int64_t>(next_capture), walk, on_grid[0], pools);
      ++next_capture;
    }
  }
  if (next_capture != segment.captures.size()) found("a capture off the grid or outside its segment");
  if (options_.fault == Fault::capture_at_pass_end)
    for (size_t i = 0; i < segment.captures.size(); ++i) capture(segment, static_cast<int64_t>(i), walk, walk, pools);
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    if (options_.fault != Fault::slot_not_written) walk.store(pools.slot(segment.slot), layer);
    if (options_.fault == Fault::anchor_written && segment.source == StateSource::anchor)
      walk.store(pools.anchor(segment.anchor), layer);
  }
}

void FakeModel::capture(const Segment& segment, int64_t index, const Walk& walk, const Walk& earlier,
                        Pools& pools) const {
  const int32_t anchor = segment.captures[static_cast<size_t>(index)].anchor;
  if (anchor < 0 || anchor >= pools.anchors_count()) return found(cat("capture into anchor ", anchor));
  if (segment.source == StateSource::anchor && anchor == segment.anchor)
    return found("a pass captures into its source");
  const bool partial =
      options_.fault == Fault::silent_partial_capture || options_.fault == Fault::honest_partial_capture;
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    const bool skipped = partial && layer == 1;
    Walk part = options_.fault == Fault::capture_off_by_64 ? earlier : walk;
    if (options_.fault == Fault::pending_row_dropped && layer == 2) part.chain = part.chain_before;
    if (!skipped) part.store(pools.anchor(anchor), layer);
    if (!skipped || options_.fault == Fault::silent_partial_capture) pools.add_receipt(anchor);
  }
}

void FakeModel::write_logits(uint64_t pure, TokenId last, std::span<float> row) const {
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = static_cast<float>(splitmix64(pure ^ (i * 0x9E3779B97F4A7C15ull)) >> 44) * 0x1p-17f - 4.0f;  // [-4, 4)
  if (options_.end_token >= 0 && pure % static_cast<uint64_t>(options_.end_every) == 0)
    row[static_cast<size_t>(options_.end_token)] = 20.0f;
  if (options_.poison_token >= 0 && last == options_.poison_token)
    row[row.size() / 2] = std::numeric_limits<float>::quiet_NaN();
}

uint64_t FakeModel::history(std::span<const TokenId> tokens, uint64_t before) {
  for (TokenId token : tokens) before = next_pure(before, token);
  return before;
}

}  // namespace wp::testing
