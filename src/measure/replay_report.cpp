#include "measure/replay_report.h"

#include <algorithm>

#include "core/hash.h"
#include "measure/statistics.h"

namespace wp::measure {
namespace {

constexpr int64_t kLongPrompt = 4000;  // Below, fixed costs hide what a restore saves.

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

Json turn_json(const TurnResult& turn) {
  return {{"conversation", turn.conversation},
          {"turn", turn.turn},
          {"warm", turn.warm},
          {"prompt", turn.prompt_tokens},
          {"cached", turn.cached_tokens},
          {"shared", turn.shared_tokens},
          {"added", turn.added_tokens},
          {"restored", turn.restored},
          {"tier", turn.tier},
          {"miss", turn.miss},
          {"generated", turn.generated_tokens},
          {"ttft_ms", turn.ttft_s * 1e3},
          {"decode_ms", turn.decode_s * 1e3},
          {"text_hash", hex(turn.text_hash)},
          {"logprob_hash", hex(turn.logprob_hash)},
          {"exact", turn.has_expected ? Json(turn.exact) : Json(nullptr)},
          {"fault", turn.fault}};
}

Error malformed(const char* which) {
  return {ErrorCode::bad_request,
          cat("--compare: ", which, ": expected a file that replay --json wrote, found another")};
}

// The fields that two runs of the same turn must agree on.
constexpr const char* kCompared[] = {"conversation", "turn",         "prompt", "generated",
                                     "text_hash",    "logprob_hash", "exact",  "fault"};

bool well_formed(const Json& file) {
  if (!file.is_object() || !file.contains("turns") || !file["turns"].is_array()) return false;
  return std::all_of(file["turns"].begin(), file["turns"].end(), [](const Json& turn) {
    if (!turn.is_object()) return false;
    for (const char* field : kCompared)
      if (!turn.contains(field)) return false;
    return turn.contains("ttft_ms") && turn["ttft_ms"].is_number() && turn.contains("cached") &&
           turn["cached"].is_number_integer() && turn["prompt"].is_number_integer();
  });
}

}  // namespace

ReplaySummary summarize_replay(const std::vector<TurnResult>& turns, double wall_s) {
  ReplaySummary summary;
  summary.wall_s = wall_s;
  std::vector<double> ttft, warm_ttft, cold_ttft, beyond_added, beyond_answer;
  double decode_s = 0;
  int64_t decoded = 0;
  for (const TurnResult& turn : turns) {
    ++summary.turns;
    summary.faults += !turn.fault.empty();
    summary.prompt_tokens += turn.prompt_tokens;
    summary.cached_tokens += turn.cached_tokens;
    summary.generated_tokens += turn.generated_tokens;
    summary.scored += turn.has_expected;
    summary.exact += turn.exact;
    if (turn.warm) {
      ++summary.warm;
      summary.restored += turn.restored;
      summary.warm_prompt_tokens += turn.prompt_tokens;
      summary.warm_cached_tokens += turn.cached_tokens;
      if (turn.shared_tokens >= 0) {
        summary.shared_tokens += turn.shared_tokens;
        summary.shared_page_tokens += turn.shared_tokens / kPageTokens * kPageTokens;
        summary.reused_tokens += std::min(turn.cached_tokens, turn.shared_tokens / kPageTokens * kPageTokens);
      }
      const int64_t computed = turn.prompt_tokens - turn.cached_tokens;
      if (turn.restored && turn.added_tokens >= 0)
        beyond_added.push_back(static_cast<double>(computed - turn.added_tokens));
      if (turn.restored && turn.shared_tokens >= 0)
        beyond_answer.push_back(static_cast<double>(turn.shared_tokens - turn.cached_tokens));
    }
    if (!turn.fault.empty()) continue;
    ttft.push_back(turn.ttft_s);
    (turn.restored ? warm_ttft : cold_ttft).push_back(turn.ttft_s);
    decode_s += turn.decode_s;
    decoded += turn.generated_tokens - 1;
  }
  summary.ttft_p50_s = percentile(ttft, 50);
  summary.ttft_p90_s = percentile(ttft, 90);
  summary.ttft_p99_s = percentile(ttft, 99);
  summary.warm_ttft_p50_s = median(warm_ttft);
  summary.cold_ttft_p50_s = median(cold_ttft);
  summary.beyond_added_p50 = median(beyond_added);
  summary.beyond_answer_p50 = median(beyond_answer);
  const auto most = [](const std::vector<double>& of) {
    return of.empty() ? 0 : static_cast<int64_t>(*std::max_element(of.begin(), of.end()));
  };
  summary.beyond_added_max = most(beyond_added);
  summary.beyond_answer_max = most(beyond_answer);
  summary.decode_tokens_per_s = decode_s > 0 ? static_cast<double>(decoded) / decode_s : 0;
  return summary;
}

std::string replay_table(const ReplaySummary& s) {
  std::string out;
  const auto row = [&out](const char* name, const std::string& value) {
    out += fmt::format("{:<34} {}\n", name, value);
  };
  row("turns", fmt::format("{} ({} warm)", s.turns, s.warm));
  row("faults", fmt::format("{}", s.faults));
  row("TTFT p50 / p90 / p99", fmt::format("{} / {} / {}", duration_text(s.ttft_p50_s), duration_text(s.ttft_p90_s),
                                          duration_text(s.ttft_p99_s)));
  row("TTFT p50 restored / computed whole",
      fmt::format("{} / {}", duration_text(s.warm_ttft_p50_s), duration_text(s.cold_ttft_p50_s)));
  row("decode", fmt::format("{:.1f} tok/s", s.decode_tokens_per_s));
  row("prompt tokens", count_text(s.prompt_tokens));
  row("cached tokens",
      fmt::format("{} ({:.1f} %)", count_text(s.cached_tokens), share(s.cached_tokens, s.prompt_tokens)));
  row("warm turns restored", fmt::format("{} of {} ({:.1f} %)", s.restored, s.warm, share(s.restored, s.warm)));
  if (s.shared_tokens > 0)
    row("reused of what a turn shares",
        fmt::format("{:.2f} % of {} tokens ({:.2f} % of those on whole pages)", share(s.reused_tokens, s.shared_tokens),
                    count_text(s.shared_tokens), share(s.reused_tokens, s.shared_page_tokens)));
  if (s.shared_tokens > 0) {
    row("computed beyond the client's part", fmt::format("{:.0f} p50, {} max", s.beyond_added_p50, s.beyond_added_max));
    row("  beyond those and the last answer",
        fmt::format("{:.0f} p50, {} max", s.beyond_answer_p50, s.beyond_answer_max));
  }
  row("generated tokens", count_text(s.generated_tokens));
  if (s.scored > 0)
    row("score, turns exactly right", fmt::format("{} of {} ({:.1f} %)", s.exact, s.scored, share(s.exact, s.scored)));
  row("wall", duration_text(s.wall_s));
  return out;
}

std::string turn_header() {
  return fmt::format("{:<18} {:>4} {:>7} {:>7} {:<10} {:>9} {:>5} {:<16} {}\n", "conversation", "turn", "prompt",
                     "cached", "miss", "TTFT", "gen", "text hash", "right");
}

std::string turn_line(const TurnResult& turn) {
  return fmt::format("{:<18} {:>4} {:>7} {:>7} {:<10} {:>9} {:>5} {} {}\n", turn.conversation, turn.turn,
                     turn.prompt_tokens, turn.cached_tokens, turn.miss, duration_text(turn.ttft_s),
                     turn.generated_tokens, hex(turn.text_hash),
                     !turn.fault.empty()  ? "fault: " + turn.fault
                     : !turn.has_expected ? "-"
                     : turn.exact         ? "yes"
                                          : "no");
}

Json replay_json(const Json& about, const ReplaySummary& s, const std::vector<TurnResult>& turns) {
  Json rows = Json::array();
  for (const TurnResult& turn : turns) rows.push_back(turn_json(turn));
  const Json summary = {
      {"turns", s.turns},
      {"faults", s.faults},
      {"warm_turns", s.warm},
      {"warm_restored", s.restored},
      {"beyond_added_max", s.beyond_added_max},
      {"beyond_answer_max", s.beyond_answer_max},
      {"warm_restored_share", share(s.restored, s.warm) / 100},
      {"prompt_tokens", s.prompt_tokens},
      {"cached_tokens", s.cached_tokens},
      {"warm_prompt_tokens", s.warm_prompt_tokens},
      {"warm_cached_tokens", s.warm_cached_tokens},
      {"shared_tokens", s.shared_tokens},
      {"shared_page_tokens", s.shared_page_tokens},
      {"reused_share", share(s.reused_tokens, s.shared_tokens) / 100},
      {"reused_page_share", share(s.reused_tokens, s.shared_page_tokens) / 100},
      {"generated_tokens", s.generated_tokens},
      {"scored_turns", s.scored},
      {"exact_turns", s.exact},
      {"ttft_ms", {{"p50", s.ttft_p50_s * 1e3}, {"p90", s.ttft_p90_s * 1e3}, {"p99", s.ttft_p99_s * 1e3}}},
      {"ttft_restored_ms_p50", s.warm_ttft_p50_s * 1e3},
      {"ttft_computed_ms_p50", s.cold_ttft_p50_s * 1e3},
      {"decode_tokens_per_s", s.decode_tokens_per_s},
      {"wall_s", s.wall_s}};
  return {{"about", about}, {"summary", summary}, {"turns", std::move(rows)}};
}

Result<Comparison> compare_replays(const Json& a, const Json& b) {
  if (!well_formed(a)) return malformed("the first");
  if (!well_formed(b)) return malformed("the second");
  const Json &left = a["turns"], &right = b["turns"];
  Comparison found;
  found.turns = static_cast<int64_t>(std::min(left.size(), right.size()));
  std::vector<double> ratios;
  for (size_t i = 0; i < static_cast<size_t>(found.turns); ++i) {
    const Json &l = left[i], &r = right[i];
    for (const char* field : kCompared)
      if (found.difference.empty() && l[field] != r[field])
        found.difference = cat("turn ", i + 1, " (", dump_json(l["conversation"]), " turn ", dump_json(l["turn"]),
                               ") differs in ", field, ": ", dump_json(l[field]), " and ", dump_json(r[field]));
    const int64_t cached_left = l["cached"].get<int64_t>(), cached_right = r["cached"].get<int64_t>();
    if (l["prompt"].get<int64_t>() <= kLongPrompt || (cached_left > 0) == (cached_right > 0)) continue;
    const double warm = (cached_left > 0 ? l : r)["ttft_ms"].get<double>();
    const double cold = (cached_left > 0 ? r : l)["ttft_ms"].get<double>();
    if (cold > 0) ratios.push_back(warm / cold);
  }
  if (found.difference.empty() && left.size() != right.size())
    found.difference = cat("expected as many turns in both, found ", left.size(), " and ", right.size());
  if (found.difference.empty() && found.turns == 0) found.difference = "expected turns to compare, found none";
  found.identical = found.difference.empty();
  found.warm_to_cold = median(ratios);
  found.warm_to_cold_turns = static_cast<int64_t>(ratios.size());
  return found;
}

}  // namespace wp::measure
