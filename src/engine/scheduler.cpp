#include "engine/scheduler.h"

#include <algorithm>
#include <bit>

#include "engine/limits.h"

namespace wp {
namespace {

constexpr double kMargin = 0.85;     // Of the time limit that a pass is planned to fill.
constexpr int64_t kStepsOfWait = 8;  // Within which each of up to four prompts has its piece.

// Rises at once and falls slowly: the estimate is of a bad pass, not of the average one.
double worst_recent(double known, double found) { return found > known ? found : known + (found - known) / 8; }

int64_t down_to_grid(int64_t tokens) { return tokens / kPageTokens * kPageTokens; }

}  // namespace

PassSpeed::PassSpeed(const ModelInfo& info)
    : per_token_(std::max(1.0, info.multiply_adds_per_token)),
      per_key_(info.multiply_adds_per_token_and_key),
      per_block_(info.multiply_adds_per_token_and_block),
      sparse_bound_(info.sparse_bound) {}

double PassSpeed::work(int64_t position, int64_t rows) const {
  const double visible = static_cast<double>(position) + static_cast<double>(rows) / 2;  // On average.
  const double keys = sparse_bound_ > 0 ? std::min(visible, static_cast<double>(sparse_bound_)) : visible;
  const double blocks = sparse_bound_ > 0 ? visible / 4 : 0;
  return static_cast<double>(rows) * (per_token_ + per_key_ * keys + per_block_ * blocks);
}

// Pages 1..7 have a bucket each, then eight share each doubling: close enough that a bucket's passes are alike.
int PassSpeed::bucket_of(int64_t rows) {
  const auto pages = static_cast<uint64_t>(std::max<int64_t>(1, rows / kPageTokens));
  const int width = static_cast<int>(std::bit_width(pages));
  const int bucket =
      width < 4 ? static_cast<int>(pages) : 8 * (width - 3) + static_cast<int>((pages >> (width - 4)) & 7);
  return std::min(bucket, kBuckets - 1);
}

int64_t PassSpeed::first_rows(int bucket) {
  return kPageTokens * (bucket < 8 ? bucket : int64_t{8 + bucket % 8} << (bucket / 8 - 1));
}

void PassSpeed::measured(int64_t rows, double work, int64_t elapsed_ns) {
  if (work <= 0 || rows < kPageTokens) return;  // A few rows say nothing of 64.
  const int bucket = bucket_of(rows);
  const double found = static_cast<double>(elapsed_ns) / work;
  double& known = ns_per_work_[static_cast<size_t>(bucket)];
  known = worst_recent(known, found);
  // One slow pass must not bar its size for ever: since it would not be tried again, smaller ones speak for it.
  for (int larger = bucket + 1; larger < kBuckets; ++larger) {
    double& other = ns_per_work_[static_cast<size_t>(larger)];
    if (other > found) other -= (other - found) / 32;
  }
}

double PassSpeed::estimate_ns(int64_t position, int64_t rows) const {
  const int bucket = bucket_of(rows);
  double estimate = -1;
  // A smaller pass is the less efficient one, so scaling it up bounds from above.
  for (int i = bucket; i >= 0 && estimate < 0; --i)
    if (ns_per_work_[static_cast<size_t>(i)] > 0)
      estimate = ns_per_work_[static_cast<size_t>(i)] * work(position, rows);
  // So does a larger pass as a whole.
  for (int i = bucket + 1; i < kBuckets; ++i) {
    if (ns_per_work_[static_cast<size_t>(i)] <= 0) continue;
    const double larger = ns_per_work_[static_cast<size_t>(i)] * work(position, first_rows(i + 1));
    return estimate < 0 ? larger : std::min(estimate, larger);
  }
  return estimate;
}

Scheduler::Scheduler(const EngineLimits& limits, const ModelInfo& info)
    : pass_tokens_(limits.pass_tokens), stall_ns_(limits.stall_ns), speed_(info) {
  wanting_.reserve(static_cast<size_t>(limits.sequences));
  decode_ns_.resize(static_cast<size_t>(limits.sequences) + 1);
}

// Worst recent pass of so many rows, or of the next wider one that is known; scaled up from a narrower one.
double Scheduler::decode_estimate_ns(int64_t rows) const {
  const auto known = decode_ns_.begin() + rows;
  const auto wider = std::find_if(known, decode_ns_.end(), [](double ns) { return ns > 0; });
  if (wider != decode_ns_.end()) return *wider;
  for (auto narrower = known; narrower != decode_ns_.begin();)
    if (*--narrower > 0)
      return *narrower * static_cast<double>(rows) / static_cast<double>(narrower - decode_ns_.begin());
  return 0;
}

int64_t Scheduler::rows_within_stall(int64_t position, int64_t decoders) const {
  const double budget_ns = kMargin * static_cast<double>(stall_ns_) - decode_estimate_ns(decoders);
  int64_t rows = kPageTokens;
  for (int64_t more = 2 * kPageTokens; more <= pass_tokens_; more += kPageTokens) {
    const double estimate = speed_.estimate_ns(position, more);
    if (estimate >= 0 && estimate <= budget_ns) rows = more;
  }
  return rows;
}

int64_t Scheduler::prefill_ns(int64_t begin, int64_t end) const {
  double sum = 0;
  for (int64_t at = begin; at < end;) {
    const int64_t rows = std::min(end - at, pass_tokens_);
    const double estimate = speed_.estimate_ns(at, rows);
    if (estimate < 0) return 0;
    sum += estimate;
    at += rows;
  }
  return static_cast<int64_t>(sum);
}

void Scheduler::plan_decode(std::span<const SequenceView> sequences, StepPlan& plan) const {
  plan.kind = StepPlan::Kind::decode;
  for (const SequenceView& sequence : sequences)
    if (sequence.decoding && sequence.ready) plan.pieces.push_back({sequence.index, sequence.position, 1});
  plan.rows = static_cast<int64_t>(plan.pieces.size());
}

void Scheduler::plan_prefill(std::span<const SequenceView> sequences, int64_t rows, StepPlan& plan) {
  wanting_.clear();
  for (const SequenceView& sequence : sequences)
    if (!sequence.decoding) wanting_.push_back(sequence);
  const int64_t patience = std::max<int64_t>(0, kStepsOfWait - 2 * static_cast<int64_t>(wanting_.size()));
  const auto aged = [&](const SequenceView& s) { return s.steps_waited >= patience && s.steps_waited > 0; };
  std::sort(wanting_.begin(), wanting_.end(), [&](const SequenceView& a, const SequenceView& b) {
    if (aged(a) != aged(b)) return aged(a);
    if (aged(a) && a.steps_waited != b.steps_waited) return a.steps_waited > b.steps_waited;
    const int64_t left_a = a.prompt - a.position, left_b = b.prompt - b.position;
    return left_a != left_b ? left_a < left_b : a.order < b.order;
  });

  plan.kind = StepPlan::Kind::prefill;
  bool all_logits_taken = false;
  for (size_t i = 0; i < wanting_.size() && rows > 0; ++i) {
    const SequenceView& sequence = wanting_[i];
    int64_t share = rows;
    // One that was let in for its age leaves half to those it went before.
    if (aged(sequence) && i + 1 < wanting_.size())
      share = std::min(rows, std::max(kPageTokens, down_to_grid(rows / 2)));
    if (sequence.all_logits) {
      if (all_logits_taken) continue;
      share = std::min<int64_t>(share, kLogprobRows);
    }
    const int64_t left = sequence.prompt - sequence.position;
    const int64_t taken = left <= share ? left : down_to_grid(share);
    if (taken == 0) continue;
    all_logits_taken = all_logits_taken || sequence.all_logits;
    plan.pieces.push_back({sequence.index, sequence.position, static_cast<int32_t>(taken)});
    plan.rows += taken;
    rows -= taken;
  }
}

void Scheduler::decide(std::span<const SequenceView> sequences, StepPlan& plan) {
  plan.kind = StepPlan::Kind::none;
  plan.pieces.clear();
  plan.rows = 0;
  bool can_decode = false, can_prefill = false;
  int64_t deepest = 0;
  for (const SequenceView& sequence : sequences) {
    if (sequence.decoding) {
      can_decode = can_decode || sequence.ready;
    } else {
      can_prefill = true;
      deepest = std::max(deepest, sequence.position);
    }
  }
  // The decode pass after this one may have every sequence in it.
  const auto running = static_cast<int64_t>(sequences.size());
  if (can_decode && (prefill_was_last_ || !can_prefill)) plan_decode(sequences, plan);
  else if (can_prefill) plan_prefill(sequences, can_decode ? rows_within_stall(deepest, running) : pass_tokens_, plan);
  prefill_was_last_ = plan.kind == StepPlan::Kind::prefill;
}

void Scheduler::measured(const StepPlan& plan, int64_t elapsed_ns) {
  if (plan.kind == StepPlan::Kind::decode) {
    double& known = decode_ns_[static_cast<size_t>(plan.rows)];
    known = worst_recent(known, static_cast<double>(elapsed_ns));
  }
  if (plan.kind != StepPlan::Kind::prefill) return;
  double work = 0;
  for (const Piece& piece : plan.pieces) work += speed_.work(piece.position, piece.rows);
  speed_.measured(plan.rows, work, elapsed_ns);
}

}  // namespace wp
