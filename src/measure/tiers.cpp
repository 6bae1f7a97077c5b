#include "measure/tiers.h"

#include <algorithm>
#include <utility>

#include "engine/limits.h"
#include "measure/replay_report.h"
#include "measure/statistics.h"

namespace wp::measure {
namespace {

// What ends with a server, in the order in which it begins.
struct Server {
  std::unique_ptr<DiskTier> disk;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<ReplayTarget> target;
};

struct Plan {
  std::string name;
  EngineLimits limits;
  bool disk = false;  // And restarted before each round.
};

class TierReplay {
 public:
  TierReplay(const TierParts& parts, const std::vector<Conversation>& conversations,
             const std::function<void(int64_t, int64_t)>& progress)
      : parts_(parts), conversations_(conversations), progress_(progress) {
    for (const Conversation& conversation : conversations) {
      turns_ += static_cast<int64_t>(conversation.turns.size());
      rounds_ = std::max(rounds_, static_cast<int64_t>(conversation.turns.size()));
    }
  }
  Result<std::vector<TierRun>> run();

 private:
  EngineLimits one_at_a_time(int32_t anchors, int64_t pages) const;
  Result<void> start(const Plan& plan);
  Result<TierRun> play(const Plan& plan);
  int64_t pages_of(const TierRun& run) const;

  const TierParts& parts_;
  const std::vector<Conversation>& conversations_;
  const std::function<void(int64_t, int64_t)>& progress_;
  int64_t turns_ = 0, rounds_ = 0, done_ = 0;
  Server server_;
};

EngineLimits TierReplay::one_at_a_time(int32_t anchors, int64_t pages) const {
  EngineLimits limits = parts_.limits;
  limits.sequences = 1;
  limits.anchors = anchors;
  limits.pages = static_cast<int32_t>(pages);
  limits.ram_bytes = 0;
  return limits;
}

Result<void> TierReplay::start(const Plan& plan) {
  server_.target.reset();
  server_.engine.reset();
  server_.disk.reset();  // Writes what is pending.
  if (plan.disk) {
    WP_TRY(server_.disk, DiskTier::open(parts_.disk));
  }
  WP_TRY(server_.engine, Engine::make(*parts_.model, *parts_.device, plan.limits, *parts_.clock, server_.disk.get()));
  server_.target = make_local_target({.engine = server_.engine.get(),
                                      .tokenizer = parts_.tokenizer,
                                      .prompter = parts_.prompter,
                                      .stop_tokens = parts_.stop_tokens,
                                      .clock = parts_.clock});
  return {};
}

Result<TierRun> TierReplay::play(const Plan& plan) {
  std::vector<std::vector<TurnResult>> results(conversations_.size());
  std::vector<TurnTokens> before(conversations_.size());
  const int64_t begun_ns = parts_.clock->now_ns();
  for (int64_t round = 0; round < rounds_; ++round) {
    if (round == 0 || plan.disk) WP_TRY(start(plan));
    for (size_t i = 0; i < conversations_.size(); ++i) {
      const Conversation& conversation = conversations_[i];
      if (round >= static_cast<int64_t>(conversation.turns.size())) continue;
      const TurnPrompt prompt{.conversation = &conversation,
                              .expected = &conversation.turns[static_cast<size_t>(round)],
                              .label = conversation.id,
                              .turn = round};
      TurnTokens tokens;
      results[i].push_back(server_.target->answer(prompt, &tokens));
      server_.target->settle();
      relate_to_previous(before[i], tokens, results[i].back());
      before[i] = std::move(tokens);
      if (progress_) progress_(++done_, 4 * turns_);
    }
  }
  server_ = {};
  TierRun run{.name = plan.name, .wall_s = static_cast<double>(parts_.clock->now_ns() - begun_ns) * 1e-9};
  for (auto& turns : results) run.turns.insert(run.turns.end(), turns.begin(), turns.end());
  return run;
}

// Of all conversations, each at its longest.
int64_t TierReplay::pages_of(const TierRun& run) const {
  int64_t pages = 0;
  for (size_t i = 0; i < run.turns.size(); ++i) {
    const bool last = i + 1 == run.turns.size() || run.turns[i + 1].turn == 0;
    if (last) pages += pages_for(run.turns[i].prompt_tokens + run.turns[i].generated_tokens);
  }
  return pages;
}

Result<std::vector<TierRun>> TierReplay::run() {
  const auto count = static_cast<int32_t>(conversations_.size());
  const int64_t context = pages_for(parts_.limits.context_tokens);
  std::vector<TierRun> runs(4);
  Plan plan{.name = "cold: no cache", .limits = one_at_a_time(3, context)};
  plan.limits.cache = false;
  WP_TRY(runs[0], play(plan));

  const int64_t pages = pages_of(runs[0]);
  const ModelInfo& info = parts_.model->info();
  const int32_t anchors = 2 * count + 4;
  const int64_t ram_bytes =
      2 * (pages * std::max<int64_t>(info.page_bytes, 4096) + anchors * std::max<int64_t>(info.anchor_bytes, 4096));
  plan = {.name = "warm, from the device", .limits = one_at_a_time(anchors, pages + context)};
  WP_TRY(runs[1], play(plan));

  plan = {.name = "warm, from RAM: 3 anchors on the device", .limits = one_at_a_time(3, context)};
  plan.limits.ram_bytes = parts_.limits.ram_bytes > 0 ? parts_.limits.ram_bytes : ram_bytes;
  WP_TRY(runs[2], play(plan));

  plan = {.name = "warm, from disk: restarted before each turn",
          .limits = one_at_a_time(anchors, pages + context),
          .disk = true};
  WP_TRY(runs[3], play(plan));
  return runs;
}

int64_t warm_from(const TierRun& run, const std::string& tier) {
  return std::count_if(run.turns.begin(), run.turns.end(),
                       [&](const TurnResult& turn) { return turn.warm && turn.tier == tier; });
}

}  // namespace

Result<std::vector<TierRun>> run_tiers(const TierParts& parts, const std::vector<Conversation>& conversations,
                                       const std::function<void(int64_t done, int64_t total)>& progress) {
  return TierReplay(parts, conversations, progress).run();
}

std::string tier_table(const std::vector<TierRun>& runs) {
  std::string out =
      "| | TTFT of warm turns, p50 / p90 | warm turns restored | of these from device / RAM / disk "
      "| prompt tokens computed | beyond the client's, max |\n| --- | --- | --- | --- | --- | --- |\n";
  for (const TierRun& run : runs) {
    const ReplaySummary s = summarize_replay(run.turns, run.wall_s);
    std::vector<double> ttft;
    for (const TurnResult& turn : run.turns)
      if (turn.warm && turn.fault.empty()) ttft.push_back(turn.ttft_s);
    out += fmt::format("| {} | {} / {} | {} of {} | {} / {} / {} | {} | {} |\n", run.name,
                       duration_text(percentile(ttft, 50)), duration_text(percentile(ttft, 90)), s.restored, s.warm,
                       warm_from(run, "device"), warm_from(run, "ram"), warm_from(run, "disk"),
                       count_text(s.prompt_tokens - s.cached_tokens),
                       s.restored > 0 ? count_text(s.beyond_added_max) : "–");
  }
  return out;
}

std::string tier_fault(const std::vector<TierRun>& runs) {
  for (const TierRun& run : runs)
    for (const TurnResult& turn : run.turns)
      if (!turn.fault.empty()) return cat(run.name, ": ", turn.conversation, " turn ", turn.turn, ": ", turn.fault);
  if (runs.empty()) return {};
  const Json cold = replay_json({}, {}, runs[0].turns);
  for (size_t i = 1; i < runs.size(); ++i) {
    const auto found = compare_replays(cold, replay_json({}, {}, runs[i].turns));
    if (!found.ok()) return found.error().message;
    if (!found->identical) return cat("'", runs[0].name, "' and '", runs[i].name, "': ", found->difference);
  }
  if (runs.size() < 4) return {};
  for (const TurnResult& turn : runs.back().turns)
    if (turn.warm && turn.tier != "disk")
      return cat(turn.conversation, " turn ", turn.turn, ": expected it warm from disk after the restart, found ",
                 turn.restored ? turn.tier : cat("miss=", turn.miss));
  return {};
}

}  // namespace wp::measure
