#include "world.h"

#include <algorithm>

#include "core/log.h"

namespace wp::sim {
namespace {

using testing::FakeModel;

constexpr TokenId kEndToken = 1, kPoisonToken = 63;
constexpr int64_t kContext = 1024;

}  // namespace

std::vector<std::string> World::all_marks() {
  return {"arrived",
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
          "captures refused",
          "captures dropped",
          "evicted",
          "published",
          "deduped",
          "branch captured",
          "waited for a prefix",
          "turn consolidated",
          "turn gave way",
          "turn dropped",
          "turn not in time",
          "turn restored",
          "waited for room"};
}

World::World(Seed seed, const WorldOptions& options) : rng_(seed) {
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
  core_ = std::move(EngineCore::make(*model_, *device_, limits_, clock_)).value();
  for (int i = 0; i < 3; ++i) stems_.push_back(tokens(rng_.between(70, 400)));
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
  const int64_t dice = rng_.between(0, 999);
  if (dice < 110) {
    arrive();
  } else if (dice < 760) {
    step();
  } else if (dice < 945) {
    for (Client& client : clients_)
      if (rng_.percent(client.reading_percent)) read(client, false);
    std::erase_if(clients_, [](const Client& client) { return client.finished; });
  } else if (dice < 985) {
    leave_one();
  } else if (dice < 987) {
    core_->cancel_all();
    for (Client& client : clients_) client.cancelled = true;
    mark("all cancelled");
  } else if (dice < 990) {
    core_->flush_cache();
    mark("flushed");
  } else if (dice < 992) {
    consolidate();
  } else if (dice < 996) {
    core_->hold_conversation(cat("conversation-", rng_.between(0, 5)));
    mark("held");
  } else if (core_->stats().decoding == 0) {  // Else it would look like a stall.
    clock_.advance(rng_.between(1, 1'000'000'000));
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
  core_->consolidate(std::move(turn));
}

// A new conversation on one of the stems, or an old prompt: extended, cut and continued, or as it was.
std::vector<TokenId> World::invent_prompt(GenerateRequest& request) {
  const int64_t kind = past_.empty() ? 0 : rng_.between(0, 99);
  if (kind >= 30) {
    const GenerateRequest& old = past_[static_cast<size_t>(rng_.between(0, static_cast<int64_t>(past_.size()) - 1))];
    std::vector<TokenId> prompt = old.tokens;
    request.cache = old.cache;
    if (kind >= 85) {
      mark("repeated");
      return prompt;
    }
    if (kind < 70) {
      const auto answer = testing::fake_answer(*model_, old).tokens;
      prompt.insert(prompt.end(), answer.begin(), answer.end());
      request.cache.continues = true;
      mark("extended");
    } else {
      prompt.resize(static_cast<size_t>(rng_.between(1, static_cast<int64_t>(prompt.size()))));
      mark("branched");
    }
    const auto more = tokens(rng_.between(1, rng_.percent(70) ? 130 : 400));
    prompt.insert(prompt.end(), more.begin(), more.end());
    if (static_cast<int64_t>(prompt.size()) < kContext) return prompt;
  }
  request.cache = {};
  request.cache.conversation = rng_.percent(70) ? cat("conversation-", rng_.between(0, 5)) : "";
  std::vector<TokenId> prompt = rng_.percent(80) ? stems_[static_cast<size_t>(rng_.between(0, 2))] : tokens(1);
  const auto more = tokens(rng_.between(0, rng_.percent(60) ? 100 : 600));
  prompt.insert(prompt.end(), more.begin(), more.end());
  return prompt;
}

void World::invent_captures(GenerateRequest& request, int64_t stem) {
  const auto n = static_cast<int64_t>(request.tokens.size());
  auto& points = request.cache.captures;
  points.clear();
  if (rng_.percent(80)) points.push_back({stem / 64 * 64, CaptureClass::system});
  if (rng_.percent(90)) points.push_back({std::max<int64_t>(0, n - rng_.between(1, 40)) / 64 * 64, CaptureClass::tail});
  for (int i = 0; i < 3; ++i)
    if (rng_.percent(40)) points.push_back({rng_.between(0, n) / 64 * 64, CaptureClass::user});
  if (rng_.percent(5)) points.push_back({rng_.between(-100, n + 100), CaptureClass::user});  // Off the grid, mostly.
}

void World::invent_sampling(GenerateRequest& request) {
  SamplingParams& sampling = request.sampling;
  if (rng_.percent(50)) {
    sampling.temperature = static_cast<float>(rng_.between(1, 20)) / 10;
    sampling.seed = rng_.next();
    if (rng_.percent(50)) sampling.top_k = static_cast<int32_t>(rng_.between(1, 80));
    if (rng_.percent(50)) sampling.top_p = static_cast<float>(rng_.real());
    if (rng_.percent(30)) sampling.min_p = static_cast<float>(rng_.real()) / 4;
    mark("sampled");
  }
  if (rng_.percent(30)) sampling.repetition_penalty = 1.0f + static_cast<float>(rng_.real());
  if (rng_.percent(30)) sampling.presence_penalty = static_cast<float>(rng_.real());
  if (rng_.percent(30)) sampling.frequency_penalty = static_cast<float>(rng_.real());
  if (rng_.percent(20)) sampling.logit_bias = {{token(), 5.0f}, {token(), -5.0f}};
  if (rng_.percent(30)) {
    sampling.top_logprobs = static_cast<int32_t>(rng_.between(0, 5));
    mark("log-probs");
  }
}

GenerateRequest World::invent() {
  GenerateRequest request;
  request.tokens = invent_prompt(request);
  const auto n = static_cast<int64_t>(request.tokens.size());
  if (rng_.percent(1)) request.tokens.back() = kPoisonToken;
  request.id = cat("r-", arrivals_);
  request.max_tokens = std::max<int64_t>(1, std::min(rng_.between(1, rng_.percent(80) ? 30 : 200), kContext - n));
  if (rng_.percent(2)) request.max_tokens = kContext + 1 - n;  // One too many.
  if (rng_.percent(80)) request.stop_tokens = {kEndToken};
  request.min_tokens = rng_.percent(20) ? rng_.between(0, 20) : 0;
  request.vocabulary_limit = rng_.percent(20) ? 40 : 0;
  request.progress = rng_.percent(30);
  request.cache.enabled = !rng_.percent(5);
  if (rng_.percent(3)) {
    request.prompt_logprobs = true;
    mark("prompt log-probs");
  }
  invent_captures(request, static_cast<int64_t>(stems_[0].size()));
  invent_sampling(request);
  return request;
}

void World::arrive() {
  if (clients_.size() >= 24) return;
  ++arrivals_;
  Client client;
  client.request = invent();
  client.repeat = std::any_of(past_.begin(), past_.end(),
                              [&](const GenerateRequest& old) { return old.tokens == client.request.tokens; });
  const auto n = static_cast<int64_t>(client.request.tokens.size());
  const int64_t waiting = core_->stats().waiting;
  auto channel = core_->submit(client.request);
  if (!channel.ok()) {
    const bool too_long = n + client.request.max_tokens > kContext;
    if (channel.error().code == ErrorCode::too_long && too_long) return mark("too long");
    if (channel.error().code == ErrorCode::overloaded && waiting >= limits_.queue_max) return mark("overloaded");
    return wrong(channel.error().message);
  }
  if (n + client.request.max_tokens > kContext) return wrong("a request that cannot fit was taken");
  mark("arrived");
  ++submitted_;
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
  if (!client.finished) ++dropped_;
  client.channel->drop();
  clients_.erase(clients_.begin() + at);
  mark("dropped");
}

void World::step() {
  core_->step();
  check_step();
}

void World::check_step() {
  core_->check();  // Aborts: C1 to C5, conservation, cached + computed == prompt.
  if (const std::string found = model_->violation(); !found.empty()) return wrong(found);
  const EngineStats stats = core_->stats();
  const bool consolidating = stats.consolidation.waiting > 0 && stats.running == 0;
  if (stats.cache.anchors_pending > consolidating) wrong("an anchor is pending between steps");
  if (stats.running > limits_.sequences || stats.waiting > limits_.queue_max) wrong("more runs or waits than may");
  if (stats.running + stats.waiting == 0 && !consolidating && stats.cache.pages_leased != 0)
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
  ++finished_;
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
  for (int64_t quiet = 0; quiet < 3 && problem_.empty();) {
    for (Client& client : clients_) read(client, true);
    quiet = core_->step() ? 0 : quiet + 1;
    check_step();
  }
  check_totals();
  mark_stats();
}

void World::check_totals() {
  if (!problem_.empty()) return;
  for (const Client& client : clients_)
    if (!client.finished) wrong(cat(client.request.id, ": never finished"));
  if (!core_->idle()) wrong("not idle at the end");
  const EngineStats stats = core_->stats();
  const int64_t ended = stats.finished_stop + stats.finished_length + stats.finished_error + stats.cancelled_queued +
                        stats.cancelled_prefill + stats.cancelled_decode;
  if (stats.requests_total != submitted_ || ended != submitted_) wrong("requests and ends differ in number");
  if (stats.consolidation.waiting != 0) wrong("a turn waits that nobody will consolidate");
  if (stats.running + stats.waiting + stats.cache.pages_leased + stats.cache.anchors_pending != 0)
    wrong("something was not given back");
  core_->flush_cache();
  core_->step();
  check_step();
  const CacheStats cache = core_->stats().cache;
  if (cache.pages_free != cache.pages_total || cache.anchors_free != cache.anchors_total)
    wrong("pages or anchors are lost");
}

void World::mark_stats() {
  const EngineStats stats = core_->stats();
  const auto add = [&](const char* name, int64_t count) { marks_[name] += count; };
  add("cancelled in queue", stats.cancelled_queued);
  add("cancelled in prefill", stats.cancelled_prefill);
  add("cancelled in decode", stats.cancelled_decode);
  add("paused", stats.pauses);
  add("shared a pass", model_->shared_passes());
  add("captures refused", stats.cache.captures_refused());
  add("captures dropped", stats.captures_dropped);
  add("published", stats.cache.published());
  add("deduped", stats.cache.deduped());
  for (int reason = 0; reason < kEvictionReasons; ++reason)
    add("evicted", stats.cache.evictions_for(static_cast<EvictionReason>(reason)));
  add("waited for a prefix", stats.shared_prefills);
  add("turn consolidated", stats.consolidation.done);
  add("turn gave way", stats.consolidation.gave_way);
  add("turn dropped", stats.consolidation.dropped);
  add("turn not in time", stats.consolidation.tokens_request);
  add("turn restored", stats.cache.hit_tokens_by_class[static_cast<size_t>(CaptureClass::assistant)]);
  add("branch captured", stats.cache.hit_tokens_by_class[static_cast<size_t>(CaptureClass::branch)]);
}

}  // namespace wp::sim
