// The numerics properties of docs/invariants.md, by equal bits: a canonical row depends on the tokens before it and on
// nothing else, a decode row on its own sequence and on nothing else. Whole models, on every backend that is quick
// enough. Each comparison is shown to catch a kernel that breaks its property, and a single changed bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/tables.h"
#include "testing/broken_kernels.h"
#include "testing/invariance.h"
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

class Invariance : public ::testing::TestWithParam<Subject> {
 protected:
  std::unique_ptr<ModelRun> make(int threads, ModelRunSizes sizes = {}) const {
    sizes.rows_max = std::max<int64_t>(sizes.rows_max, GetParam().length);
    auto run = ModelRun::make(testing::source_directory() + GetParam().folder, GetParam().kind, threads, sizes);
    EXPECT_TRUE(run.ok()) << run.error().message;
    return run.ok() ? std::move(*run) : nullptr;
  }
  int threads() const { return GetParam().kind == DeviceKind::ref ? 1 : 2; }
};

TEST_P(Invariance, AShorterPromptIsThePrefixOfALonger) {
  auto run = make(threads(), {.context_max = 2048});
  ASSERT_TRUE(run);
  EXPECT_EQ(testing::shorter_prompt_difference(*run, GetParam().length), "");
}

TEST_P(Invariance, PiecesAndNeighboursDoNotMatter) {
  auto run = make(threads(), {.context_max = 2048});
  ASSERT_TRUE(run);
  for (Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    EXPECT_EQ(testing::pieces_difference(*run, rng, std::min<int64_t>(GetParam().length, 520)), "");
  }
}

TEST_P(Invariance, AnExtendedPromptIsTheLongerPrompt) {
  auto run = make(threads(), {.context_max = 2048});
  ASSERT_TRUE(run);
  EXPECT_EQ(testing::extended_prompt_difference(*run), "");
}

// One bit of a state is seen by the comparison of states, and by the next row.
TEST_P(Invariance, OneBitOfAStateMatters) {
  auto run = make(threads());
  ASSERT_TRUE(run);
  Rng rng(4);
  const auto tokens = testing::draw_tokens(rng, run->info(), 70), next = testing::draw_tokens(rng, run->info(), 1);
  RunningSequence one = run->start(0), other = run->start(1);
  run->prefill(one, tokens);
  run->prefill(other, tokens);
  EXPECT_TRUE(testing::equal_states(*run, one, other));
  run->flip_a_bit(run->pools().slot(other.slot));
  EXPECT_FALSE(testing::equal_states(*run, one, other));
  const auto a = run->pass(Phase::prefill, {{&one, next}}), b = run->pass(Phase::prefill, {{&other, next}});
  EXPECT_FALSE(testing::equal_bits(a.data(), b.data(), run->info().vocabulary));
}

TEST_P(Invariance, ThreadsDoNotMatter) {
  std::vector<float> expected;
  for (int threads : {1, 2, 4}) {
    auto run = make(threads);
    ASSERT_TRUE(run);
    const auto found = testing::rows_of_both_phases(*run);
    if (expected.empty()) expected = found;
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_TRUE(testing::equal_bits(found.data(), expected.data(), static_cast<int64_t>(found.size())))
        << threads << " threads";
  }
}

TEST_P(Invariance, ADecodeRowIsItselfInAnyBatch) {
  auto run = make(threads(), {.sequences = 7});
  ASSERT_TRUE(run);
  for (Seed seed : testing::seeds_of_this_run()) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    Rng rng(seed);
    EXPECT_EQ(testing::decode_batch_difference(*run, rng), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Invariance, ::testing::ValuesIn(subjects()), [](const auto& info) {
  std::string text = std::string(info.param.folder) + "_" + name(info.param.kind);
  text = text.substr(text.rfind('/') + 1);
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return text;
});

// A kernel that breaks a property must make the property's comparison fail.
class BrokenKernels : public ::testing::Test {
 protected:
  std::unique_ptr<ModelRun> make(const StandIn& stand_in, int threads = 2,
                                 const char* folder = "/testdata/qwen4_exp/tiny-nvfp4") {
    stand_in_ = stand_in;
    auto run = ModelRun::make(testing::source_directory() + folder, DeviceKind::cpu, threads,
                              {.rows_max = 330, .context_max = 2048, .sequences = 7});
    EXPECT_TRUE(run.ok()) << run.error().message;
    (*run)->stream().replace(&stand_in_);
    return std::move(*run);
  }
  std::string pieces(ModelRun& run) {
    Rng rng(5);
    return testing::pieces_difference(run, rng, 330);
  }

  StandIn stand_in_;
};

TEST_F(BrokenKernels, OrderOfTheSumByTheNumberOfRows) {
  const auto run = make(testing::split_by_row_count());
  EXPECT_NE(testing::shorter_prompt_difference(*run, 330), "");
  EXPECT_NE(pieces(*run), "");
}

TEST_F(BrokenKernels, OrderOfTheSumByThePlaceInThePass) {
  const auto run = make(testing::split_by_place());
  EXPECT_NE(pieces(*run), "");
  EXPECT_NE(testing::extended_prompt_difference(*run), "");
}

TEST_F(BrokenKernels, ChunksCountedFromThePass) { EXPECT_NE(pieces(*make(testing::chunks_from_pass())), ""); }

TEST_F(BrokenKernels, CachedKeysSummedApartFromNewOnes) {
  const auto run = make(testing::cached_keys_apart(), 2, "/testdata/qwen3_next/qwen3-next");
  EXPECT_NE(pieces(*run), "");
  EXPECT_NE(testing::extended_prompt_difference(*run), "");
}

TEST_F(BrokenKernels, AnchorsOfHalfWidth) {
  const auto run = make(testing::anchors_of_half_width());
  EXPECT_EQ(pieces(*run), "");  // Nothing is restored there.
  EXPECT_NE(testing::extended_prompt_difference(*run), "");
}

TEST_F(BrokenKernels, OrderOfTheSumByTheBatch) {
  const auto run = make(testing::split_by_batch());
  Rng rng(6);
  EXPECT_NE(testing::decode_batch_difference(*run, rng), "");
}

TEST_F(BrokenKernels, OrderOfTheSumByTheThreads) {
  const auto one = testing::rows_of_both_phases(*make(testing::split_by_threads(), 1));
  const auto two = testing::rows_of_both_phases(*make(testing::split_by_threads(), 2));
  ASSERT_EQ(one.size(), two.size());
  EXPECT_FALSE(testing::equal_bits(one.data(), two.data(), static_cast<int64_t>(one.size())));
}

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
  const auto tokens = testing::draw_tokens(rng, run.info(), longer);
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
  EXPECT_TRUE(testing::equal_bits(found.data(), expected.data() + row * V, V)) << n << " of " << longer;
}

}  // namespace
}  // namespace wp
