#include "engine/consolidator.h"

#include <algorithm>
#include <utility>

#include "engine/sampler.h"

namespace wp {
namespace {

constexpr int32_t kSlot = 0;  // Every slot is free.

bool begins_with(std::span<const TokenId> tokens, std::span<const TokenId> prefix) {
  return prefix.size() <= tokens.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

}  // namespace

void Consolidator::add(Consolidation turn) {
  if (turns_.size() == kTurnsMax) {
    turns_.pop_front();
    ++stats_.dropped;
  }
  turns_.push_back(std::move(turn));
}

void Consolidator::drop_all() {
  stats_.dropped += static_cast<int64_t>(turns_.size());
  turns_.clear();
  if (running_) end(false);
}

bool Consolidator::work() {
  if (!running_ && turns_.empty()) return false;
  if (!running_ && !begin_next()) return true;
  const int64_t begun_ns = clock_.now_ns();
  const bool good = compute_piece();
  piece_end_ns_ = clock_.now_ns();
  stats_.ns_idle += piece_end_ns_ - begun_ns;
  if (!good) {
    end(false);
  } else if (running_->computed == static_cast<int64_t>(running_->turn.tokens.size())) {
    publish();
    end(true);
  }
  return true;
}

bool Consolidator::begin_next() {
  Running next{.turn = std::move(turns_.front())};
  turns_.pop_front();
  const auto n = static_cast<int64_t>(next.turn.tokens.size());
  auto lease = cache_.acquire({.tokens = next.turn.tokens,
                               .domain = next.turn.domain,
                               .conversation = next.turn.conversation,
                               .continues = true,
                               .prefix_only = true},
                              n);
  if (!lease) {
    ++stats_.dropped;
    return false;
  }
  next.lease = std::move(*lease);
  next.computed = next.lease.match().anchor_position;
  if (next.computed == n) {  // Another turn has brought it.
    ++stats_.done;
    return false;
  }
  running_ = std::move(next);
  return true;
}

// The state is captured at the end of each piece: which one is the last, nobody knows before.
bool Consolidator::compute_piece() {
  Running& running = *running_;
  const int64_t end = running.computed + kPageTokens;
  running.lease.extend(end);
  if (running.anchor != kNoAnchor) cache_.abandon_anchor(std::exchange(running.anchor, kNoAnchor));
  const auto anchor = cache_.reserve_anchor(running.lease, end, CaptureClass::assistant);
  if (!anchor) return false;
  const Capture capture{.position = end, .anchor = *anchor};

  StepSegment segment;
  segment.tokens = std::span(running.turn.tokens).subspan(static_cast<size_t>(running.computed), kPageTokens);
  segment.position = running.computed;
  segment.slot = kSlot;
  segment.pages = running.lease.pages();
  segment.captures = std::span(&capture, 1);
  segment.logits = LogitRows::last;  // For nobody, but they show a NaN anywhere below.
  if (running.state_in_slot) {
    segment.source = StateSource::slot;
  } else if (running.computed > 0) {
    segment.source = StateSource::anchor;
    segment.anchor = running.lease.match().anchor;
  }
  step_.run(Phase::prefill, std::span(&segment, 1));
  running.computed = end;
  running.state_in_slot = true;
  stats_.tokens_idle += kPageTokens;
  if (!step_.capture_complete(*anchor) || !all_finite(step_.logits(0))) {
    cache_.abandon_anchor(*anchor);
    return false;
  }
  running.anchor = *anchor;
  return true;
}

void Consolidator::publish() {
  Running& running = *running_;
  if (running.anchor == kNoAnchor) return;
  const auto covered = std::span(running.turn.tokens).first(static_cast<size_t>(running.computed));
  const AnchorId anchor = std::exchange(running.anchor, kNoAnchor);
  if (cache_.publish(running.lease, covered, running.computed, anchor))
    spill_.published(running.lease, covered, running.turn.domain, anchor);
}

// The lease takes an unpublished anchor home with it.
void Consolidator::end(bool done) {
  running_.reset();
  ++(done ? stats_.done : stats_.dropped);
}

void Consolidator::give_way(int64_t submitted_ns) {
  if (!running_) return;
  stats_.ns_request += std::max<int64_t>(0, piece_end_ns_ - submitted_ns);
  ++stats_.gave_way;
  publish();
  turns_.push_front(std::move(running_->turn));
  running_.reset();
}

int64_t Consolidator::begin_request(std::span<const TokenId> prompt, uint64_t domain, int64_t cached) {
  int64_t longest = cached;
  stats_.dropped += static_cast<int64_t>(std::erase_if(turns_, [&](const Consolidation& turn) {
    if (turn.domain != domain || !begins_with(prompt, turn.tokens)) return false;
    longest = std::max(longest, static_cast<int64_t>(turn.tokens.size()));
    return true;
  }));
  stats_.tokens_request += longest - cached;
  return longest - cached;
}

void Consolidator::end_prefill(int64_t unconsolidated, int64_t computed, int64_t elapsed_ns) {
  if (unconsolidated == 0) return;
  stats_.ns_request += static_cast<int64_t>(static_cast<double>(elapsed_ns) * static_cast<double>(unconsolidated) /
                                            static_cast<double>(computed));
}

}  // namespace wp
