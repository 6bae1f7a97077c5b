#include "testing/invariance.h"

#include <algorithm>
#include <cstring>

#include "core/cat.h"

namespace wp::testing {
namespace {

std::vector<TokenId> part(const std::vector<TokenId>& tokens, int64_t begin, int64_t end) {
  return {tokens.begin() + begin, tokens.begin() + end};
}

// A sequence that continues another's pages from an anchor of it.
RunningSequence resumed(ModelRun& run, int32_t index, const RunningSequence& first, const Capture& from) {
  RunningSequence sequence = run.start(index);
  for (int64_t page = 0; page < from.position / kPageRows; ++page)
    sequence.pages[static_cast<size_t>(page)] = first.pages[static_cast<size_t>(page)];
  sequence.position = from.position;
  sequence.resume_anchor = from.anchor;
  return sequence;
}

}  // namespace

std::vector<TokenId> draw_tokens(Rng& rng, const ModelInfo& info, int64_t count) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(rng.between(0, info.vocabulary - 1)));
  return tokens;
}

bool equal_bits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

bool equal_states(ModelRun& run, const RunningSequence& a, const RunningSequence& b) {
  const ModelInfo& info = run.info();
  const auto equal = [&](const std::byte* one, const std::byte* other, int64_t bytes) {
    return run.record(one, bytes) == run.record(other, bytes);
  };
  if (!equal(run.pools().slot(a.slot), run.pools().slot(b.slot), info.anchor_bytes)) return false;
  for (int64_t page = 0; page < a.position / kPageRows; ++page)
    if (!equal(run.pools().page(a.pages[static_cast<size_t>(page)]),
               run.pools().page(b.pages[static_cast<size_t>(page)]), info.page_bytes))
      return false;
  return true;
}

std::string shorter_prompt_difference(ModelRun& run, int64_t length) {
  Rng rng(1);
  const int64_t V = run.info().vocabulary;
  const auto tokens = draw_tokens(rng, run.info(), length);
  RunningSequence whole = run.start(0);
  const auto expected = run.prefill(whole, tokens);
  for (int64_t n = 63, step = 0; n <= std::min<int64_t>(1025, length); n += 64, ++step) {
    // All of 63, 64, 65 and, at the later multiples, one of the three each.
    const int64_t least = n + (step < 2 ? 0 : step % 3), most = n + (step < 2 ? 2 : step % 3);
    for (int64_t rows = least; rows <= std::min(most, length); ++rows) {
      RunningSequence shorter = run.start(1);
      const auto last = run.pass(Phase::prefill, {{&shorter, part(tokens, 0, rows)}}, 1);
      if (!equal_bits(last.data(), expected.data() + (rows - 1) * V, V)) return cat("a prompt of ", rows, " tokens");
    }
  }
  return {};
}

std::string pieces_difference(ModelRun& run, Rng& rng, int64_t length) {
  const int64_t V = run.info().vocabulary;
  const auto tokens = draw_tokens(rng, run.info(), length);
  RunningSequence whole = run.start(0);
  const auto expected = run.prefill(whole, tokens);
  RunningSequence cut = run.start(1), neighbour = run.start(2), another = run.start(3);
  while (cut.position < length) {
    const bool on_grid = rng.percent(60);
    int64_t end = std::min(length, cut.position + rng.between(1, 150));
    if (on_grid && end < length) end = std::min(length, (end + 63) / 64 * 64);
    const int64_t begin = cut.position;
    std::vector<ModelRun::Part> parts;
    if (neighbour.position < 600 && rng.percent(50))
      parts.push_back({&neighbour, draw_tokens(rng, run.info(), rng.between(1, 70))});
    const int64_t before = parts.empty() ? 0 : static_cast<int64_t>(parts[0].tokens.size());
    parts.push_back({&cut, part(tokens, begin, end)});
    if (another.position < 600 && rng.percent(50))
      parts.push_back({&another, draw_tokens(rng, run.info(), rng.between(1, 70))});
    const auto rows = run.pass(Phase::prefill, parts);
    if (!equal_bits(rows.data() + before * V, expected.data() + begin * V, (end - begin) * V))
      return cat("rows ", begin, " to ", end, " of ", length);
  }
  return equal_states(run, whole, cut) ? "" : cat("the state after ", length, " tokens");
}

std::string extended_prompt_difference(ModelRun& run) {
  Rng rng(2);
  const int64_t V = run.info().vocabulary, base = 192;
  const auto tokens = draw_tokens(rng, run.info(), base + 100);
  RunningSequence whole = run.start(0);
  const auto expected = run.prefill(whole, tokens);
  RunningSequence first = run.start(1);
  run.pass(Phase::prefill, {{&first, part(tokens, 0, base), {{128, 0}, {base, 1}}}});
  for (const int64_t more : {1, 7, 63, 64, 65, static_cast<int>(rng.between(2, 99))})
    for (const Capture& from : {Capture{128, 0}, Capture{base, 1}}) {
      RunningSequence second = resumed(run, 2, first, from);
      const auto rows = run.pass(Phase::prefill, {{&second, part(tokens, from.position, from.position + more)}});
      if (!equal_bits(rows.data(), expected.data() + from.position * V, more * V))
        return cat(more, " tokens behind ", from.position);
    }
  return {};
}

std::string decode_batch_difference(ModelRun& run, Rng& rng) {
  const int64_t V = run.info().vocabulary;
  const auto prompt = draw_tokens(rng, run.info(), rng.between(3, 180));
  RunningSequence alone = run.start(0), together = run.start(1);
  run.prefill(alone, prompt);
  run.prefill(together, prompt);
  std::vector<RunningSequence> others;
  for (int32_t i = 2; i < 7; ++i) {
    others.push_back(run.start(i));
    run.prefill(others.back(), draw_tokens(rng, run.info(), rng.between(1, 100)));
  }
  for (int step = 0; step < 10; ++step) {
    const auto token = draw_tokens(rng, run.info(), 1);
    const auto expected = run.pass(Phase::decode, {{&alone, token}});
    std::vector<ModelRun::Part> parts;
    for (RunningSequence& other : others)
      if (rng.percent(60)) parts.push_back({&other, draw_tokens(rng, run.info(), 1)});
    const int64_t place = rng.between(0, static_cast<int64_t>(parts.size()));
    parts.insert(parts.begin() + place, {&together, token});
    const auto found = run.pass(Phase::decode, parts);
    if (!equal_bits(found.data() + place * V, expected.data(), V))
      return cat("step ", step, ", place ", place, " of ", parts.size());
  }
  return equal_states(run, alone, together) ? "" : "the state after ten steps";
}

std::vector<float> rows_of_both_phases(ModelRun& run) {
  Rng rng(3);
  const auto tokens = draw_tokens(rng, run.info(), 200);
  RunningSequence sequence = run.start(0);
  auto rows = run.pass(Phase::prefill, {{&sequence, tokens}});
  const auto decoded = run.pass(Phase::decode, {{&sequence, {tokens[5]}}});
  rows.insert(rows.end(), decoded.begin(), decoded.end());
  return rows;
}

}  // namespace wp::testing
