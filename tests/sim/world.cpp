#include "world.h"

#include <algorithm>

#include "core/log.h"
#include "testing/cache_peer.h"

namespace wp::sim {
namespace {

using testing::FakeModel;

constexpr int64_t kRamBlockBytes = 4096;
constexpr int64_t kPatienceNs = 3'000'000'000;  // With a disk that stands still, at a time.

// Those that the engine can meet. No fingerprint but the disk's own is compared here; and nobody is admitted while an
// anchor is being written (cache_test reaches that).
bool can_be_met(MissReason reason) {
  return reason != MissReason::model_changed && reason != MissReason::adapter_changed &&
         reason != MissReason::incomplete;
}

}  // namespace

std::vector<std::string> World::all_marks() {
  std::vector<std::string> marks{"arrived",
                                 "extended",
                                 "branched",
                                 "repeated",
                                 "restored",
                                 "repeat restored",
                                 "overloaded",
                                 "too long",
                                 "stop",
                                 "length",
                                 "numeric",
                                 "sampled",
                                 "log-probs",
                                 "prompt log-probs",
                                 "cancelled in queue",
                                 "cancelled in prefill",
                                 "cancelled in decode",
                                 "dropped",
                                 "all cancelled",
                                 "flushed",
                                 "held",
                                 "paused",
                                 "shared a pass",
                                 "captures dropped",
                                 "waited for a prefix",
                                 "turn consolidated",
                                 "turn gave way",
                                 "turn dropped",
                                 "turn not in time",
                                 "waited for room",
                                 "other domain",
                                 "pinned",
                                 "restarted",
                                 "killed",
                                 "disk stood still",
                                 "disk given up",
                                 "hold denied",
                                 "hold overridden",
                                 "victim drawn",
                                 "equal admitted",
                                 "ghost hit",
                                 "deduped",
                                 "ram: evicted",
                                 "ram: refused",
                                 "disk: evicted",
                                 "disk: segment evicted",
                                 "disk: moved",
                                 "disk: torn",
                                 "disk: foreign",
                                 "disk: dropped",
                                 "disk: write error",
                                 "disk: read error",
                                 "disk: corrupt"};
  for (int i = 0; i < kEvictionReasons; ++i) marks.push_back(cat("evicted: ", name(static_cast<EvictionReason>(i))));
  for (int i = 0; i < kCaptureRefusals; ++i) marks.push_back(cat("refused: ", name(static_cast<CaptureRefusal>(i))));
  for (int i = 0; i < kTiers; ++i) marks.push_back(cat("restored from ", name(static_cast<Tier>(i))));
  for (int i = 0; i < kCaptureClasses; ++i)
    for (const char* event : {"published ", "restored "})
      marks.push_back(cat(event, letter(static_cast<CaptureClass>(i))));
  for (int i = 0; i < kMissReasons; ++i)
    if (can_be_met(static_cast<MissReason>(i))) marks.push_back(cat("miss: ", name(static_cast<MissReason>(i))));
  for (const std::string& mark : SimulatedSlots::all_marks()) marks.push_back(mark);
  return marks;
}

World::World(Seed seed, const WorldOptions& options) : options_(options), rng_(seed) {
  configure_log({.level = LogLevel::error});
  limits_.context_tokens = kContext;
  limits_.sequences = static_cast<int32_t>(rng_.between(1, 6));
  // From one context, so that promises collide, to more than all can take.
  limits_.pages = static_cast<int32_t>(rng_.between(kContext / 64, kContext / 64 * limits_.sequences + 40));
  limits_.anchors = limits_.sequences + 2;  // The fewest allowed, in half of the worlds.
  if (rng_.percent(50)) limits_.anchors += static_cast<int32_t>(rng_.between(0, 2 * limits_.sequences + 4));
  limits_.queue_max = static_cast<int32_t>(rng_.between(2, 12));
  limits_.pass_tokens = 64 * rng_.between(1, 8);
  if (options.scarce_anchors) {
    limits_.anchors = limits_.sequences + 2;
    limits_.pass_tokens = kContext;
  }
  limits_.events_max = static_cast<int32_t>(rng_.between(1, 24));
  limits_.cache = options.cache;
  testing::FakeModelOptions model;
  model.end_token = kEndToken;
  model.end_every = 24;
  model.poison_token = kPoisonToken;
  model.context_max = kContext;
  model.clock = &clock_;
  model.pass_ns = rng_.between(100'000, 4'000'000);
  model.prefill_row_ns = rng_.between(10'000, 400'000);
  model.decode_row_ns = rng_.between(10'000, 500'000);
  model.prefill_row_and_key_ns = rng_.between(0, 300);
  model.fault = options.fault;
  // The least that can be kept: 64 rows at the end of the context, and a decode step, with the planner's margin.
  limits_.stall_ns = 2 * (model.pass_ns + 64 * (model.prefill_row_ns + kContext * model.prefill_row_and_key_ns) +
                          limits_.sequences * model.decode_row_ns + model.pass_ns);
  model_ = std::make_unique<FakeModel>(model);
  device_ = std::move(Device::make(DeviceKind::ref, 1)).value();
  const bool lies = options.sabotage == Sabotage::lying_disk;
  if (rng_.percent(60) && !lies) limits_.ram_bytes = kRamBlockBytes * rng_.between(4, rng_.percent(30) ? 10 : 120);
  if (rng_.percent(60) || lies)
    disk_ = std::make_unique<SimulatedDisk>(
        rng_.next(), model_->info(), clock_,
        SimulatedDiskOptions{.limit_bytes = rng_.between(200, 700) << 10, .faulty = rng_.percent(50), .lies = lies});
  known_.set_origin(numerics_);
  slots_ = std::make_unique<SimulatedSlots>(
      rng_.next(), known_, [this](const std::string& name) { mark(name); },
      [this](const std::string& what) { wrong(what); });
  for (int i = 0; i < 3; ++i) stems_.push_back(tokens(rng_.between(70, 400)));
  start();
}

void World::start() {
  core_ = std::move(EngineCore::make(*model_, *device_, limits_, clock_, disk_ ? &disk_->tier() : nullptr)).value();
  submitted_ = 0;
}

// In order or cut off; then the disk has what was on its way, or is killed too. Sometimes the kernels are others.
void World::restart() {
  if (rng_.percent(50)) finish_all();
  else cut_off();
  if (!problem_.empty()) return;
  clients_.clear();
  core_.reset();
  mark("restarted");
  if (rng_.percent(30)) {
    numerics_ = 3 - numerics_;
    known_.set_origin(numerics_);
    slots_->forget_saved();
  }
  if (disk_) {
    const bool killed = rng_.percent(50);
    if (killed) mark("killed");
    disk_->restart(killed, numerics_);
  } else {
    known_.clear();
  }
  start();
}

std::vector<TokenId> World::tokens(int64_t count) {
  std::vector<TokenId> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(token());
  return out;
}

void World::wrong(const std::string& what) {
  if (problem_.empty()) problem_ = cat("operation ", operations_, ": ", what);
}

void World::run(int64_t operations) {
  for (; operations_ < operations && problem_.empty(); ++operations_) operate();
  if (problem_.empty()) finish_all();
}

void World::operate() {
  const int64_t dice = rng_.between(0, 2039);
  if (dice < 220) {
    const GenerateRequest request = invent();  // Alike several times, as n = 3 is.
    for (int64_t left = rng_.percent(10) ? rng_.between(2, 4) : 1; left > 0; --left) arrive(request);
  } else if (dice < 1510) {
    step();
  } else if (dice < 1880) {
    for (Client& client : clients_)
      if (rng_.percent(client.reading_percent)) read(client, false);
    std::erase_if(clients_, [](const Client& client) { return client.finished; });
  } else if (dice < 1960) {
    leave_one();
  } else if (dice < 1962) {
    core_->cancel_all();
    for (Client& client : clients_) client.cancelled = true;
    mark("all cancelled");
  } else if (dice < 1965) {
    core_->flush_cache();
    mark("flushed");
  } else if (dice < 1970) {
    consolidate();
  } else if (dice < 1978) {
    core_->hold_conversation(cat("conversation-", rng_.between(0, 5)));
    mark("held");
  } else if (dice < 1982) {
    restart();
  } else if (dice < 2022) {
    slots_->begin(*core_);
  } else if (dice < 2026) {
    if (disk_) disk_->stand_still(!disk_->stands_still());
    if (disk_ && disk_->stands_still()) mark("disk stood still");
  } else if (core_->stats().decoding == 0) {  // Else it would look like a stall.
    const bool still = disk_ && disk_->stands_still();
    clock_.advance(rng_.between(1, still ? 2 * kPatienceNs : rng_.percent(10) ? 900'000'000'000 : 1'000'000'000));
  }
}

// As the serving layer does once an answer is out: what the next prompt will begin with, or something like it.
void World::consolidate() {
  if (past_.empty()) return;
  const GenerateRequest& old = past_[static_cast<size_t>(rng_.between(0, static_cast<int64_t>(past_.size()) - 1))];
  Consolidation turn{.tokens = old.tokens, .domain = old.cache.domain, .conversation = old.cache.conversation};
  const auto answer = testing::fake_answer(*model_, old).tokens;
  turn.tokens.insert(turn.tokens.end(), answer.begin(), answer.end());
  if (rng_.percent(10)) turn.tokens.push_back(kPoisonToken);
  if (rng_.percent(50)) turn.tokens.resize(turn.tokens.size() + 64, token());
  if (options_.sabotage == Sabotage::share_domains) turn.domain = 0;
  else known_.add(turn.domain, turn.tokens);
  core_->consolidate(std::move(turn));
}

void World::arrive(GenerateRequest request) {
  if (clients_.size() >= 24) return;
  Client client;
  client.request = std::move(request);
  client.repeat = std::any_of(past_.begin(), past_.end(),
                              [&](const GenerateRequest& old) { return old.tokens == client.request.tokens; });
  const auto n = static_cast<int64_t>(client.request.tokens.size());
  const int64_t waiting = core_->stats().waiting;
  GenerateRequest sent = client.request;
  if (options_.sabotage == Sabotage::share_domains) sent.cache.domain = 0;
  auto channel = core_->submit(std::move(sent));
  if (!channel.ok()) {
    const bool too_long = n + client.request.max_tokens > kContext;
    if (channel.error().code == ErrorCode::too_long && too_long) return mark("too long");
    if (channel.error().code == ErrorCode::overloaded && waiting >= limits_.queue_max) return mark("overloaded");
    return wrong(channel.error().message);
  }
  if (n + client.request.max_tokens > kContext) return wrong("a request that cannot fit was taken");
  mark("arrived");
  ++submitted_;
  known_.add(client.request.cache.domain, client.request.tokens);
  for (const CapturePoint& point : client.request.cache.captures)
    if (point.pin_ns > 0) mark("pinned");
  client.channel = *channel;
  client.expected = testing::fake_answer(*model_, client.request);
  const int64_t speed = rng_.between(0, 9);
  client.reading_percent = speed < 7 ? 100 : speed < 9 ? 30 : 4;
  if (past_.size() < 12) past_.push_back(client.request);
  else past_[static_cast<size_t>(rng_.between(0, 11))] = client.request;
  clients_.push_back(std::move(client));
}

void World::leave_one() {
  if (clients_.empty()) return;
  const auto at = rng_.between(0, static_cast<int64_t>(clients_.size()) - 1);
  Client& client = clients_[static_cast<size_t>(at)];
  if (rng_.percent(50)) {
    client.channel->cancel();
    client.cancelled = true;
    return;
  }
  client.channel->drop();
  clients_.erase(clients_.begin() + at);
  mark("dropped");
}

bool World::step() {
  if (options_.sabotage == Sabotage::evict_a_read_path && sabotage()) ++sabotaged_;
  const bool any = core_->step();
  if (disk_) disk_->settle();
  check_step();  // First: of a client of /slots that goes away the engine learns in the next step.
  slots_->after_step();
  return any;
}

bool World::sabotage() {
  return rng_.percent(10) && PrefixCachePeer::free_a_read_page(const_cast<PrefixCache&>(core_->cache()));
}

void World::check_step() {
  if (options_.check) core_->check();  // Aborts: C1 to C5, conservation, cached + computed == prompt.
  if (const std::string found = model_->violation(); !found.empty()) return wrong(found);
  const EngineStats stats = core_->stats();
  const bool consolidating = stats.consolidation.waiting > 0 && stats.running == 0;
  if (stats.cache.anchors_pending > consolidating) wrong("an anchor is pending between steps");
  if (stats.running > limits_.sequences || stats.waiting > limits_.queue_max) wrong("more runs or waits than may");
  if (stats.running + stats.waiting == 0 && !consolidating && !slots_->busy() && stats.cache.pages_leased != 0)
    wrong("pages are leased by nobody");
  if (stats.stall_ns_max > limits_.stall_ns)
    wrong(cat("a stream stood still for ", stats.stall_ns_max, " ns, allowed are ", limits_.stall_ns));
  if (stats.steps_waited_max > std::max(8, 2 * limits_.sequences))
    wrong(cat("a prompt waited ", stats.steps_waited_max, " steps"));
  if (stats.waiting > 0 && stats.running < limits_.sequences && stats.running > 0) mark("waited for room");
}

void World::read(Client& client, bool to_the_end) {
  for (int64_t events = to_the_end ? 1 << 20 : rng_.between(1, 6); events > 0; --events) {
    const auto event = client.channel->try_next();
    if (!event) return;
    see(client, *event);
  }
}

void World::see(Client& client, const TokenEvent& event) {
  trace_ = hash_text(cat(client.request.id, ' ', static_cast<int>(event.kind), ' ', event.token, ' ', event.logprob,
                         ' ', event.stats.cached_tokens, ' ', clock_.now_ns()),
                     trace_);
  if (client.finished) return wrong("an event after `finished`");
  switch (event.kind) {
    case TokenEvent::Kind::started: {
      if (client.started) wrong("started twice");
      client.started = true;
      const bool asked = client.request.prompt_logprobs;
      if (event.prompt_logprobs.size() != (asked ? client.request.tokens.size() - 1 : 0)) wrong("prompt log-probs");
      if (event.stats.cached_tokens > 0) mark(client.repeat ? "repeat restored" : "restored");
      if (event.stats.cached_tokens > known_.known(client.request.cache.domain, client.request.tokens, 1))
        wrong(cat(client.request.id, ": restored ", event.stats.cached_tokens, " tokens, more than its domain knows"));
      if (disk_ && disk_->stands_still() && event.stats.miss == MissReason::tier_fail) mark("disk given up");
      break;
    }
    case TokenEvent::Kind::progress:
      if (!client.started && !client.request.prompt_logprobs) wrong("progress before start");
      break;
    case TokenEvent::Kind::token: {
      const size_t at = client.tokens.size();
      if (!client.started) wrong("a token before start");
      if (at >= client.expected.tokens.size() || client.expected.tokens[at] != event.token)
        return wrong(cat(client.request.id, ": token ", at, " is another than alone"));
      if (client.request.sampling.top_logprobs >= 0 && client.expected.logprobs[at] != event.logprob)
        return wrong(cat(client.request.id, ": log-prob ", at, " is another than alone"));
      client.tokens.push_back(event.token);
      break;
    }
    case TokenEvent::Kind::finished: see_finish(client, event); break;
  }
}

void World::see_finish(Client& client, const TokenEvent& event) {
  client.finished = true;
  const RequestStats& stats = event.stats;
  const auto n = static_cast<int64_t>(client.request.tokens.size());
  if (stats.prompt_tokens != n || stats.cached_tokens + stats.computed_tokens != n)
    wrong("cached + computed != prompt");
  if (stats.cached_tokens % 64 != 0 || stats.cached_tokens >= n)
    wrong("cached tokens off the grid or the whole prompt");
  if (event.finish == FinishReason::cancelled) {
    if (!client.cancelled) wrong("cancelled by nobody");
    return;
  }
  if (event.finish == FinishReason::error) mark("numeric");
  else mark(name(event.finish));
  if (event.finish != client.expected.finish || client.tokens != client.expected.tokens)
    return wrong(cat(client.request.id, ": ended with ", name(event.finish), " after ", client.tokens.size(),
                     " tokens, expected ", name(client.expected.finish), " after ", client.expected.tokens.size()));
  const int64_t stop = event.finish == FinishReason::stop ? 1 : 0;
  if (stats.generated_tokens != static_cast<int64_t>(client.tokens.size()) + stop) wrong("generated tokens");
  if (stats.miss == MissReason::bypass && stats.cached_tokens != 0) wrong("a bypass was restored");
}

// Everybody reads: whatever was submitted must end, and all must be given back.
void World::finish_all() {
  if (rng_.percent(50)) core_->drain();
  if (disk_ && rng_.percent(50)) disk_->stand_still(false);
  for (int64_t quiet = 0; quiet < 6 && problem_.empty();) {
    for (Client& client : clients_) read(client, true);
    const bool moving = slots_->busy();
    quiet = step() || moving ? 0 : quiet + 1;
    slots_->after_step(true);
    if (quiet > 1 && disk_ && disk_->stands_still()) clock_.advance(kPatienceNs);
  }
  check_totals();
  if (!problem_.empty()) return;
  core_->flush_cache();
  step();
  const CacheStats cache = core_->stats().cache;
  if (cache.pages_free != cache.pages_total || cache.anchors_free != cache.anchors_total)
    wrong("pages or anchors are lost");
  mark_stats();
}

// The engine ends with whatever runs.
void World::cut_off() {
  slots_->begin(*core_);
  if (rng_.percent(50)) step();
  core_->shut_down();
  for (Client& client : clients_) {
    client.cancelled = true;
    read(client, true);
  }
  slots_->after_step(true);
  check_totals();
  mark_stats();
}

void World::check_totals() {
  if (!problem_.empty()) return;
  for (const Client& client : clients_)
    if (!client.finished) wrong(cat(client.request.id, ": never finished"));
  if (slots_->busy()) wrong("a slot is still being moved at the end");
  if (!core_->idle()) wrong("not idle at the end");
  const EngineStats stats = core_->stats();
  const int64_t ended = stats.finished_stop + stats.finished_length + stats.finished_error + stats.cancelled_queued +
                        stats.cancelled_prefill + stats.cancelled_decode;
  if (stats.requests_total != submitted_ || ended != submitted_) wrong("requests and ends differ in number");
  if (stats.running + stats.waiting != 0) wrong("something runs or waits at the end");
  const CacheStats cache = core_->cache().stats();
  if (cache.pages_leased + cache.anchors_pending != 0) wrong("something was not given back");
}

void World::mark_stats() {
  const EngineStats stats = core_->stats();
  const auto add = [&](const char* name, int64_t count) { marks_[name] += count; };
  add("cancelled in queue", stats.cancelled_queued);
  add("cancelled in prefill", stats.cancelled_prefill);
  add("cancelled in decode", stats.cancelled_decode);
  add("paused", stats.pauses);
  marks_["shared a pass"] = model_->shared_passes();
  add("captures dropped", stats.captures_dropped);
  add("waited for a prefix", stats.shared_prefills);
  add("turn consolidated", stats.consolidation.done);
  add("turn gave way", stats.consolidation.gave_way);
  add("turn dropped", stats.consolidation.dropped);
  add("turn not in time", stats.consolidation.tokens_request);
  for (int i = 0; i < kMissReasons; ++i) {
    const auto reason = static_cast<MissReason>(i);
    if (can_be_met(reason)) marks_[cat("miss: ", name(reason))] += stats.misses[i];
    else if (stats.misses[i] > 0) wrong(cat("a miss for a reason that cannot be: ", name(reason)));
  }
  mark_cache(stats.cache);
  mark_tiers(stats);
}

void World::mark_cache(const CacheStats& cache) {
  for (int i = 0; i < kEvictionReasons; ++i) {
    const auto reason = static_cast<EvictionReason>(i);
    marks_[cat("evicted: ", name(reason))] += cache.evictions_for(reason);
  }
  for (int i = 0; i < kCaptureRefusals; ++i)
    marks_[cat("refused: ", name(static_cast<CaptureRefusal>(i)))] += cache.refused_by_reason[i];
  for (int i = 0; i < kCaptureClasses; ++i) {
    const char of_class = letter(static_cast<CaptureClass>(i));
    marks_[cat("published ", of_class)] += cache.published_by_class[i];
    marks_[cat("restored ", of_class)] += cache.hit_tokens_by_class[i];
  }
  marks_["deduped"] += cache.deduped();
  marks_["hold denied"] += cache.hold_denials;
  marks_["hold overridden"] += cache.holds_overridden;
  marks_["victim drawn"] += cache.victims_drawn;
  marks_["equal admitted"] += cache.equals_admitted;
  marks_["ghost hit"] += cache.ghost_hits();
}

void World::mark_tiers(const EngineStats& stats) {
  for (int i = 0; i < kTiers; ++i) marks_[cat("restored from ", name(static_cast<Tier>(i)))] += stats.restores[i];
  marks_["ram: evicted"] += stats.ram.evicted;
  marks_["ram: refused"] += stats.ram.refused;
  marks_["disk: evicted"] += stats.disk.evicted;
  marks_["disk: segment evicted"] += stats.disk.segments_evicted;
  marks_["disk: moved"] += stats.disk.moved;
  marks_["disk: torn"] += stats.disk.torn;
  marks_["disk: foreign"] += stats.disk.foreign;
  marks_["disk: dropped"] += stats.disk.dropped;
  marks_["disk: write error"] += stats.disk.write_errors;
  marks_["disk: read error"] += stats.disk.read_errors;
  marks_["disk: corrupt"] += stats.disk.corrupt;
}

}  // namespace wp::sim
