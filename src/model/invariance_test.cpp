// The numerics properties of docs/invariants.md, by equal bits: a canonical row depends on the tokens before it and on
// nothing else, a decode row on its own sequence and on nothing else. Whole models, on every backend that is quick
// enough; each comparison is shown to catch a single changed bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "ops/tables.h"
#include "testing/model_run.h"
#include "testing/op_case.h"
#include "testing/seeds.h"

namespace wp {
namespace {

using testing::ModelRun;
using testing::ModelRunSizes;
using testing::RunningSequence;

struct Subject {
  const char* folder;
  DeviceKind kind;
  int64_t length;  // Tokens of the long prompt.
};

void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.folder << " on " << name(subject.kind); }

std::vector<Subject> subjects() {
  std::vector<Subject> found;
  for (DeviceKind kind : testing::backends()) {
    found.push_back({"/testdata/qwen4_exp/tiny-nvfp4", kind, 330});
    if (kind == DeviceKind::ref) continue;
    found.push_back({"/testdata/qwen4_exp/no-ple-silu", kind, 330});
    found.push_back({"/testdata/qwen3_next/qwen3-next", kind, 330});
    found.push_back({"/models/flash-next-mini", kind, 1100});
  }
  return found;
}

std::vector<TokenId> draw_tokens(Rng& rng, const ModelInfo& info, int64_t count) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(rng.between(0, info.vocabulary - 1)));
  return tokens;
}

bool equal_bits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

class Invariance : public ::testing::TestWithParam<Subject> {
 protected:
  std::unique_ptr<ModelRun> make(int threads, ModelRunSizes sizes = {}) const {
    sizes.rows_max = std::max<int64_t>(sizes.rows_max, GetParam().length);
    auto run = ModelRun::make(testing::source_directory() + GetParam().folder, GetParam().kind, threads, sizes);
    EXPECT_TRUE(run.ok()) << run.error().message;
    return run.ok() ? std::move(*run) : nullptr;
  }
  // All that a sequence leaves: recurrent state (without index keys of an open block) and whole pages.
  static bool equal_states(ModelRun& run, const RunningSequence& a, const RunningSequence& b) {
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

  static std::vector<TokenId> part(const std::vector<TokenId>& tokens, int64_t begin, int64_t end) {
    return {tokens.begin() + begin, tokens.begin() + end};
  }
};

// prefill(tokens[0:n]) is the first n rows of prefill(tokens), for n around every multiple of 64.
TEST_P(Invariance, AShorterPromptIsThePrefixOfALonger) {
  auto run = make(GetParam().kind == DeviceKind::ref ? 1 : 2, {.context_max = 2048});
  ASSERT_TRUE(run);
  Rng rng(1);
  const int64_t V = run->info().vocabulary;
  const auto tokens = draw_tokens(rng, run->info(), GetParam().length);
  RunningSequence whole = run->start(0);
  const auto expected = run->prefill(whole, tokens);
  for (int64_t n = 63, step = 0; n <= std::min<int64_t>(1025, GetParam().length); n += 64, ++step) {
    // All of 63, 64, 65 and, at the later multiples, one of the three each.
    for (int64_t rows = n + (step < 2 ? 0 : step % 3); rows <= n + (step < 2 ? 2 : step % 3); ++rows) {
      RunningSequence shorter = run->start(1);
      const auto last = run->pass(Phase::prefill, {{&shorter, part(tokens, 0, rows)}}, 1);
      ASSERT_TRUE(equal_bits(last.data(), expected.data() + (rows - 1) * V, V)) << rows << " rows";
    }
  }
}

// Cut anywhere, alone or beside other sequences: the same rows, states and pages.
TEST_P(Invariance, PiecesAndNeighboursDoNotMatter) {
  auto run = make(GetParam().kind == DeviceKind::ref ? 1 : 2, {.context_max = 2048});
  ASSERT_TRUE(run);
  for (Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    const int64_t V = run->info().vocabulary;
    const int64_t length = std::min<int64_t>(GetParam().length, 520);
    const auto tokens = draw_tokens(rng, run->info(), length);
    RunningSequence whole = run->start(0);
    const auto expected = run->prefill(whole, tokens);
    RunningSequence cut = run->start(1), neighbour = run->start(2), another = run->start(3);
    while (cut.position < length) {
      const bool on_grid = rng.percent(60);
      int64_t end = std::min(length, cut.position + rng.between(1, 150));
      if (on_grid && end < length) end = std::min(length, (end + 63) / 64 * 64);
      const int64_t begin = cut.position;
      std::vector<ModelRun::Part> parts;
      if (neighbour.position < 600 && rng.percent(50))
        parts.push_back({&neighbour, draw_tokens(rng, run->info(), rng.between(1, 70))});
      int64_t before = parts.empty() ? 0 : static_cast<int64_t>(parts[0].tokens.size());
      parts.push_back({&cut, part(tokens, begin, end)});
      if (another.position < 600 && rng.percent(50))
        parts.push_back({&another, draw_tokens(rng, run->info(), rng.between(1, 70))});
      const auto rows = run->pass(Phase::prefill, parts);
      ASSERT_TRUE(equal_bits(rows.data() + before * V, expected.data() + begin * V, (end - begin) * V))
          << "rows " << begin << " to " << end;
    }
    EXPECT_TRUE(equal_states(*run, whole, cut));
    // The control: one bit of the state is seen by the comparison, and by the next row.
    const auto next = draw_tokens(rng, run->info(), 1);
    run->flip_a_bit(run->pools().slot(cut.slot));
    EXPECT_FALSE(equal_states(*run, whole, cut));
    const auto one = run->pass(Phase::prefill, {{&whole, next}}), other = run->pass(Phase::prefill, {{&cut, next}});
    EXPECT_FALSE(equal_bits(one.data(), other.data(), V));
  }
}

// A prompt extended from an anchor equals the longer prompt computed at once.
TEST_P(Invariance, AnExtendedPromptIsTheLongerPrompt) {
  auto run = make(GetParam().kind == DeviceKind::ref ? 1 : 2, {.context_max = 2048});
  ASSERT_TRUE(run);
  Rng rng(2);
  const int64_t V = run->info().vocabulary, base = 192;
  const auto tokens = draw_tokens(rng, run->info(), base + 100);
  RunningSequence whole = run->start(0);
  const auto expected = run->prefill(whole, tokens);
  RunningSequence first = run->start(1);
  run->pass(Phase::prefill, {{&first, part(tokens, 0, base), {{128, 0}, {base, 1}}}});
  for (const int64_t more : {1, 7, 63, 64, 65, static_cast<int>(rng.between(2, 99))})
    for (const Capture& from : {Capture{128, 0}, Capture{base, 1}}) {
      RunningSequence second = run->start(2);
      for (int64_t page = 0; page < from.position / kPageRows; ++page)
        second.pages[static_cast<size_t>(page)] = first.pages[static_cast<size_t>(page)];
      second.position = from.position;
      second.resume_anchor = from.anchor;
      const auto rows = run->pass(Phase::prefill, {{&second, part(tokens, from.position, from.position + more)}});
      ASSERT_TRUE(equal_bits(rows.data(), expected.data() + from.position * V, more * V))
          << more << " tokens behind " << from.position;
    }
  // The control: an anchor with one bit changed is another prefix.
  run->flip_a_bit(run->pools().anchor(1));
  RunningSequence broken = run->start(3);
  for (int64_t page = 0; page < base / kPageRows; ++page)
    broken.pages[static_cast<size_t>(page)] = first.pages[static_cast<size_t>(page)];
  broken.position = base;
  broken.resume_anchor = 1;
  const auto rows = run->pass(Phase::prefill, {{&broken, part(tokens, base, base + 1)}});
  EXPECT_FALSE(equal_bits(rows.data(), expected.data() + base * V, V));
}

TEST_P(Invariance, ThreadsDoNotMatter) {
  Rng rng(3);
  std::vector<TokenId> tokens;
  std::vector<float> expected;
  for (int threads : {1, 2, 4}) {
    auto run = make(threads);
    ASSERT_TRUE(run);
    if (tokens.empty()) tokens = draw_tokens(rng, run->info(), 200);
    RunningSequence sequence = run->start(0);
    auto found = run->pass(Phase::prefill, {{&sequence, tokens}});
    const auto decoded = run->pass(Phase::decode, {{&sequence, {tokens[5]}}});
    found.insert(found.end(), decoded.begin(), decoded.end());
    if (expected.empty()) expected = found;
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_TRUE(equal_bits(found.data(), expected.data(), static_cast<int64_t>(found.size()))) << threads << " threads";
  }
}

// A decode row equals itself in any batch and at any place of it.
TEST_P(Invariance, ADecodeRowIsItselfInAnyBatch) {
  auto run = make(GetParam().kind == DeviceKind::ref ? 1 : 2, {.sequences = 7});
  ASSERT_TRUE(run);
  for (Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    const int64_t V = run->info().vocabulary;
    const auto prompt = draw_tokens(rng, run->info(), rng.between(3, 180));
    RunningSequence alone = run->start(0), together = run->start(1);
    run->prefill(alone, prompt);
    run->prefill(together, prompt);
    std::vector<RunningSequence> others;
    for (int32_t i = 2; i < 7; ++i) {
      others.push_back(run->start(i));
      run->prefill(others.back(), draw_tokens(rng, run->info(), rng.between(1, 100)));
    }
    for (int step = 0; step < 10; ++step) {
      const auto token = draw_tokens(rng, run->info(), 1);
      const auto expected = run->pass(Phase::decode, {{&alone, token}});
      std::vector<ModelRun::Part> parts;
      for (RunningSequence& other : others)
        if (rng.percent(60)) parts.push_back({&other, draw_tokens(rng, run->info(), 1)});
      const int64_t place = rng.between(0, static_cast<int64_t>(parts.size()));
      parts.insert(parts.begin() + place, {&together, token});
      const auto found = run->pass(Phase::decode, parts);
      ASSERT_TRUE(equal_bits(found.data() + place * V, expected.data(), V))
          << "step " << step << ", place " << place << " of " << parts.size();
    }
    EXPECT_TRUE(equal_states(*run, alone, together));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Invariance, ::testing::ValuesIn(subjects()), [](const auto& info) {
  std::string text = std::string(info.param.folder) + "_" + name(info.param.kind);
  text = text.substr(text.rfind('/') + 1);
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return text;
});

// To 8,192 tokens, at one random length a run.
TEST(LongInvariance, AShorterPromptIsThePrefixOfALonger) {
  if (!ops::check_backend(DeviceKind::cpu).ok()) return;
  auto made = ModelRun::make(testing::source_directory() + "/models/flash-next-mini", DeviceKind::cpu, 2,
                             {.rows_max = 2048, .context_max = 8192, .sequences = 2});
  ASSERT_TRUE(made.ok()) << made.error().message;
  ModelRun& run = **made;
  const Seed seed = testing::seeds_of_this_run().back();
  SCOPED_TRACE(testing::repeat_hint(seed));
  Rng rng(seed);
  const int64_t longer = rng.between(1100, 8192), V = run.info().vocabulary, last_begin = (longer - 1) / 2048 * 2048;
  const int64_t n = rng.between(std::max(last_begin + 1, longer - 200), longer);
  const auto tokens = draw_tokens(rng, run.info(), longer);
  RunningSequence whole = run.start(0), shorter = run.start(1);
  // Cut at different places; the last rows of the longer one hold row n - 1.
  std::vector<float> expected, found;
  for (int64_t begin = 0; begin < longer; begin += 2048)
    expected =
        run.pass(Phase::prefill, {{&whole, {tokens.begin() + begin, tokens.begin() + std::min(longer, begin + 2048)}}},
                 std::min<int64_t>(longer - begin, 400));
  for (int64_t begin = 0; begin < n; begin += 960)
    found =
        run.pass(Phase::prefill, {{&shorter, {tokens.begin() + begin, tokens.begin() + std::min(n, begin + 960)}}}, 1);
  const int64_t row = static_cast<int64_t>(expected.size()) / V - 1 - (longer - n);
  ASSERT_GE(row, 0);
  EXPECT_TRUE(equal_bits(found.data(), expected.data() + row * V, V)) << n << " of " << longer;
}

}  // namespace
}  // namespace wp
