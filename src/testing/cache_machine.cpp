#include "testing/cache_machine.h"

#include <algorithm>

#include "core/cat.h"
#include "core/hash.h"

namespace wp::testing {
namespace {

constexpr int64_t kPagesMax = 12;  // Of a prompt.
constexpr size_t kHistoriesMax = 12;
const char* const kLabels[] = {"", "", "conv-1", "conv-2", "conv-3", "conv-4", "conv-5"};

CacheLimits draw_limits(Chooser& chooser) {
  CacheLimits limits;
  limits.pages = static_cast<int32_t>(chooser.between(8, 64));
  limits.anchors = static_cast<int32_t>(chooser.between(1, 16));
  limits.ghosts_max = static_cast<int32_t>(chooser.between(0, 12));
  limits.conversations_max = static_cast<int32_t>(chooser.between(3, 6));
  limits.nodes_max = 4096;
  limits.hold_ns = 1000;
  return limits;
}

// One of a few pages, all of which begin alike, so that prompts part in the middle of a page too.
void append_page(Tokens& tokens, int64_t symbol) {
  for (int64_t i = 0; i < kPageTokens; ++i)
    tokens.push_back(static_cast<TokenId>(i < symbol * 16 ? i : i + 1000 * symbol));
}

}  // namespace

int64_t Chooser::between(int64_t low, int64_t high) {
  if (bytes_.empty()) return rng_.between(low, high);
  const int64_t byte = bytes_.front();
  bytes_ = bytes_.subspan(1);
  return low + byte % (high - low + 1);
}

std::vector<std::string> CacheMachine::mark_names() {
  std::vector<std::string> names = {"restored",
                                    "no room",
                                    "captured",
                                    "abandoned",
                                    "ended while pending",
                                    "deduped",
                                    "refused",
                                    "skipped",
                                    "evicted for pages",
                                    "page duplicated",
                                    "ghost hit",
                                    "hold denied",
                                    "held",
                                    "branch",
                                    "anchor at n passed over",
                                    "flushed",
                                    "promise used up",
                                    "anchor evicted under its lease"};
  for (const MissReason reason :
       {MissReason::bypass, MissReason::none, MissReason::too_short, MissReason::salt, MissReason::incomplete,
        MissReason::evicted, MissReason::no_anchor, MissReason::diverged, MissReason::cold})
    names.push_back(cat("miss ", name(reason)));
  for (const EvictionReason reason : {EvictionReason::superseded, EvictionReason::probation, EvictionReason::ladder,
                                      EvictionReason::value, EvictionReason::flush})
    names.push_back(cat("victim ", name(reason)));
  return names;
}

CacheMachine::CacheMachine(Chooser chooser, CacheFault fault)
    : chooser_(chooser),
      fault_(fault),
      limits_(draw_limits(chooser_)),
      cache_(std::make_unique<PrefixCache>(limits_, clock_, static_cast<Seed>(chooser_.between(0, 255)))),
      reference_(limits_),
      page_contents_(static_cast<size_t>(limits_.pages), 0),
      anchor_contents_(static_cast<size_t>(limits_.anchors), 0),
      marks_(mark_names()) {
  if (chooser_.percent(25)) PrefixCachePeer::make_all_keys_collide(*cache_);
}

void CacheMachine::fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

uint64_t CacheMachine::content(uint64_t domain, std::span<const TokenId> tokens, int64_t end) const {
  return hash_bytes(tokens.data(), static_cast<size_t>(end) * sizeof(TokenId), domain + 1);
}

Tokens CacheMachine::new_prompt() {
  Tokens tokens;
  if (!histories_.empty() && chooser_.percent(75)) {
    tokens = histories_[static_cast<size_t>(chooser_.between(0, static_cast<int64_t>(histories_.size()) - 1))];
    if (chooser_.percent(25))
      tokens.resize(static_cast<size_t>(chooser_.between(1, static_cast<int64_t>(tokens.size()))));
  }
  const int64_t room = std::max<int64_t>(0, kPagesMax - static_cast<int64_t>(tokens.size()) / kPageTokens);
  for (int64_t more = chooser_.between(tokens.empty() ? 1 : 0, std::min<int64_t>(room, 5)); more > 0; --more)
    append_page(tokens, chooser_.between(0, 2));
  if (room > 0 && chooser_.percent(60))
    for (int64_t more = chooser_.between(1, 63); more > 0; --more)
      tokens.push_back(static_cast<TokenId>(7000 + more % 3));
  if (tokens.empty()) tokens.push_back(1);
  return tokens;
}

void CacheMachine::acquire() {
  Tokens tokens = new_prompt();
  const std::string label = kLabels[chooser_.between(0, std::size(kLabels) - 1)];
  PrefixQuery query{.tokens = tokens,
                    .domain = chooser_.percent(80) ? 0 : static_cast<uint64_t>(chooser_.between(1, 2)),
                    .conversation = label,
                    .continues = chooser_.percent(30),
                    .bypass = chooser_.percent(3) ? "request" : nullptr};
  const int64_t tokens_count = static_cast<int64_t>(tokens.size());
  const int64_t tokens_max = tokens_count + chooser_.between(0, 3) * chooser_.between(0, 80);

  PrefixQuery asked = query;
  Tokens one_more = tokens;
  if (broken_ && fault_ == CacheFault::domains_ignored) asked.domain = 0;
  if (broken_ && fault_ == CacheFault::hit_at_the_prompt_end) {
    one_more.push_back(1);
    asked.tokens = one_more;
  }
  const CacheStats stats = cache_->stats();
  const ReferenceMatch expected = reference_.find(query), found = comparable(cache_->find(asked));
  if (!(expected == found)) fail(cat("find(): expected ", expected.text(), ", found ", found.text()));
  if (cache_->stats().pages_free != stats.pages_free || cache_->stats().lookups != stats.lookups)
    fail("find() changed something");

  std::optional<Lease> lease = cache_->acquire(asked, tokens_max);
  if (!lease) {
    marks_.reach("no room");
    if (running_.empty() && cache_->could_fit(tokens_max)) fail("no lease, though nobody has one and it could fit");
    return;
  }
  if (!(comparable(lease->match()) == found)) fail("acquire() decided otherwise than find()");
  marks_.reach(cat("miss ", name(found.reason)));
  acquired(std::move(*lease), query, std::move(tokens), tokens_max);
}

void CacheMachine::acquired(Lease lease, const PrefixQuery& query, Tokens tokens, int64_t tokens_max) {
  const Match& match = lease.match();
  const int64_t tokens_count = static_cast<int64_t>(tokens.size());
  if (match.anchor_position >= tokens_count) fail("an anchor at or behind the prompt's end was restored");
  if (match.match >= tokens_count && match.anchor_position > 0) marks_.reach("anchor at n passed over");
  if (match.branch_position > 0) marks_.reach("branch");
  if (match.anchor != kNoAnchor) marks_.reach("restored");
  if (static_cast<int64_t>(lease.pages().size()) * kPageTokens != match.anchor_position ||
      lease.shared_tokens() != match.anchor_position)
    fail("a fresh lease does not end at its anchor");
  reference_.acquired(++newest_lease_, query);
  if (histories_.size() < kHistoriesMax) histories_.push_back(tokens);
  else histories_[static_cast<size_t>(chooser_.between(0, kHistoriesMax - 1))] = tokens;
  const int64_t computed = match.anchor_position;
  running_.push_back({.id = newest_lease_,
                      .lease = std::move(lease),
                      .tokens = std::move(tokens),
                      .domain = query.domain,
                      .computed = computed,
                      .tokens_max = std::max(tokens_max, tokens_count),
                      .restored_read = false,
                      .captures = {},
                      .pages_before = {}});
  for (int64_t captures = chooser_.between(0, 3); captures > 0; --captures) reserve(running_.back());
}

void CacheMachine::reserve(Running& running) {
  const int64_t tokens_count = static_cast<int64_t>(running.tokens.size());
  const auto capture_class = static_cast<CaptureClass>(chooser_.between(0, 5));
  int64_t position = chooser_.between(0, tokens_count / kPageTokens) * kPageTokens;
  if (capture_class == CaptureClass::branch && running.lease.match().branch_position > 0)
    position = running.lease.match().branch_position;
  const bool bypassed = running.lease.match().reason == MissReason::bypass;
  const auto anchor = cache_->reserve_anchor(running.lease, position, capture_class);
  observe_evictions();
  if (!anchor) return;
  if (position <= running.computed || position >= tokens_count || tokens_count < kCapturePromptTokensMin || bypassed)
    fail(cat("a capture was reserved at ", position, " of ", tokens_count, ", computed ", running.computed));
  reference_.reserved(running.id, position, *anchor, capture_class);
  running.captures.push_back({*anchor, position, chooser_.percent(15)});
}

void CacheMachine::compute(Running& running) {
  const int64_t tokens_count = static_cast<int64_t>(running.tokens.size());
  if (running.computed >= tokens_count) {
    // Decoding, up to what was promised: these rows are private to the end.
    running.lease.extend(chooser_.between(tokens_count, running.tokens_max));
    observe_evictions();
    if (running.lease.pages().size() * kPageTokens + kPageTokens > static_cast<size_t>(running.tokens_max))
      marks_.reach("promise used up");
    return;
  }
  const int64_t blocks = chooser_.between(1, 6);
  compute_to(running, std::min(tokens_count, running.computed / kPageTokens * kPageTokens + blocks * kPageTokens));
}

// A prefill piece: reads what lies below, from the anchor at first, and writes pages and captures.
void CacheMachine::compute_to(Running& running, int64_t end) {
  running.lease.extend(end);
  observe_evictions();
  const auto pages = running.lease.pages();
  if (const AnchorId anchor = running.lease.match().anchor; !running.restored_read && anchor != kNoAnchor) {
    const int64_t position = running.lease.match().anchor_position;
    if (anchor_contents_[static_cast<size_t>(anchor)] != content(running.domain, running.tokens, position))
      fail(cat("anchor ", anchor, " is not the state at ", position));
  }
  running.restored_read = true;
  int64_t from = running.computed;
  if (broken_ && fault_ == CacheFault::writes_a_shared_page && running.lease.shared_tokens() > 0)
    page_contents_[static_cast<size_t>(pages[static_cast<size_t>(running.lease.shared_tokens() / kPageTokens - 1)])] =
        99;
  if (broken_ && fault_ == CacheFault::gap_page_not_recomputed && end - from > kPageTokens) from += kPageTokens;
  for (int64_t at = from / kPageTokens * kPageTokens; at + kPageTokens <= end; at += kPageTokens)
    page_contents_[static_cast<size_t>(pages[static_cast<size_t>(at / kPageTokens)])] =
        content(running.domain, running.tokens, at + kPageTokens);
  running.computed = end;
  for (const Capture& capture : running.captures)
    if (capture.position <= end)
      anchor_contents_[static_cast<size_t>(capture.anchor)] = content(running.domain, running.tokens, capture.position);
  settle_captures(running);
}

void CacheMachine::settle_captures(Running& running) {
  for (size_t i = 0; i < running.captures.size();) {
    const Capture capture = running.captures[i];
    if (capture.position > running.computed && !capture.abandon) {
      ++i;
      continue;
    }
    running.captures.erase(running.captures.begin() + static_cast<std::ptrdiff_t>(i));
    if (capture.abandon) {
      marks_.reach("abandoned");
      cache_->abandon_anchor(capture.anchor);
      reference_.abandoned(capture.anchor);
      continue;
    }
    const std::vector<PageId> before(running.lease.pages().begin(), running.lease.pages().end());
    const auto tokens = std::span<const TokenId>(running.tokens).first(static_cast<size_t>(capture.position));
    const bool in_tree = cache_->publish(running.lease, tokens, capture.position, capture.anchor);
    if (in_tree) marks_.reach("captured");
    reference_.published(running.id, capture.anchor, capture.position, in_tree);
    if (!std::equal(before.begin(), before.end(), running.lease.pages().begin(), running.lease.pages().end()))
      fail("publish() changed the page ids of a running sequence");
    if (running.lease.shared_tokens() < capture.position) fail("a published page may still be written");
    if (PrefixCachePeer::duplicates(*cache_) > 0) marks_.reach("page duplicated");
  }
}

void CacheMachine::end(size_t index) {
  Running& running = running_[index];
  if (!running.captures.empty()) marks_.reach("ended while pending");
  reference_.ended(running.id);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
}

void CacheMachine::hold_or_drop() {
  const std::string label = kLabels[chooser_.between(2, std::size(kLabels) - 1)];
  if (chooser_.percent(70)) cache_->hold(label);
  else cache_->drop_hold(label);
  if (cache_->stats().anchors_held > 0) marks_.reach("held");
  if (cache_->stats().anchors_held * 100 > limits_.anchors * limits_.held_percent_max)
    fail("more are held than may be");
}

void CacheMachine::flush() {
  marks_.reach("flushed");
  cache_->flush();
  observe_evictions();
  reference_.flushed();
  if (cache_->stats().ghosts != 0) fail("flush() left ghosts");
  if (running_.empty() && cache_->stats().pages_free != limits_.pages)
    fail("flush() left pages though nobody holds any");
}

void CacheMachine::observe_evictions() {
  for (const AnchorId anchor :
       PrefixCachePeer::gone(*cache_, [&](AnchorId id) { return reference_.is_published(id); })) {
    reference_.evicted(anchor);
    for (const Running& running : running_)
      if (running.restored_read && running.lease.match().anchor == anchor)
        marks_.reach("anchor evicted under its lease");
  }
}

// Everything that this sequence can read is what its tokens make it.
void CacheMachine::verify(Running& running) {
  const auto pages = running.lease.pages();
  for (int64_t end = kPageTokens; end <= running.computed; end += kPageTokens)
    if (page_contents_[static_cast<size_t>(pages[static_cast<size_t>(end / kPageTokens - 1)])] !=
        content(running.domain, running.tokens, end))
      return fail(cat("lease ", running.id, ": the page before ", end, " holds something else"));
}

void CacheMachine::break_something() {
  switch (fault_) {
    case CacheFault::anchor_off_by_a_page: broken_ |= PrefixCachePeer::move_an_anchor_up(*cache_); return;
    case CacheFault::stale_page: broken_ |= PrefixCachePeer::swap_a_page_with_a_free_one(*cache_); return;
    case CacheFault::anchor_of_another_prompt: broken_ |= PrefixCachePeer::exchange_two_anchors(*cache_); return;
    case CacheFault::page_freed_twice: broken_ |= PrefixCachePeer::free_a_page_twice(*cache_); return;
    case CacheFault::page_lost: broken_ |= PrefixCachePeer::lose_a_page(*cache_); return;
    case CacheFault::anchor_freed_twice: broken_ |= PrefixCachePeer::free_an_anchor_twice(*cache_); return;
    case CacheFault::promise_miscounted: broken_ |= PrefixCachePeer::miscount_the_promise(*cache_); return;
    case CacheFault::holder_forgotten: broken_ |= PrefixCachePeer::forget_a_holder(*cache_); return;
    case CacheFault::reader_forgotten: broken_ |= PrefixCachePeer::forget_a_reader(*cache_); return;
    case CacheFault::position_mislabelled: broken_ |= PrefixCachePeer::mislabel_a_position(*cache_); return;
    default: broken_ = true;  // A fault of the caller; it shows where the caller acts.
  }
}

void CacheMachine::count_marks() {
  const CacheStats stats = cache_->stats();
  const auto reach_if = [&](bool reached, const std::string& mark) {
    if (reached) marks_.reach(mark);
  };
  reach_if(stats.deduped() > before_.deduped(), "deduped");
  reach_if(stats.captures_refused() > before_.captures_refused(), "refused");
  reach_if(stats.skipped() > before_.skipped(), "skipped");
  reach_if(stats.ghost_hits() > before_.ghost_hits(), "ghost hit");
  reach_if(stats.hold_denials > before_.hold_denials, "hold denied");
  for (int i = 0; i < kEvictionReasons; ++i) {
    const auto reason = static_cast<EvictionReason>(i);
    reach_if(stats.evictions_for(reason) > before_.evictions_for(reason), cat("victim ", name(reason)));
  }
  before_ = stats;
}

void CacheMachine::step() {
  if (!failure_.empty()) return;
  if (fault_ != CacheFault::none) break_something();
  const int64_t what = chooser_.between(0, 99);
  const bool more = running_.size() < 4;
  const int32_t pages_before = PrefixCachePeer::impl(*cache_).tree.pages_cached();
  const auto one = [&]() -> size_t {
    return static_cast<size_t>(chooser_.between(0, static_cast<int64_t>(running_.size()) - 1));
  };
  if (running_.empty() || (what < 35 && more)) acquire();
  else if (what < 75) {
    Running& running = running_[one()];
    const int64_t free_before = cache_->stats().pages_free;
    const CacheStats stats = cache_->stats();
    compute(running);
    const CacheStats after = cache_->stats();
    if (after.pages_cached < pages_before && free_before == 0 && stats.lookups == after.lookups)
      marks_.reach("evicted for pages");
  } else if (what < 90) end(one());
  else if (what < 94) hold_or_drop();
  else if (what < 99) clock_.advance_ns(chooser_.between(0, 1500));
  else if (chooser_.percent(30)) flush();
  observe_evictions();
  cache_->check();
  for (Running& running : running_) verify(running);
  const CacheStats stats = cache_->stats();
  if (stats.pages_free + stats.pages_cached + stats.pages_leased != limits_.pages) fail("pages are not conserved");
  if (stats.anchors_free + stats.anchors_published + stats.anchors_pending != limits_.anchors)
    fail("anchors are not conserved");
  if (stats.ghosts != static_cast<int64_t>(reference_.ghosts()))
    fail(cat("expected ", reference_.ghosts(), " ghosts, found ", stats.ghosts));
  count_marks();
}

void CacheMachine::finish() {
  while (!running_.empty()) end(running_.size() - 1);
  cache_->check();
  const CacheStats stats = cache_->stats();
  if (stats.pages_free + stats.pages_cached != limits_.pages || stats.pages_leased != 0 || stats.anchors_pending != 0)
    fail("something did not come home");
  cache_->flush();
  cache_->check();
  if (cache_->stats().pages_free != limits_.pages || cache_->stats().anchors_free != limits_.anchors ||
      cache_->stats().nodes != 0)
    fail("something was left behind");
}

}  // namespace wp::testing
