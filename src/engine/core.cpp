// Everything of a step but the pass: what comes in, what is admitted, what ends. The pass is in core_pass.cpp.
#include "engine/core.h"

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "engine/captures.h"
#include "engine/limits.h"

namespace wp {
namespace {

constexpr int32_t kNodesToSpare = 4096;

const char* bypass_of(const GenerateRequest& request, const EngineLimits& limits) {
  if (!limits.cache) return "server";
  if (!request.cache.enabled) return "request";
  return request.prompt_logprobs ? "prompt_logprobs" : nullptr;
}

CacheLimits cache_limits(const EngineLimits& limits, const ModelInfo& info) {
  CacheLimits out;
  out.pages = limits.pages;
  out.anchors = limits.anchors;
  // A node holds its 64 token ids. What was evicted is remembered for as many tokens as there are pages, and some.
  out.nodes_max = 2 * limits.pages + kNodesToSpare;
  out.page_bytes = info.page_bytes;
  out.anchor_bytes = info.anchor_bytes;
  return out;
}

}  // namespace

const char* name(Tier tier) {
  switch (tier) {
    case Tier::device: return "device";
    case Tier::ram: return "ram";
    case Tier::disk: return "disk";
  }
  return "?";
}

const char* name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::stuck: return "stuck";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::error: return "error";
  }
  return "?";
}

Result<std::unique_ptr<EngineCore>> EngineCore::make(const Model& model, Device& device, const EngineLimits& limits,
                                                     Clock& clock, DiskTier* tier) {
  WP_TRY(const EngineLimits complete, complete_limits(limits, model.info()));
  std::unique_ptr<EngineCore> core(new EngineCore(model, complete, clock));
  WP_TRY(core->step_, Step::make(model, device, complete));
  if (!reads_host_memory(device.kind())) core->step_->warm_up(complete);
  core->counts_.device_bytes = core->step_->device_bytes();
  if (complete.ram_bytes > 0 && complete.cache) {
    const RamTierOptions sizes{complete.ram_bytes, model.info().page_bytes, model.info().anchor_bytes};
    WP_TRY(core->ram_, RamTier::make(device, sizes, clock));
  }
  core->spill_ = std::make_unique<Spill>(core->ram_.get(), tier, *core->cache_, *core->step_, clock, core->bell_);
  core->consolidator_ = std::make_unique<Consolidator>(*core->cache_, *core->step_, *core->spill_, clock);
  core->transfers_ = std::make_unique<PathTransfers>(complete.sequences, *core->cache_, *core->step_, *core->spill_);
  core->end_step(clock.now_ns());
  return core;
}

EngineCore::EngineCore(const Model& model, const EngineLimits& limits, Clock& clock)
    : model_(model),
      limits_(limits),
      clock_(clock),
      bell_(std::make_shared<Doorbell>()),
      queue_(limits.queue_max),
      cache_(std::make_unique<PrefixCache>(cache_limits(limits, model.info()), clock)),
      scheduler_(limits, model.info()),
      sampler_scratch_(model.info().vocabulary) {
  const auto sequences = static_cast<size_t>(limits.sequences);
  running_.resize(sequences);
  views_.reserve(sequences);
  segments_.reserve(sequences);
  plan_.pieces.reserve(sequences);
  captures_.reserve(sequences * (kCapturesPerTurn + kSharersPerTurn));
  captures_begin_.reserve(sequences + 1);
  counts_.pages_total = limits.pages;
  counts_.slots_total = limits.sequences;
  counts_.slots.resize(sequences);
}

EngineCore::~EngineCore() { shut_down(); }

Result<std::shared_ptr<EventChannel>> EngineCore::submit(GenerateRequest request) {
  WP_TRY(check_request(request, limits_, model_.info()));
  auto sequence = std::make_unique<Sequence>();
  auto channel = std::make_shared<EventChannel>(limits_.events_max, bell_);
  sequence->channel = channel;
  sequence->submitted_ns = clock_.now_ns();
  sequence->sampler = Sampler(request);
  sequence->prompt = static_cast<int64_t>(request.tokens.size());
  sequence->tokens = std::move(request.tokens);
  sequence->tokens.reserve(static_cast<size_t>(sequence->prompt + request.max_tokens));
  sequence->stats.prompt_tokens = sequence->stats.computed_tokens = sequence->prompt;
  sequence->request = std::move(request);
  WP_TRY(queue_.push(std::move(sequence)));
  bell_->ring();
  return channel;
}

void EngineCore::cancel_all() {
  queue_.order_cancel_all();
  bell_->ring();
}

void EngineCore::flush_cache() {
  queue_.order_flush();
  bell_->ring();
}

std::shared_ptr<PathTransfer> EngineCore::transfer(PathTransferOrder order) {
  auto made = std::make_shared<PathTransfer>(std::move(order), bell_);
  queue_.order_transfer(made);
  bell_->ring();
  return made;
}

std::shared_ptr<CacheViewOrder> EngineCore::view_cache(uint64_t domain) {
  auto made = std::make_shared<CacheViewOrder>(domain);
  queue_.order_view(made);
  bell_->ring();
  return made;
}

void EngineCore::hold_conversation(const std::string& conversation) {
  queue_.order_hold(conversation);
  bell_->ring();
}

void EngineCore::consolidate(Consolidation turn) {
  const auto n = static_cast<int64_t>(turn.tokens.size());
  const bool possible = std::all_of(turn.tokens.begin(), turn.tokens.end(),
                                    [&](TokenId token) { return token >= 0 && token < model_.info().vocabulary; });
  if (!limits_.cache || !limits_.consolidate || !possible || n > limits_.context_tokens) return;
  turn.tokens.resize(static_cast<size_t>(n / kPageTokens * kPageTokens));
  if (n < kCapturePromptMin) return;
  queue_.order_consolidation(std::move(turn));
  bell_->ring();
}

EngineStats EngineCore::stats() const {
  const int64_t turns_taken = queue_.turns_taken();  // Before those that ended, so that none is missed.
  std::lock_guard lock(stats_mutex_);
  EngineStats stats = published_;
  ConsolidationStats& turns = stats.consolidation;
  turns.waiting = std::max<int64_t>(0, turns_taken - turns.done - turns.dropped);
  stats.requests_total = queue_.submitted();
  stats.waiting = queue_.waiting();
  stats.disk = spill_->disk_stats();
  return stats;
}

bool EngineCore::step() {
  const int64_t begun_ns = clock_.now_ns();
  bool changed = obey_and_take();
  changed = drop_cancelled() || changed;
  if (!views_wanted_.empty()) {
    show_cache();
    changed = true;
  }
  if (transfers_->work()) {
    changed = true;
    admission_blocked_ = admission_blocked_ && transfers_->holds_pages();  // One may have ended, and made room.
  }
  changed = admit() || changed;
  view_sequences();
  scheduler_.decide(views_, plan_);
  if (plan_.kind == StepPlan::Kind::prefill) run_prefill();
  if (plan_.kind == StepPlan::Kind::decode) run_decode();
  if (plan_.kind != StepPlan::Kind::none) changed = true;
  else changed = use_idle_time() || changed;
  if (changed) end_step(begun_ns);
  else audit_when_idle();
  return changed;
}

void EngineCore::wait() {
  constexpr int64_t kLookAgainNs = 100'000'000;
  if (spill_->reading()) bell_->wait_within(kLookAgainNs);
  else bell_->wait();
}

bool EngineCore::use_idle_time() {
  const bool nobody_runs = std::all_of(running_.begin(), running_.end(), [](const auto& s) { return s == nullptr; });
  return nobody_runs && waiting_.empty() && queue_.waiting() == 0 && consolidator_->work();
}

bool EngineCore::obey_and_take() {
  const size_t before = waiting_.size();
  Orders orders = queue_.take(waiting_);
  const bool turns = !orders.turns.empty();
  for (Consolidation& turn : orders.turns) {
    transfers_->consolidated(turn);
    consolidator_->add(std::move(turn));
  }
  for (auto& transfer : orders.transfers) transfers_->add(std::move(transfer));
  for (auto& view : orders.views) views_wanted_.push_back(std::move(view));
  // Before anybody looks a prefix up or needs room.
  if (!waiting_.empty()) consolidator_->give_way(waiting_.front()->submitted_ns);
  if (orders.flush || orders.cancel_before > 0) consolidator_->drop_all();
  if (orders.flush) cache_->flush();
  for (const std::string& conversation : orders.holds) cache_->hold(conversation);
  for (const auto& sequence : waiting_)
    if (sequence->order < orders.cancel_before) sequence->channel->cancel();
  for (const auto& sequence : running_)
    if (sequence && sequence->order < orders.cancel_before) sequence->channel->cancel();
  return waiting_.size() != before || orders.flush || turns || !orders.transfers.empty() || orders.cancel_before > 0 ||
         !orders.holds.empty();
}

// One domain in a step, for all who asked about it, so that those who look hold up nobody who works.
void EngineCore::show_cache() {
  const uint64_t domain = views_wanted_.front()->domain;
  auto view = std::make_shared<CacheView>();
  view->tree = cache_->view(domain);
  for (const TreeRun& run : view->tree.runs)
    view->saved_ns.push_back(run.anchor ? scheduler_.prefill_ns(run.anchor->above, run.end) : 0);
  std::erase_if(views_wanted_, [&](const auto& wanted) {
    if (wanted->domain != domain) return false;
    wanted->give(view);
    return true;
  });
}

bool EngineCore::drop_cancelled() {
  bool any = false;
  for (size_t i = 0; i < waiting_.size();) {
    if (!waiting_[i]->channel->cancelled()) {
      ++i;
      continue;
    }
    admission_blocked_ = false;  // If it was the head, another is now, and may be smaller.
    std::unique_ptr<Sequence> sequence = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    queue_.one_left_the_queue();
    cancel(std::move(sequence));
    any = true;
  }
  for (std::unique_ptr<Sequence>& sequence : running_) {
    if (!sequence || !sequence->channel->cancelled()) continue;
    cancel(std::move(sequence));
    any = true;
  }
  return any;
}

void EngineCore::cancel(std::unique_ptr<Sequence> sequence) {
  switch (sequence->phase) {
    case SequencePhase::queued: ++counts_.cancelled_queued; break;
    case SequencePhase::prefill: ++counts_.cancelled_prefill; break;
    case SequencePhase::decode: ++counts_.cancelled_decode; break;
  }
  end(std::move(sequence), FinishReason::cancelled);
}

bool EngineCore::admit() {
  bool any = false;
  for (size_t at = 0; at < waiting_.size() && !admission_blocked_;) {
    if (std::find(running_.begin(), running_.end(), nullptr) == running_.end()) break;
    if (waits_for_prefix(*waiting_[at]) || spill_->waits(*waiting_[at], query_of(*waiting_[at]))) {
      ++at;
      continue;
    }
    if (!lease_for(*waiting_[at])) {
      // Only the end of a lease makes room. There is one, since no request is larger than the pool.
      WP_ASSERT(transfers_->holds_pages() ||
                std::any_of(running_.begin(), running_.end(), [](const auto& s) { return s != nullptr; }));
      admission_blocked_ = true;
      break;
    }
    std::unique_ptr<Sequence> sequence = std::move(waiting_[at]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(at));
    queue_.one_left_the_queue();
    const int32_t slot = slot_for(*sequence);
    begin(std::move(sequence), slot);
    any = true;
  }
  return any;
}

// Of the free ones the slot whose last path this prompt goes on with, so that a slot stays with its conversation; else
// the one unused for longest.
int32_t EngineCore::slot_for(const Sequence& sequence) const {
  int32_t best = -1;
  bool continues = false;
  for (int32_t slot = 0; slot < limits_.sequences; ++slot) {
    if (running_[static_cast<size_t>(slot)]) continue;
    const PathTransfers::SlotPath& path = transfers_->path(slot);
    const auto [at, unused] =
        std::mismatch(path.tokens.begin(), path.tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
    const auto common = at - path.tokens.begin();
    const bool own = path.domain == sequence.request.cache.domain && common >= kPageTokens &&
                     2 * common >= static_cast<ptrdiff_t>(path.tokens.size());
    const bool older = best < 0 || path.order < transfers_->path(best).order;
    if (own > continues || (own == continues && older)) best = slot;
    continues |= own;
  }
  return best;
}

PrefixQuery EngineCore::query_of(const Sequence& sequence) const {
  const CacheHints& hints = sequence.request.cache;
  return {.tokens = std::span(sequence.tokens).first(static_cast<size_t>(sequence.prompt)),
          .domain = hints.domain,
          .conversation = hints.conversation,
          .continues = hints.continues,
          .bypass = bypass_of(sequence.request, limits_)};
}

bool EngineCore::lease_for(Sequence& sequence) {
  const int64_t begun_ns = clock_.now_ns();
  std::optional<Lease> lease = cache_->acquire(query_of(sequence), sequence.prompt + sequence.request.max_tokens);
  if (!lease) return false;
  sequence.lease = std::move(*lease);
  sequence.leased_ns = clock_.now_ns();
  sequence.stats.queue_ns = begun_ns - sequence.submitted_ns;
  sequence.stats.restore_ns = sequence.leased_ns - begun_ns;
  return true;
}

void EngineCore::begin(std::unique_ptr<Sequence> sequence, int32_t slot) {
  const Match& match = sequence->lease.match();
  WP_ASSERT(match.anchor_position % kPageTokens == 0 && match.anchor_position < sequence->prompt);
  sequence->slot = slot;
  sequence->phase = SequencePhase::prefill;
  sequence->computed = match.anchor_position;
  RequestStats& stats = sequence->stats;
  stats.slot = slot;
  stats.order = sequence->order + 1;
  stats.cached_tokens = match.anchor_position;
  stats.computed_tokens = sequence->prompt - match.anchor_position;
  stats.match_tokens = match.match;
  stats.miss = match.reason;
  stats.miss_detail = match.detail;
  stats.restored = match.anchor_position > 0;
  spill_->resumed(*sequence);
  stats.anchor_class = match.anchor_class;
  if (match.reason == MissReason::diverged) {
    stats.diverged_at = match.diverged_at;
    stats.had = match.had;
    stats.nearest = match.nearest;
  }
  if (match.reason != MissReason::bypass) {
    const CacheHints& hints = sequence->request.cache;
    for (const CapturePoint& point : hints.captures)
      if (point.pin_ns > 0) cache_->pin(sequence->lease, point.position, point.pin_ns);
    sequence->unconsolidated = consolidator_->begin_request(sequence->tokens, hints.domain, match.anchor_position);
    CaptureChoice choice = choose_captures(sequence->request.cache.captures, match, sequence->prompt);
    sequence->captures = std::move(choice.points);
    counts_.captures_dropped += choice.dropped;
  }
  ++counts_.misses[static_cast<size_t>(stats.miss)];
  if (stats.restored) {
    ++counts_.restores[static_cast<size_t>(stats.tier)];
    counts_.hit_tokens[static_cast<size_t>(stats.tier)][static_cast<size_t>(stats.anchor_class)] += stats.cached_tokens;
  }
  counts_.prompt_tokens += sequence->prompt;
  log_restore(*sequence);
  if (!sequence->request.prompt_logprobs) send_started(*sequence);
  running_[static_cast<size_t>(slot)] = std::move(sequence);
}

void EngineCore::log_restore(const Sequence& sequence) {
  const Match& match = sequence.lease.match();
  log_prefix({.id = sequence.request.id,
              .tokens = std::span(sequence.tokens).first(static_cast<size_t>(sequence.prompt)),
              .match = &match,
              .stats = &sequence.stats,
              .prefill_ns = scheduler_.prefill_ns(match.anchor_position, sequence.prompt),
              .saved_ns = scheduler_.prefill_ns(0, match.anchor_position),
              .anchors_are_short = published_.cache.captures_refused() > 0});
}

void EngineCore::view_sequences() {
  views_.clear();
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence* sequence = running_[i].get();
    if (!sequence) continue;
    const bool decoding = sequence->phase == SequencePhase::decode;
    const bool ready = !decoding || sequence->channel->has_room();
    if (!ready && !sequence->paused) {
      sequence->paused = true;
      ++counts_.pauses;
    }
    views_.push_back({.index = static_cast<int32_t>(i),
                      .decoding = decoding,
                      .ready = ready,
                      .position = sequence->computed,
                      .prompt = sequence->prompt,
                      .steps_waited = sequence->steps_waited,
                      .order = sequence->order,
                      .all_logits = sequence->request.prompt_logprobs});
  }
}

void EngineCore::send_started(Sequence& sequence) {
  TokenEvent event;
  event.kind = TokenEvent::Kind::started;
  event.prompt_logprobs = std::move(sequence.prompt_logprobs);
  event.stats = sequence.stats;
  sequence.channel->push(std::move(event));
}

void EngineCore::send_progress(Sequence& sequence) {
  TokenEvent event;
  event.kind = TokenEvent::Kind::progress;
  event.prompt_done = sequence.computed;
  event.stats = sequence.stats;
  sequence.channel->push(std::move(event));
}

void EngineCore::end_running(Sequence& sequence, FinishReason reason, std::string error) {
  end(std::move(running_[static_cast<size_t>(sequence.slot)]), reason, std::move(error));
}

void EngineCore::end(std::unique_ptr<Sequence> sequence, FinishReason reason, std::string error) {
  const int64_t now_ns = clock_.now_ns();
  RequestStats& stats = sequence->stats;
  if (sequence->phase == SequencePhase::queued) stats.queue_ns = now_ns - sequence->submitted_ns;
  stats.total_ns = now_ns - sequence->submitted_ns;
  stats.generated_tokens = sequence->generated;
  if (sequence->first_token_ns >= 0) stats.decode_ns = sequence->last_token_ns - sequence->first_token_ns;
  switch (reason) {
    case FinishReason::stop: ++counts_.finished_stop; break;
    case FinishReason::length: ++counts_.finished_length; break;
    case FinishReason::stuck: ++counts_.finished_stuck; break;
    case FinishReason::error: ++counts_.finished_error; break;
    case FinishReason::cancelled: break;  // Counted by phase.
  }
  spill_->forget(*sequence);
  sequence->lease = Lease();
  if (stats.slot >= 0) {
    counts_.slots[static_cast<size_t>(stats.slot)].generated_tokens = stats.generated_tokens;
    transfers_->ran(stats.slot, stats.order, sequence->request.cache.domain, std::move(sequence->tokens));
  }
  admission_blocked_ = false;

  TokenEvent event;
  event.kind = TokenEvent::Kind::finished;
  event.finish = reason;
  event.error = std::move(error);
  event.stats = stats;
  ended_.push_back({std::move(sequence->channel), std::move(event)});
}

void EngineCore::end_step(int64_t begun_ns) {
  const int64_t elapsed_ns = clock_.now_ns() - begun_ns;
  if (plan_.kind == StepPlan::Kind::prefill) counts_.prefill_ns += elapsed_ns;
  if (plan_.kind == StepPlan::Kind::decode) counts_.decode_ns += elapsed_ns;
  counts_.running = counts_.prefilling = counts_.decoding = 0;
  for (const auto& sequence : running_) {
    if (!sequence) continue;
    ++counts_.running;
    ++(sequence->phase == SequencePhase::decode ? counts_.decoding : counts_.prefilling);
  }
  count_slots();
  counts_.cache = cache_->stats();
  spill_->count(counts_);
  counts_.consolidation = consolidator_->stats();
  {
    std::lock_guard lock(stats_mutex_);
    published_ = counts_;
  }
  // Last: who has seen `finished` finds the slot free and the request counted.
  for (Ended& ended : ended_) {
    queue_.one_finished();
    ended.channel->push(std::move(ended.event));
  }
  ended_.clear();
}

void EngineCore::count_slots() {
  for (size_t i = 0; i < running_.size(); ++i) {
    SlotStats& slot = counts_.slots[i];
    slot.running = running_[i] != nullptr;
    if (!slot.running) continue;
    const Sequence& sequence = *running_[i];
    const SamplingParams& sampling = sequence.request.sampling;
    slot = {.running = true,
            .prefilling = sequence.phase != SequencePhase::decode,
            .order = sequence.stats.order,
            .prompt_tokens = sequence.prompt,
            .cached_tokens = sequence.stats.cached_tokens,
            .generated_tokens = sequence.generated,
            .max_tokens = sequence.request.max_tokens,
            .miss = sequence.stats.miss,
            .temperature = sampling.temperature,
            .top_p = sampling.top_p,
            .min_p = sampling.min_p,
            .top_k = sampling.top_k,
            .seed = sampling.seed};
  }
}

// A release build checks the invariants while nobody waits for it, at most once a second.
void EngineCore::audit_when_idle() {
  constexpr int64_t kBetween = 1'000'000'000;
  const int64_t now_ns = clock_.now_ns();
  if (!idle() || now_ns - audited_ns_ < kBetween) return;
  audited_ns_ = now_ns;
  check();
}

void EngineCore::check() const {
  cache_->check();
  for (size_t i = 0; i < running_.size(); ++i) {
    const Sequence* sequence = running_[i].get();
    if (!sequence) continue;
    WP_ASSERT(sequence->slot == static_cast<int32_t>(i));
    WP_ASSERT(sequence->phase != SequencePhase::queued && sequence->lease);
    const RequestStats& stats = sequence->stats;
    WP_ASSERT(stats.cached_tokens + stats.computed_tokens == stats.prompt_tokens);
  }
}

void EngineCore::shut_down() {
  queue_.drain();
  queue_.order_cancel_all();
  obey_and_take();
  for (const auto& wanted : views_wanted_) wanted->give(nullptr);
  views_wanted_.clear();
  const bool dropped = drop_cancelled();
  if (consolidator_) consolidator_->drop_all();
  if (transfers_) transfers_->drop_all();
  if (dropped) end_step(clock_.now_ns());
}

}  // namespace wp
