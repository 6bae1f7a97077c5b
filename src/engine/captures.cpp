#include "engine/captures.h"

#include <algorithm>

#include "core/log.h"

namespace wp {
namespace {

int priority(CaptureClass capture_class) {
  switch (capture_class) {
    case CaptureClass::tail: return 0;
    case CaptureClass::system: return 1;
    case CaptureClass::branch: return 2;
    case CaptureClass::user: return 3;
    case CaptureClass::assistant: return 4;
    case CaptureClass::ladder: return 5;
  }
  return 6;
}

std::string ids(std::span<const TokenId> tokens) {
  std::string out;
  for (TokenId token : tokens) out += (out.empty() ? "" : ",") + std::to_string(token);
  return out;
}

}  // namespace

CaptureChoice choose_captures(std::span<const CapturePoint> asked, const Match& match, int64_t prompt) {
  CaptureChoice choice;
  if (prompt < kCapturePromptMin) return choice;
  std::vector<CapturePoint> all;
  for (const CapturePoint& point : asked) {
    const bool possible = point.position > 0 && point.position % kPageTokens == 0 && point.position < prompt;
    if (!possible) ++choice.dropped;
    else if (point.position > match.anchor_position) all.push_back(point);
  }
  if (match.branch_position > match.anchor_position && match.branch_position < prompt)
    all.push_back({match.branch_position, CaptureClass::branch});
  for (int64_t at = kLadderFirst; at < prompt; at *= 2)
    if (at > match.anchor_position) all.push_back({at, CaptureClass::ladder});

  std::stable_sort(all.begin(), all.end(), [](const CapturePoint& a, const CapturePoint& b) {
    const int pa = priority(a.capture_class), pb = priority(b.capture_class);
    return pa != pb ? pa < pb : a.position > b.position;  // The deeper of a class: more is saved there.
  });
  for (const CapturePoint& point : all) {
    const bool known = std::any_of(choice.points.begin(), choice.points.end(),
                                   [&](const CapturePoint& other) { return other.position == point.position; });
    if (!known && choice.points.size() < kCapturesPerTurn) choice.points.push_back(point);
  }
  std::sort(choice.points.begin(), choice.points.end(),
            [](const CapturePoint& a, const CapturePoint& b) { return a.position < b.position; });
  return choice;
}

void log_prefix(const PrefixLine& line) {
  const Match& match = *line.match;
  const auto n = static_cast<int64_t>(line.tokens.size());
  const bool restored = match.anchor_position > 0;
  std::vector<LogField> fields{{"id", line.id},
                               {"n", n},
                               {"match", match.match},
                               {"anchor", match.anchor_position},
                               {"cls", restored ? std::string(1, letter(match.anchor_class)) : std::string("-")},
                               {"tier", restored ? name(line.stats->tier) : "-"},
                               {"gap", match.match - match.anchor_position},
                               {"new", n - match.match},
                               {"load_ms", line.stats->load_ns / 1'000'000},
                               {"prefill_ms", line.prefill_ns / 1'000'000},
                               {"saved_ms", line.saved_ns / 1'000'000},
                               {"miss", name(line.stats->miss)}};
  if (!match.detail.empty()) {
    const size_t equals = match.detail.find('=');  // "at=71" is a field of its own.
    if (equals == std::string::npos) fields.emplace_back("detail", match.detail);
    else fields.emplace_back(match.detail.substr(0, equals), match.detail.substr(equals + 1));
  }
  if (match.diverged_at >= 0 && match.reason == MissReason::diverged) {
    fields.emplace_back("had", ids(match.had));
    fields.emplace_back("got", ids(tokens_around(line.tokens, match.diverged_at)));
    if (!match.nearest.empty()) fields.emplace_back("nearest", match.nearest);
  }
  if (line.anchors_are_short && match.reason == MissReason::no_anchor) fields.emplace_back("hint", "raise --anchors");
  log_line(LogLevel::info, "prefix", fields);
}

}  // namespace wp
