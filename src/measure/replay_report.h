// The report of a replay: summary, tables, JSON, and the comparison of two runs. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "measure/replay.h"

namespace wp::measure {

struct ReplaySummary {
  int64_t turns = 0, faults = 0, warm = 0, restored = 0;  // `restored` of the warm ones.
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int64_t warm_prompt_tokens = 0, warm_cached_tokens = 0;
  // Of warm turns whose previous prompt is known: the tokens shared with it, those on whole pages, and of the former
  // those that were not computed again.
  int64_t shared_tokens = 0, shared_page_tokens = 0, reused_tokens = 0;
  // Of restored warm turns, the tokens computed beyond what the client added, and beyond that and the last answer.
  double beyond_added_p50 = 0, beyond_answer_p50 = 0;
  int64_t beyond_added_max = 0, beyond_answer_max = 0;
  int64_t scored = 0, exact = 0;
  double ttft_p50_s = 0, ttft_p90_s = 0, ttft_p99_s = 0, warm_ttft_p50_s = 0, cold_ttft_p50_s = 0;
  double decode_tokens_per_s = 0;  // Tokens after each turn's first, over the time that they took.
  double wall_s = 0;
};

ReplaySummary summarize_replay(const std::vector<TurnResult>& turns, double wall_s);
std::string replay_table(const ReplaySummary& summary);
std::string turn_line(const TurnResult& turn);  // One row, under turn_header().
std::string turn_header();

// `about`: what was run (model, flags, build), kept as it is.
Json replay_json(const Json& about, const ReplaySummary& summary, const std::vector<TurnResult>& turns);

struct Comparison {
  int64_t turns = 0;
  bool identical = false;
  std::string difference;  // The first, in one line.
  // Warm TTFT over the other run's TTFT of the same turn, the median over turns of more than 4,000 prompt tokens that
  // one run restored and the other computed whole; 0: there is none.
  double warm_to_cold = 0;
  int64_t warm_to_cold_turns = 0;
};
Result<Comparison> compare_replays(const Json& a, const Json& b);

}  // namespace wp::measure
