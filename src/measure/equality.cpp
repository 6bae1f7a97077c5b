#include "measure/equality.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "core/cat.h"
#include "core/clock.h"
#include "engine/core.h"
#include "measure/temporary_folder.h"

namespace wp::measure {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int64_t kSuffixes[] = {1, 7, 63, 64, 65, 127, 128, 129, 130};
// Edges of capture, of the dense bound of sparse attention (the bundled model's and the flagship's) and of a pass.
constexpr int64_t kLengths[] = {40,  64,  65,  255, 256, 257,  258,  259,  260,
                                261, 320, 321, 512, 513, 2050, 2051, 2052, 2053};
constexpr int64_t kPassTokens[] = {64, 192, 512};
constexpr int64_t kColdPassTokens = 1024;
constexpr int64_t kAnswerMax = 8;
constexpr int32_t kSessions = 4, kTop = 4;
constexpr int32_t kAnchors = 64;  // More than a case leaves behind: what the oracle predicts holds without eviction.
constexpr int64_t kSuffixRoom = 1024;
constexpr int64_t kWaitNs = 100'000'000;  // For the disk, each time.
constexpr int kWaitsMax = 300;

struct Answer {
  Tokens tokens;
  std::vector<TokenLogprob> logprobs;  // The sampled token's, then the alternatives', token by token.
  int64_t cached = 0;
  int64_t prompt_done = 0;
  Tier tier = Tier::device;
  FinishReason finish = FinishReason::error;
  std::string error;
};

struct Turn {
  Tokens prompt;
  int64_t system = 0;
  SamplingParams sampling;
  int64_t max_tokens = 1;
  int64_t cancel_after = -1;  // Steps; -1: never.
};

// The engine with the cache, and what lies behind it: a case's own where that is something, so that it is empty.
class Warm {
 public:
  Warm(const Model& model, Device& device, EngineLimits limits, Behind behind, FileLayer* files)
      : model_(model), device_(device), limits_(limits), behind_(behind), files_(files) {
    if (behind == Behind::ram || behind == Behind::ram_and_disk) {
      // As much as the device holds, in blocks of a page's size, at least 4 KiB.
      const int64_t block = std::max<int64_t>(model.info().page_bytes, 4096) + 64;
      limits_.ram_bytes = block * (limits.pages + limits.anchors * (model.info().anchor_bytes / block + 1));
    }
  }
  Warm(const Warm&) = delete;
  Warm& operator=(const Warm&) = delete;
  Result<void> start();
  // All that is on the device goes, or the whole server: a restart on the same folder.
  Result<void> evict();
  EngineCore& core() const { return *core_; }
  bool has_tier() const { return behind_ != Behind::nothing; }
  bool has_disk() const { return disk_ != nullptr; }
  // Whence what the device no longer has comes back.
  Tier tier() const { return limits_.ram_bytes > 0 ? Tier::ram : Tier::disk; }

 private:
  const Model& model_;
  Device& device_;
  EngineLimits limits_;
  const Behind behind_;
  FileLayer* files_;
  TemporaryFolder folder_;  // Before what writes there: it goes after them.
  std::unique_ptr<DiskTier> disk_;
  std::unique_ptr<EngineCore> core_;
};

Result<void> Warm::start() {
  if (behind_ != Behind::nothing && behind_ != Behind::ram) {
    if (folder_.path().empty()) {
      WP_TRY(folder_, TemporaryFolder::make("equality"));
    }
    WP_TRY(disk_, DiskTier::open({.folder = folder_.path(),
                                  .origin = {model_.info().fingerprint, 1},
                                  .page_bytes = model_.info().page_bytes,
                                  .anchor_bytes = model_.info().anchor_bytes,
                                  .pending_bytes_max = INT64_MAX,
                                  .files = files_}));
  }
  WP_TRY(core_, EngineCore::make(model_, device_, limits_, system_clock(), disk_.get()));
  return {};
}

Result<void> Warm::evict() {
  if (behind_ == Behind::restart) {
    core_.reset();
    disk_.reset();
    return start();
  }
  if (disk_) disk_->flush();
  core_->flush_cache();
  while (core_->step()) continue;
  return {};
}

class Case {
 public:
  Case(Warm& server, EngineCore& cold, Rng rng, const EqualityOptions& options, EqualityResult& result)
      : server_(server), cold_(cold), rng_(rng), options_(options), result_(result) {}

  Result<void> run(History history);
  const std::string& difference() const { return difference_; }

 private:
  Tokens random(int64_t count);
  Tokens new_prompt(int64_t session, int64_t length);
  int64_t length_of_prompt();
  Tokens then(Tokens prompt, const Tokens& more) const;
  Turn turn(Tokens prompt);
  Result<void> play(std::vector<Tokens> prompts);
  Result<void> break_off(const Tokens& prompt);
  Result<std::vector<Answer>> answers(EngineCore& core, const std::vector<Turn>& turns);
  void compare(const Turn& turn, const Answer& warm, const Answer& cold, const RestoreOracle::Point& predicted);
  Result<void> interleave();
  Result<void> poisoned();
  std::vector<Tokens> of_all(const std::function<Tokens(const Tokens&, size_t)>& make) const;
  Result<void> evict();

  Warm& server_;
  EngineCore& cold_;
  Rng rng_;
  const EqualityOptions& options_;
  EqualityResult& result_;
  RestoreOracle oracle_;
  int64_t system_ = 0, rounds_ = 0;
  std::vector<Tokens> first_;    // The sessions' first prompts.
  std::vector<Tokens> answers_;  // To the prompts last played, by session.
  std::string difference_;
};

Tokens Case::random(int64_t count) {
  const int64_t vocabulary = cold_.model_info().vocabulary;
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(rng_.between(kSessions, vocabulary - 1)));
  return tokens;
}

// Sessions differ in their first token, so that those of one batch share nothing.
Tokens Case::new_prompt(int64_t session, int64_t length) {
  Tokens prompt = random(length);
  prompt[0] = static_cast<TokenId>(session);
  return prompt;
}

int64_t Case::length_of_prompt() {
  const int64_t dice = rng_.between(0, 99);
  int64_t length = rng_.between(40, 700);
  if (dice < 30) length = kLengths[rng_.between(0, std::ssize(kLengths) - 1)];
  else if (dice >= 99) length = rng_.between(4000, 12'000);
  else if (dice >= 95) length = rng_.between(2000, 4000);
  else if (dice >= 80) length = rng_.between(700, 2000);
  return std::clamp<int64_t>(length, 40, options_.prompt_max);
}

Tokens Case::then(Tokens prompt, const Tokens& more) const {
  prompt.insert(prompt.end(), more.begin(), more.end());
  return prompt;
}

Turn Case::turn(Tokens prompt) {
  Turn turn{.prompt = std::move(prompt), .system = system_, .max_tokens = rng_.between(1, kAnswerMax)};
  if (rng_.percent(50)) {
    turn.sampling.temperature = 0.9f;
    turn.sampling.top_p = 0.95f;
    turn.sampling.seed = rng_.next();
  }
  turn.sampling.top_logprobs = kTop;
  return turn;
}

void take(Answer& answer, const TokenEvent& event) {
  switch (event.kind) {
    case TokenEvent::Kind::started:
      answer.cached = answer.prompt_done = event.stats.cached_tokens;
      answer.tier = event.stats.tier;
      break;
    case TokenEvent::Kind::progress: answer.prompt_done = event.prompt_done; break;
    case TokenEvent::Kind::token:
      answer.tokens.push_back(event.token);
      answer.logprobs.push_back({event.token, event.logprob});
      answer.logprobs.insert(answer.logprobs.end(), event.top.begin(), event.top.end());
      break;
    case TokenEvent::Kind::finished:
      answer.finish = event.finish;
      answer.error = event.error;
      break;
  }
}

// All at once; a core that cannot go on with requests unfinished would be a fault of the engine.
Result<std::vector<Answer>> Case::answers(EngineCore& core, const std::vector<Turn>& turns) {
  std::vector<std::shared_ptr<EventChannel>> channels;
  for (const Turn& turn : turns) {
    GenerateRequest request;
    request.id = cat("equality-", result_.requests, "-", channels.size());
    request.tokens = turn.prompt;
    request.max_tokens = turn.max_tokens;
    request.ignore_stop_tokens = true;
    request.sampling = turn.sampling;
    request.progress = true;
    const auto n = static_cast<int64_t>(turn.prompt.size());
    if (tail_of(n) > 0) request.cache.captures.push_back({tail_of(n), CaptureClass::tail});
    if (turn.system > 0 && turn.system < n) request.cache.captures.push_back({turn.system, CaptureClass::system});
    WP_TRY(auto channel, core.submit(std::move(request)));
    channels.push_back(std::move(channel));
  }
  int waits = 0;
  for (int64_t steps = 0; !core.idle(); ++steps) {
    for (size_t i = 0; i < turns.size(); ++i)
      if (turns[i].cancel_after == steps) channels[i]->cancel();
    if (core.step() || core.idle()) continue;
    if (!server_.has_disk() || ++waits > kWaitsMax)
      return Error{ErrorCode::gate_failed, "equality: expected the engine to go on, found it waiting for ever"};
    core.bell().wait_within(kWaitNs);
  }
  std::vector<Answer> out(turns.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    while (auto event = channels[i]->try_next()) take(out[i], *event);
    // The piece that ends the prompt sends its token instead of progress.
    if (!out[i].tokens.empty()) out[i].prompt_done = static_cast<int64_t>(turns[i].prompt.size());
  }
  core.check();
  return out;
}

void Case::compare(const Turn& turn, const Answer& warm, const Answer& cold, const RestoreOracle::Point& predicted) {
  if (!difference_.empty()) return;
  const auto n = turn.prompt.size();
  if (warm.finish != cold.finish || cold.finish != FinishReason::length) {
    difference_ = cat("prompt of ", n, ": expected both to end by length, found warm ", wp::name(warm.finish), " ",
                      warm.error, ", cold ", wp::name(cold.finish), " ", cold.error);
  } else if (warm.cached != predicted.resumes) {
    difference_ = cat("prompt of ", n, ": expected to resume at ", predicted.resumes, ", found ", warm.cached);
  } else if (const Tier tier = predicted.from_tier ? server_.tier() : Tier::device; warm.tier != tier) {
    difference_ = cat("prompt of ", n, ": expected to resume at ", warm.cached, " from tier ", wp::name(tier),
                      ", found ", wp::name(warm.tier));
  } else if (warm.logprobs.size() != cold.logprobs.size()) {
    difference_ =
        cat("prompt of ", n, ": expected ", cold.logprobs.size(), " log-probabilities, found ", warm.logprobs.size());
  }
  for (size_t i = 0; i < cold.logprobs.size() && difference_.empty(); ++i) {
    const TokenLogprob &a = cold.logprobs[i], &b = warm.logprobs[i];
    const auto bits_a = std::bit_cast<uint32_t>(a.logprob), bits_b = std::bit_cast<uint32_t>(b.logprob);
    if (a.token == b.token && bits_a == bits_b) continue;
    difference_ = fmt::format(
        "prompt of {} resumed at {}, position {}: cold token {} logprob {:.9g} ({:08x}), warm "
        "token {} logprob {:.9g} ({:08x})",
        n, warm.cached, n + i / (kTop + 1), a.token, a.logprob, bits_a, b.token, b.logprob, bits_b);
  }
}

Result<void> Case::break_off(const Tokens& prompt) {
  Turn broken = turn(prompt);
  broken.cancel_after = rng_.between(0, 6);
  const RestoreOracle::Point point = oracle_.predict(prompt, system_);
  WP_TRY(const std::vector<Answer> got, answers(server_.core(), {broken}));
  oracle_.computed(prompt, point, got[0].prompt_done);
  if (got[0].finish == FinishReason::cancelled) ++result_.cancelled;
  return {};
}

// One round: a prompt of each session, at once and warm, then one by one and cold.
Result<void> Case::play(std::vector<Tokens> prompts) {
  if (!difference_.empty()) return {};
  if (server_.has_tier() && rounds_++ > 0 && (rounds_ == 2 || rng_.percent(60))) WP_TRY(evict());
  if (rng_.percent(20)) WP_TRY(break_off(prompts[0]));
  std::vector<Turn> turns;
  std::vector<RestoreOracle::Point> points;
  for (Tokens& prompt : prompts) {
    points.push_back(oracle_.predict(prompt, system_));
    turns.push_back(turn(std::move(prompt)));
  }
  WP_TRY(const std::vector<Answer> warm, answers(server_.core(), turns));
  answers_.resize(turns.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    WP_TRY(const std::vector<Answer> cold, answers(cold_, {turns[i]}));
    compare(turns[i], warm[i], cold[0], points[i]);
    answers_[i] = cold[0].tokens;
    const auto n = static_cast<int64_t>(turns[i].prompt.size());
    oracle_.computed(turns[i].prompt, points[i], n);
    ++result_.requests;
    result_.prompt_tokens += n;
    result_.prompt_longest = std::max(result_.prompt_longest, n);
    result_.tokens_compared += std::ssize(cold[0].tokens);
    result_.restored_tokens += warm[i].cached;
    if (warm[i].cached > 0) {
      ++result_.warm_requests;
      ++result_.warm_by_tier[static_cast<size_t>(warm[i].tier)];
    }
  }
  return {};
}

std::vector<Tokens> Case::of_all(const std::function<Tokens(const Tokens&, size_t)>& make) const {
  std::vector<Tokens> out;
  for (size_t i = 0; i < first_.size(); ++i) out.push_back(make(first_[i], i));
  return out;
}

Result<void> Case::evict() {
  WP_TRY(server_.evict());
  oracle_.evict(server_.has_tier());
  return {};
}

// Turns full of one marker, whose states and pages stay behind, then prompts that have no marker: of the beginning that
// they share, and of a part of it, they must get what a server without a past gives them.
Result<void> Case::poisoned() {
  const Tokens stem = new_prompt(0, rng_.between(64, 400));
  system_ = std::ssize(stem) / kPageTokens * kPageTokens;
  const Tokens marker = random(1);
  Tokens conversation = stem;
  for (int turn = 0; turn < 2; ++turn) {
    conversation.resize(conversation.size() + static_cast<size_t>(rng_.between(200, 500)), marker[0]);
    WP_TRY(play({conversation}));
    conversation = then(conversation, answers_[0]);
  }
  for (int i = 0; i < 2; ++i) WP_TRY(play({then(stem, random(rng_.between(200, 400)))}));
  const Tokens part(stem.begin(), stem.begin() + rng_.between(1, std::ssize(stem)));
  return play({then(part, random(rng_.between(1, 300)))});
}

// Turn by turn, the sessions in order; all begin alike, so that each restores the common beginning once.
Result<void> Case::interleave() {
  const Tokens stem = new_prompt(0, rng_.between(64, 400));
  system_ = std::ssize(stem) / kPageTokens * kPageTokens;
  std::vector<Tokens> sessions;
  for (int i = 0; i < kSessions; ++i) sessions.push_back(then(stem, random(rng_.between(40, 300))));
  const int64_t turns = rng_.between(2, 3);
  for (int64_t t = 0; t < turns; ++t) {
    for (Tokens& session : sessions) {
      WP_TRY(play({session}));
      session = then(then(session, answers_[0]), random(rng_.between(1, 130)));
    }
  }
  return {};
}

Result<void> Case::run(History history) {
  if (!server_.has_tier()) WP_TRY(evict());
  if (history == History::interleave) return interleave();
  if (history == History::poisoned) return poisoned();
  const int64_t length = length_of_prompt();
  const bool batched = length <= 1200 && rng_.percent(40);
  if (batched) ++result_.batched_cases;
  for (int64_t i = 0; i < (batched ? kSessions : 1); ++i)
    first_.push_back(new_prompt(i, i == 0 ? length : rng_.between(40, 700)));
  if (rng_.percent(30)) system_ = 64 * rng_.between(1, 4);
  const int64_t more = kSuffixes[rng_.between(0, std::ssize(kSuffixes) - 1)];
  WP_TRY(play(first_));
  switch (history) {
    case History::fresh: return {};
    case History::repeat: return play(first_);
    case History::extend: return play(of_all([&](const Tokens& p, size_t) { return then(p, random(more)); }));
    case History::answer:
      return play(of_all([&](const Tokens& p, size_t i) { return then(then(p, answers_[i]), random(more)); }));
    case History::branch: {
      const auto cut = of_all(
          [&](const Tokens& p, size_t) { return Tokens(p.begin(), p.begin() + rng_.between(1, std::ssize(p))); });
      for (int i = 0; i < 2; ++i)
        WP_TRY(play(of_all([&](const Tokens&, size_t s) { return then(cut[s], random(more)); })));
      return {};
    }
    case History::edit: {
      const auto edited = of_all([&](Tokens p, size_t) {
        TokenId& token = p[static_cast<size_t>(rng_.between(1, std::ssize(p) - 1))];
        token = token == kSessions ? kSessions + 1 : kSessions;
        return p;
      });
      WP_TRY(play(edited));
      return play(edited);
    }
    case History::delete_turn:
      WP_TRY(play(of_all([&](const Tokens& p, size_t i) { return then(then(p, answers_[i]), random(more)); })));
      return play(of_all([&](const Tokens& p, size_t) { return then(p, random(more)); }));
    case History::evict_all: WP_TRY(evict()); return play(first_);
    case History::interleave:
    case History::poisoned: break;
  }
  return {};
}

EngineLimits limits_of(const Model& model, const EqualityOptions& options, int64_t pass_tokens, bool cache) {
  EngineLimits limits;
  limits.context_tokens = std::min(model.info().context_max, options.prompt_max + kSuffixRoom);
  limits.sequences = cache ? kSessions : 1;
  limits.anchors = cache ? kAnchors : 0;
  // A batch and what a case leaves behind: the longest prompt thrice, or a batch of short ones thrice.
  limits.pages = static_cast<int32_t>(limits.context_tokens / kPageTokens + 1) * (cache ? 4 : 1);
  if (cache) limits.pages = std::max(limits.pages, 512);
  limits.pass_tokens = pass_tokens;
  limits.cache = cache;
  limits.consolidate = false;
  limits.events_max = 1024;
  return limits;
}

}  // namespace

const char* name(History history) {
  constexpr const char* kNames[] = {"fresh", "repeat",      "extend",     "answer",    "branch",
                                    "edit",  "delete turn", "interleave", "evict all", "poisoned"};
  return kNames[static_cast<size_t>(history)];
}

const char* name(Behind behind) {
  constexpr const char* kNames[] = {"nothing", "ram", "disk", "ram and disk", "restart"};
  return kNames[static_cast<size_t>(behind)];
}

Result<EqualityResult> run_equality(const Model& model, Device& device, const EqualityOptions& options) {
  EqualityOptions used = options;
  used.prompt_max = std::min(options.prompt_max, model.info().context_max - kSuffixRoom);
  if (used.prompt_max < 40)
    return Error{ErrorCode::unsupported,
                 cat("equality: expected a context of 1,064 tokens or more, found ", model.info().context_max)};
  std::vector<std::unique_ptr<Warm>> shared;
  for (const int64_t pass_tokens : kPassTokens) {
    shared.push_back(
        std::make_unique<Warm>(model, device, limits_of(model, used, pass_tokens, true), Behind::nothing, used.files));
    WP_TRY(shared.back()->start());
  }
  WP_TRY(const auto cold,
         EngineCore::make(model, device, limits_of(model, used, kColdPassTokens, false), system_clock()));
  EqualityResult result;
  for (int64_t i = 0; i < used.cases && result.passed(); ++i) {
    const int64_t number = used.first_case + i;
    Rng rng(splitmix64(used.seed) ^ static_cast<uint64_t>(number));
    const auto history = static_cast<History>(number % kHistories);  // Each in turn, whatever the seed.
    const auto behind = static_cast<Behind>((number + number / kHistories) % kBehinds);  // With each, in turn.
    const auto engine = static_cast<size_t>(rng.between(0, std::ssize(shared) - 1));
    Warm own(model, device, limits_of(model, used, kPassTokens[engine], true), behind, used.files);
    if (own.has_tier()) WP_TRY(own.start());
    Case one(own.has_tier() ? own : *shared[engine], *cold, rng, used, result);
    WP_TRY(one.run(history));
    if (!one.difference().empty())
      result.difference = cat("case ", number, " (", name(history), ", behind the device: ", name(behind),
                              ", passes of ", kPassTokens[engine], "), seed ", used.seed, ": ", one.difference(),
                              "; repeat with --seed ", used.seed, " --first-case ", number, " --cases 1");
    ++result.cases;
    ++result.by_behind[static_cast<size_t>(behind)];
    ++result.by_history[static_cast<size_t>(history)];
    if (used.progress) used.progress(i + 1, used.cases);
  }
  return result;
}

Json equality_json(const EqualityResult& result) {
  Json histories = Json::object();
  for (int i = 0; i < kHistories; ++i)
    histories[name(static_cast<History>(i))] = result.by_history[static_cast<size_t>(i)];
  Json behind = Json::object(), tiers = Json::object();
  for (int i = 0; i < kBehinds; ++i) behind[name(static_cast<Behind>(i))] = result.by_behind[static_cast<size_t>(i)];
  for (int i = 0; i < kTiers; ++i) tiers[wp::name(static_cast<Tier>(i))] = result.warm_by_tier[static_cast<size_t>(i)];
  return {{"cases", result.cases},
          {"requests", result.requests},
          {"warm_requests", result.warm_requests},
          {"restored_tokens", result.restored_tokens},
          {"prompt_tokens", result.prompt_tokens},
          {"prompt_longest", result.prompt_longest},
          {"tokens_compared", result.tokens_compared},
          {"cancelled", result.cancelled},
          {"batched_cases", result.batched_cases},
          {"histories", histories},
          {"behind_the_device", behind},
          {"warm_by_tier", tiers},
          {"differences", result.passed() ? 0 : 1},
          {"difference", result.difference}};
}

std::string equality_table(const EqualityResult& result) {
  std::string out;
  const auto row = [&](const std::string& what, int64_t value) { out += fmt::format("{:<34} {:>9}\n", what, value); };
  row("cases", result.cases);
  for (int i = 0; i < kHistories; ++i)
    row(cat("  ", name(static_cast<History>(i))), result.by_history[static_cast<size_t>(i)]);
  for (int i = 0; i < kBehinds; ++i)
    row(cat("  behind the device: ", name(static_cast<Behind>(i))), result.by_behind[static_cast<size_t>(i)]);
  row("cases of four at once", result.batched_cases);
  row("requests compared", result.requests);
  row("  resumed where predicted, above 0", result.warm_requests);
  for (int i = 0; i < kTiers; ++i)
    row(cat("    from tier ", wp::name(static_cast<Tier>(i))), result.warm_by_tier[static_cast<size_t>(i)]);
  row("requests cancelled on the way", result.cancelled);
  row("prompt tokens", result.prompt_tokens);
  row("  restored", result.restored_tokens);
  row("longest prompt", result.prompt_longest);
  row("answer tokens compared", result.tokens_compared);
  row("differences", result.passed() ? 0 : 1);
  return out;
}

}  // namespace wp::measure
