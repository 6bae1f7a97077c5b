#include "measure/why.h"

#include <algorithm>
#include <map>

#include "core/cat.h"
#include "measure/statistics.h"

namespace wp::measure {
namespace {

struct Meaning {
  const char* reason;
  const char* sentence;
};

constexpr Meaning kMeanings[] = {
    {"bypass", "the cache was not asked"},
    {"too_short", "prompts under 256 tokens capture nothing"},
    {"model_changed", "the path is known under another model, format or numerics id"},
    {"adapter_changed", "the path is known under another adapter"},
    {"salt", "the first request of its cache domain"},
    {"tier_fail", "an anchor was known, and could not be loaded"},
    {"incomplete", "an anchor on the path was not yet published"},
    {"evicted", "its anchor had to make room: more --anchors keep it"},
    {"no_anchor", "the tokens are known, and no state was ever captured near their end"},
    {"diverged", "the prompt leaves the known path"},
    {"cold", "nothing of it was known"},
};

std::string quoted(const std::string& text) { return dump_json(Json(text)); }

int64_t computed(const TurnResult& turn) { return turn.prompt_tokens - turn.cached_tokens; }

}  // namespace

std::string why_header() {
  return fmt::format("{:<18} {:>4} {:>7} {:>7} {:>7} {:<3} {:>6} {:>6}  {}\n", "conversation", "turn", "prompt",
                     "match", "anchor", "cls", "gap", "new", "miss");
}

std::string why_lines(const TurnResult& turn) {
  std::string out = fmt::format("{:<18} {:>4} {:>7} {:>7} {:>7} {:<3} {:>6} {:>6}  {}\n", turn.conversation, turn.turn,
                                turn.prompt_tokens, turn.match_tokens, turn.cached_tokens, turn.anchor_class,
                                turn.match_tokens - turn.cached_tokens, turn.prompt_tokens - turn.match_tokens,
                                turn.fault.empty() ? turn.miss : "fault: " + turn.fault);
  const auto meaning = std::find_if(std::begin(kMeanings), std::end(kMeanings),
                                    [&](const Meaning& one) { return turn.miss == one.reason; });
  if (meaning == std::end(kMeanings)) return out;
  out += fmt::format("{:>25}{}{}\n", "", meaning->sentence, turn.miss_detail.empty() ? "" : "; " + turn.miss_detail);
  if (turn.diverged_at < 0) return out;
  out += fmt::format("{:>25}had {}\n{:>25}got {}\n", "", quoted(turn.had), "", quoted(turn.got));
  if (!turn.nearest.empty()) out += fmt::format("{:>25}nearest {}\n", "", turn.nearest);
  return out;
}

std::string why_summary(const std::vector<TurnResult>& turns) {
  std::map<std::string, int64_t> reasons;
  int64_t warm = 0, restored = 0, tokens = 0, done = 0, needed = 0;
  for (const TurnResult& turn : turns) {
    ++reasons[turn.miss];
    warm += turn.warm;
    restored += turn.warm && turn.restored;
    tokens += turn.prompt_tokens;
    done += computed(turn);
    needed += turn.added_tokens >= 0 ? turn.added_tokens : turn.prompt_tokens;
  }
  const auto share = [](int64_t part, int64_t whole) {
    return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  std::string out = fmt::format("warm turns restored   {} of {} ({:.1f} %)\n", restored, warm, share(restored, warm));
  out += fmt::format("prompt tokens         {}\n", count_text(tokens));
  out += fmt::format("computed              {} ({:.1f} %); new are {} ({:.1f} %)\n", count_text(done),
                     share(done, tokens), count_text(needed), share(needed, tokens));
  for (const auto& [reason, count] : reasons) out += fmt::format("miss={:<16} {}\n", reason, count);
  return out;
}

Json why_json(const std::vector<TurnResult>& turns) {
  Json rows = Json::array();
  for (const TurnResult& turn : turns)
    rows.push_back({{"conversation", turn.conversation},
                    {"turn", turn.turn},
                    {"prompt", turn.prompt_tokens},
                    {"match", turn.match_tokens},
                    {"anchor", turn.cached_tokens},
                    {"class", std::string(1, turn.anchor_class)},
                    {"added", turn.added_tokens},
                    {"miss", turn.miss},
                    {"detail", turn.miss_detail},
                    {"diverged_at", turn.diverged_at},
                    {"had", turn.had},
                    {"got", turn.got},
                    {"nearest", turn.nearest},
                    {"fault", turn.fault}});
  return rows;
}

}  // namespace wp::measure
