// Where a request's anchors are to be captured (prefix_cache.md 6), and the log line of its restore decision (15.1).
// Pure; engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/engine.h"

namespace wp {

constexpr int kCapturesPerTurn = 3;
constexpr int kSharersPerTurn = 4;          // Further points, for requests that wait for them.
constexpr int64_t kCapturePromptMin = 256;  // Shorter prompts are computed again sooner than found.
constexpr int64_t kLadderFirst = 8192;      // And its doublings.

struct CaptureChoice {
  std::vector<CapturePoint> points;  // Ascending, distinct, above what is restored, below the prompt's end.
  int64_t dropped = 0;               // Asked for by the request and impossible: off the grid or out of range.
};

// Of what the request asks, what the match suggests (B) and the ladder. Where more than three remain, in this order:
// T serves the next turn, S every conversation, B was asked for twice, U some templates, L edits deep in history.
// Points at or below the restored anchor are neither kept nor counted: their state is known already.
CaptureChoice choose_captures(std::span<const CapturePoint> asked, const Match& match, int64_t prompt);

struct PrefixLine {
  std::string_view id;
  std::span<const TokenId> tokens;
  const Match* match;
  const RequestStats* stats;
  int64_t prefill_ns, saved_ns;  // Estimates of what is computed and of what is not.
  bool anchors_are_short;        // Captures were refused for want of anchors.
};

// `prefix id=... n=... ...`. Tokens stand as ids: the engine knows no text.
void log_prefix(const PrefixLine& line);

}  // namespace wp
