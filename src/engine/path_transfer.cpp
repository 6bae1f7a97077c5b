#include "engine/path_transfer.h"

#include <algorithm>
#include <utility>

namespace wp {
namespace {

Error gone() { return {ErrorCode::unavailable, "the server is shutting down"}; }

}  // namespace

Result<PathTransfer::Path> PathTransfer::path() {
  std::unique_lock guard(mutex_);
  changed_.wait(guard, [&] { return path_ || result_; });
  if (path_) return *path_;
  return result_->ok() ? gone() : result_->error();
}

Result<std::optional<PathPart>> PathTransfer::take() {
  std::unique_lock guard(mutex_);
  changed_.wait(guard, [&] { return !parts_.empty() || result_; });
  if (!parts_.empty()) {
    PathPart part = std::move(parts_.front());
    parts_.pop_front();
    guard.unlock();
    bell_->ring();
    return std::optional(std::move(part));
  }
  if (!result_->ok()) return result_->error();
  return std::optional<PathPart>();
}

Result<void> PathTransfer::give(PathPart part) {
  std::unique_lock guard(mutex_);
  changed_.wait(guard, [&] { return parts_.size() < kPartsMax || result_; });
  if (result_) return result_->ok() ? gone() : result_->error();
  parts_.push_back(std::move(part));
  guard.unlock();
  bell_->ring();
  return {};
}

void PathTransfer::all_given() {
  {
    const std::lock_guard guard(mutex_);
    all_given_ = true;
  }
  bell_->ring();
}

Result<int64_t> PathTransfer::finish() {
  all_given();
  std::unique_lock guard(mutex_);
  changed_.wait(guard, [&] { return result_.has_value(); });
  return *result_;
}

void PathTransfer::abandon() {
  {
    const std::lock_guard guard(mutex_);
    abandoned_ = true;
  }
  bell_->ring();
}

bool PathTransfer::can_take() {
  const std::lock_guard guard(mutex_);
  return !parts_.empty() || result_;
}

bool PathTransfer::can_give() {
  const std::lock_guard guard(mutex_);
  return parts_.size() < kPartsMax || result_;
}

bool PathTransfer::has_ended() {
  const std::lock_guard guard(mutex_);
  return result_.has_value();
}

void PathTransfer::end(Result<int64_t> result) {
  {
    const std::lock_guard guard(mutex_);
    if (!result_) result_.emplace(std::move(result));
  }
  changed_.notify_all();
}

void PathTransfers::add(std::shared_ptr<PathTransfer> transfer) {
  const PathTransferOrder& asked = transfer->asked_;
  if (asked.slot < 0 || asked.slot >= static_cast<int32_t>(paths_.size()))
    return transfer->end(
        Error{ErrorCode::bad_request, cat("slot: expected 0..", paths_.size() - 1, ", found ", asked.slot)});
  if (jobs_.size() >= kJobsMax)
    return transfer->end(Error{ErrorCode::overloaded, cat("slots: expected fewer than ", kJobsMax,
                                                          " being saved or restored, found ", jobs_.size())});
  Job job;
  job.transfer = std::move(transfer);
  jobs_.push_back(std::move(job));
}

void PathTransfers::ran(int32_t slot, uint64_t order, uint64_t domain, std::vector<TokenId> tokens) {
  paths_[static_cast<size_t>(slot)] = {order, domain, std::move(tokens)};
}

void PathTransfers::consolidated(const Consolidation& turn) {
  if (turn.slot < 0 || turn.slot >= static_cast<int32_t>(paths_.size())) return;
  SlotPath& path = paths_[static_cast<size_t>(turn.slot)];
  if (path.order == turn.order && path.domain == turn.domain) path.tokens = turn.tokens;
}

void PathTransfers::drop_all() {
  for (Job& job : jobs_) job.transfer->end(gone());
  jobs_.clear();
}

bool PathTransfers::has_ended(const Job& job) {
  const std::lock_guard guard(job.transfer->mutex_);
  return job.transfer->result_ || job.transfer->abandoned_;
}

bool PathTransfers::work() {
  bool any = false;
  for (Job& job : jobs_) {
    if (!std::exchange(job.begun, true)) {
      any = true;
      if (auto begun = begin(job); !begun.ok()) job.transfer->end(begun.error());
    }
    if (has_ended(job)) continue;
    any = (job.transfer->asked_.kind == PathTransferOrder::Kind::send ? send(job) : receive(job)) || any;
  }
  return std::erase_if(jobs_, [&](const Job& job) { return has_ended(job); }) > 0 || any;
}

Result<void> PathTransfers::begin(Job& job) {
  const PathTransferOrder& asked = job.transfer->asked_;
  const SlotPath& path = paths_[static_cast<size_t>(asked.slot)];
  if (asked.kind == PathTransferOrder::Kind::receive) {
    job.domain = asked.domain.value_or(0);
    job.tokens = asked.tokens;
    if (!cache_.could_fit(static_cast<int64_t>(job.tokens.size())))
      return Error{ErrorCode::bad_file,
                   cat("expected a path that fits the pages of this server, found ", job.tokens.size(), " tokens")};
  } else {
    if (path.tokens.empty() || (asked.domain && *asked.domain != path.domain))
      return Error{ErrorCode::bad_request, cat("slot ", asked.slot, ": expected a conversation, found none")};
    job.domain = path.domain;
    job.tokens = path.tokens;
    if (asked.kind == PathTransferOrder::Kind::erase) {
      erase(job);
      return {};
    }
    job.tokens.resize(static_cast<size_t>(cache_.find(query_of(job)).anchor_position));
    if (job.tokens.empty())
      return Error{ErrorCode::bad_request,
                   cat("slot ", asked.slot, ": expected a conversation with a state in the cache, found one without ",
                       "(evicted, or under 256 tokens)")};
  }
  auto lease = cache_.acquire(query_of(job), static_cast<int64_t>(job.tokens.size()));
  if (!lease) return Error{ErrorCode::overloaded, "slots: expected room for the path, found none beside what runs"};
  job.lease = std::move(*lease);
  {
    const std::lock_guard guard(job.transfer->mutex_);
    job.transfer->path_ = {job.domain, job.tokens};
  }
  job.transfer->changed_.notify_all();
  return {};
}

void PathTransfers::erase(Job& job) {
  const int64_t before = cache_.find(query_of(job)).anchor_position;
  cache_.forget(query_of(job));
  paths_[static_cast<size_t>(job.transfer->asked_.slot)] = {};
  job.transfer->end(before - cache_.find(query_of(job)).anchor_position);
}

// The deepest anchor is being read by the lease and stays; one above it that goes meanwhile is left out.
bool PathTransfers::send(Job& job) {
  int64_t moved = 0;
  const auto last = static_cast<int64_t>(job.tokens.size());
  while (moved < kStepBytes && job.position < last) {
    {
      const std::lock_guard guard(job.transfer->mutex_);
      if (job.transfer->parts_.size() >= PathTransfer::kPartsMax) return moved > 0;
    }
    job.position += kPageTokens;
    std::vector<PathPart> parts(1);
    const auto copy = [&](PathPart& part, const std::byte* from, int64_t size_bytes) {
      part.end = job.position;
      part.bytes.resize(static_cast<size_t>(size_bytes));
      step_.copy(part.bytes.data(), from, size_bytes);
      moved += std::max<int64_t>(size_bytes, 1);
    };
    copy(parts[0], step_.page(page_at(job, job.position)), step_.page_bytes());
    if (const AnchorId anchor = cache_.anchor_at(job.lease, job.position); anchor != kNoAnchor) {
      PathPart& part = parts.emplace_back();
      part.kind = PartKind::anchor;
      part.capture_class = cache_.class_of(anchor);
      copy(part, step_.anchor(anchor), step_.anchor_bytes());
    }
    {
      const std::lock_guard guard(job.transfer->mutex_);
      for (PathPart& part : parts) job.transfer->parts_.push_back(std::move(part));
    }
    job.transfer->changed_.notify_all();
  }
  if (job.position == last) job.transfer->end(last);
  return true;
}

bool PathTransfers::receive(Job& job) {
  int64_t moved = 0;
  while (moved < kStepBytes) {
    PathPart part;
    {
      const std::lock_guard guard(job.transfer->mutex_);
      if (job.transfer->parts_.empty()) {
        if (!job.transfer->all_given_) return moved > 0;
        break;
      }
      part = std::move(job.transfer->parts_.front());
      job.transfer->parts_.pop_front();
    }
    job.transfer->changed_.notify_all();
    moved += std::max<int64_t>(static_cast<int64_t>(part.bytes.size()), 1);
    if (auto done = put(job, part); !done.ok()) {
      job.transfer->end(done.error());
      return true;
    }
  }
  {
    const std::lock_guard guard(job.transfer->mutex_);
    if (!job.transfer->parts_.empty() || !job.transfer->all_given_) return true;
  }
  const int64_t there = cache_.find(query_of(job)).anchor_position;
  if (there == static_cast<int64_t>(job.tokens.size())) {
    paths_[static_cast<size_t>(job.transfer->asked_.slot)] = {0, job.domain, job.tokens};
    job.transfer->end(there);
  } else {
    job.transfer->end(Error{ErrorCode::overloaded, cat("slots: expected an anchor for the end of the path, found none ",
                                                       "free; ", there, " tokens are there")});
  }
  return true;
}

// As a request that computes nothing. What is there already stays: it has the same bits.
Result<void> PathTransfers::put(Job& job, const PathPart& part) {
  const int64_t wanted = part.kind == PartKind::page ? step_.page_bytes() : step_.anchor_bytes();
  if (static_cast<int64_t>(part.bytes.size()) != wanted || part.end <= 0 || part.end % kPageTokens != 0 ||
      part.end > static_cast<int64_t>(job.tokens.size()) ||
      (part.kind == PartKind::page ? part.end != job.position + kPageTokens : part.end != job.position))
    return Error{ErrorCode::bad_file, cat("expected the next page or its anchor, found one at ", part.end)};
  job.position = part.end;
  if (part.end <= job.lease.shared_tokens()) return {};
  if (part.kind == PartKind::page) {
    job.lease.extend(part.end);
    step_.copy(step_.page(page_at(job, part.end)), part.bytes.data(), step_.page_bytes());
    return {};
  }
  cache_.expect_branch(job.lease, part.end);  // Somebody waits for just this one.
  const std::optional<AnchorId> anchor = cache_.reserve_anchor(job.lease, part.end, part.capture_class);
  if (!anchor) return {};
  step_.copy(step_.anchor(*anchor), part.bytes.data(), step_.anchor_bytes());
  const auto covered = std::span<const TokenId>(job.tokens).first(static_cast<size_t>(part.end));
  if (cache_.publish(job.lease, covered, part.end, *anchor)) spill_.published(job.lease, covered, job.domain, *anchor);
  return {};
}

}  // namespace wp
