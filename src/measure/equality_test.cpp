// The battery on the small fixtures: no difference on models as they are, also where all memory that is handed out is
// full of NaN patterns; and a difference on each model that is broken on purpose, or the battery would prove nothing.
#include "measure/equality.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <set>

#include "core/log.h"
#include "testing/seeds.h"

namespace wp::measure {
namespace {

enum class Damage : uint8_t {
  none,
  poisoned_memory,         // No fault: pages, slots and anchors are NaN patterns when they are handed out.
  conv_row_skipped,        // A row of the first layer's convolution tail is zero in each anchor.
  conv_tail_zeroed,        // All of it.
  ngram_ids_shifted,       // The last tokens that an anchor remembers are others.
  pending_keys_dropped,    // A restored sequence loses the index keys of its open block.
  stale_page,              // A restored sequence reads another page for the last one below its anchor.
  anchor_off_by_64,        // The state of 64 tokens before.
  page_above_anchor_kept,  // Rows that a restored sequence computes do not reach its first page above the anchor.
  order_by_rows            // The last bit of each logit depends on the rows of the pass.
};

// Sizes of testdata/qwen4_exp/tiny-nvfp4: its first layer's state comes first in an anchor, then that layer's tail.
constexpr int64_t kStateBytes = 6 * 16 * 16 * 4, kTaps = 3, kTailBytes = kTaps * (2 * 2 * 16 + 6 * 16) * 4;

class DamagedModel final : public Model {
 public:
  DamagedModel(const Model& model, Damage damage) : model_(model), damage_(damage) {}

  const ModelInfo& info() const override { return model_.info(); }
  Result<std::unique_ptr<Scratch>> make_scratch(Device& device, const ScratchLimits& limits) const override {
    return model_.make_scratch(device, limits);
  }
  void forward(Stream& stream, const Batch& batch, Pools& pools, Scratch& scratch,
               const Tensor& logits) const override {
    std::vector<Segment> segments(batch.segments.begin(), batch.segments.end());
    std::vector<std::vector<int32_t>> pages(segments.size());
    std::vector<std::vector<Capture>> captures(segments.size());
    std::vector<std::vector<std::byte>> kept(segments.size());
    for (size_t i = 0; i < segments.size(); ++i) before(segments[i], pools, pages[i], captures[i], kept[i]);
    Batch changed = batch;
    changed.segments = segments;
    model_.forward(stream, changed, pools, scratch, logits);
    for (size_t i = 0; i < segments.size(); ++i) after(batch, segments[i], pools, kept[i]);
    if (damage_ == Damage::order_by_rows && batch.tokens.size() >= 128) {
      for (int64_t i = 0; i < logits.shape.count(); ++i) {
        float& value = logits.f32()[i];
        value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1u);
        ++strikes_;
      }
    }
  }
  int64_t strikes() const { return strikes_; }

 private:
  void before(Segment& segment, Pools& pools, std::vector<int32_t>& pages, std::vector<Capture>& captures,
              std::vector<std::byte>& kept) const {
    const auto first = static_cast<size_t>((segment.position + 63) / 64);  // Of the pages that are new.
    const ModelInfo& sizes = info();
    if (damage_ == Damage::poisoned_memory) {
      for (size_t i = first; i < segment.pages.size(); ++i) fill(pools.page(segment.pages[i]), sizes.page_bytes);
      if (segment.source != StateSource::slot) fill(pools.slot(segment.slot), sizes.slot_bytes);
      for (const Capture& capture : segment.captures) fill(pools.anchor(capture.anchor), sizes.anchor_bytes);
    }
    const bool restores = segment.source == StateSource::anchor;
    if (restores) restored_.insert(&pools.slot(segment.slot)[0]);
    else if (segment.source == StateSource::zero) restored_.erase(&pools.slot(segment.slot)[0]);
    if (damage_ == Damage::stale_page && restores && first >= 2) {
      pages.assign(segment.pages.begin(), segment.pages.end());
      pages[first - 1] = pages[0];
      segment.pages = pages;
      ++strikes_;
    }
    if (damage_ == Damage::page_above_anchor_kept && restores && first < segment.pages.size()) {
      const std::byte* page = pools.page(segment.pages[first]);
      kept.assign(page, page + sizes.page_bytes);
    }
    if (damage_ == Damage::anchor_off_by_64 && !segment.captures.empty()) {
      captures.assign(segment.captures.begin(), segment.captures.end());
      for (Capture& capture : captures) {
        if (capture.position - 64 <= segment.position) continue;
        capture.position -= 64;
        ++strikes_;
      }
      segment.captures = captures;
    }
  }

  void after(const Batch& batch, const Segment& segment, Pools& pools, const std::vector<std::byte>& kept) const {
    if (!kept.empty()) {
      const auto page = static_cast<size_t>((segment.position + 63) / 64);
      std::memcpy(pools.page(segment.pages[page]), kept.data(), kept.size());
      ++strikes_;
    }
    for (const Capture& capture : segment.captures) {
      std::byte* anchor = pools.anchor(capture.anchor);
      if (damage_ == Damage::conv_row_skipped) zero(anchor + kStateBytes, kTailBytes / kTaps);
      if (damage_ == Damage::conv_tail_zeroed) zero(anchor + kStateBytes, kTailBytes);
      if (damage_ == Damage::ngram_ids_shifted) shift_ids(batch, segment, capture, anchor);
    }
    if (damage_ == Damage::pending_keys_dropped && restored_.contains(pools.slot(segment.slot)))
      zero(pools.slot(segment.slot) + info().anchor_bytes, info().slot_bytes - info().anchor_bytes);
  }

  // The two tokens before the captured position, wherever the record holds them.
  void shift_ids(const Batch& batch, const Segment& segment, const Capture& capture, std::byte* anchor) const {
    const TokenId* last = batch.tokens.data() + segment.row_begin + (capture.position - segment.position);
    const TokenId ids[2] = {last[-2], last[-1]}, turned[2] = {last[-1], last[-2]};
    for (int64_t at = 0; at + 8 <= info().anchor_bytes; at += 64) {
      if (std::memcmp(anchor + at, ids, 8) != 0 && std::memcmp(anchor + at, turned, 8) != 0) continue;
      auto* id = reinterpret_cast<TokenId*>(anchor + at);
      for (int i = 0; i < 2; ++i) id[i] = (id[i] + 1) % 300;
      ++strikes_;
    }
  }
  void zero(std::byte* at, int64_t bytes) const {
    std::memset(at, 0, static_cast<size_t>(bytes));
    ++strikes_;
  }
  void fill(std::byte* at, int64_t bytes) const {
    std::memset(at, 0xFF, static_cast<size_t>(bytes));
    ++strikes_;
  }

  const Model& model_;
  const Damage damage_;
  mutable std::set<const std::byte*> restored_;  // Slots whose sequence began at an anchor.
  mutable int64_t strikes_ = 0;
};

class Equality : public ::testing::Test {
 protected:
  void SetUp() override { configure_log({.level = LogLevel::error}); }

  EqualityResult run(const std::string& fixture, Damage damage, const EqualityOptions& options) {
    auto model = load_model(testing::source_directory() + "/testdata/" + fixture, *device_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    const DamagedModel damaged(**model, damage);
    auto result = run_equality(damaged, *device_, options);
    EXPECT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(damaged.strikes() > 0, damage != Damage::none) << "the damage never happened";
    return std::move(result).value();
  }
  void expect_equal(const std::string& fixture, Damage damage, int64_t cases, Seed seed) {
    SCOPED_TRACE(testing::repeat_hint(seed));
    const EqualityResult result = run(fixture, damage, {.cases = cases, .seed = seed, .prompt_max = 1200});
    EXPECT_EQ(result.difference, "");
    EXPECT_EQ(result.cases, cases);
    EXPECT_GT(result.warm_requests, cases / 3);
    for (const int64_t count : result.by_behind) EXPECT_GT(count, 0);
    for (const int64_t count : result.warm_by_tier) EXPECT_GT(count, 0);
  }
  void expect_caught(Damage damage) {
    const EqualityResult result = run("qwen4_exp/tiny-nvfp4", damage, {.cases = 90, .seed = 5, .prompt_max = 1200});
    EXPECT_FALSE(result.passed()) << "the battery passed a broken model";
    EXPECT_NE(result.difference.find("cold token"), std::string::npos) << result.difference;  // By its answer.
    EXPECT_NE(result.difference.find("repeat with --seed 5"), std::string::npos) << result.difference;
  }

  std::unique_ptr<Device> device_ = Device::make(DeviceKind::cpu, 1).value();
};

TEST_F(Equality, Qwen4Exp) {
  for (const Seed seed : testing::seeds_of_this_run()) expect_equal("qwen4_exp/tiny-nvfp4", Damage::none, 27, seed);
}

TEST_F(Equality, Qwen3Next) {
  for (const Seed seed : testing::seeds_of_this_run()) expect_equal("qwen3_next/qwen3-next", Damage::none, 18, seed);
}

TEST_F(Equality, MemoryThatIsHandedOutMayHoldAnything) {
  for (const Seed seed : testing::seeds_of_this_run())
    expect_equal("qwen4_exp/tiny-nvfp4", Damage::poisoned_memory, 9, seed);
}

TEST_F(Equality, CatchesASkippedConvolutionRow) { expect_caught(Damage::conv_row_skipped); }
TEST_F(Equality, CatchesAZeroedConvolutionTail) { expect_caught(Damage::conv_tail_zeroed); }
TEST_F(Equality, CatchesShiftedNgramIds) { expect_caught(Damage::ngram_ids_shifted); }
TEST_F(Equality, CatchesDroppedIndexKeys) { expect_caught(Damage::pending_keys_dropped); }
TEST_F(Equality, CatchesAStalePage) { expect_caught(Damage::stale_page); }
TEST_F(Equality, CatchesAnAnchorOffBy64) { expect_caught(Damage::anchor_off_by_64); }
TEST_F(Equality, CatchesAPageAboveTheAnchor) { expect_caught(Damage::page_above_anchor_kept); }
TEST_F(Equality, CatchesAnOrderThatDependsOnTheRows) { expect_caught(Damage::order_by_rows); }

// Answers would be equal where nothing ever comes back from the disk: the battery must notice that it does not.
TEST_F(Equality, CatchesADiskThatNeverAnswers) {
  class Deaf final : public FileLayer {
   public:
    int64_t read(int, void*, int64_t, int64_t) override { return -1; }
  } deaf;
  const EqualityResult result =
      run("qwen4_exp/tiny-nvfp4", Damage::none, {.cases = 20, .seed = 5, .prompt_max = 1200, .files = &deaf});
  EXPECT_NE(result.difference.find("expected to resume at"), std::string::npos) << result.difference;
}

// Equal answers are not enough: an engine that resumes elsewhere than the oracle says is stopped too.
TEST(RestoreOracle, KnowsWhereStatesAreLeft) {
  std::vector<TokenId> prompt(1000);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i);
  RestoreOracle oracle;
  const auto first = oracle.predict(prompt, 128);
  EXPECT_EQ(first.resumes, 0);
  EXPECT_EQ(first.captures, (std::vector<int64_t>{128, 960}));
  oracle.computed(prompt, first, 500);  // Broken off: the tail was never written.
  EXPECT_EQ(oracle.predict(prompt, 128).resumes, 128);
  oracle.computed(prompt, first, 1000);
  EXPECT_EQ(oracle.predict(prompt, 128).resumes, 960);
  prompt[700] = 0;
  const auto edited = oracle.predict(prompt, 128);
  EXPECT_EQ(edited.resumes, 128);
  EXPECT_EQ(edited.captures, (std::vector<int64_t>{640, 960}));  // A branch, and the tail.
  oracle.evict(true);
  EXPECT_EQ(oracle.predict(prompt, 0).resumes, 128);  // The prompt as it was edited was never computed.
  EXPECT_TRUE(oracle.predict(prompt, 0).from_tier);
  EXPECT_EQ(oracle.predict(prompt, 0).captures,
            (std::vector<int64_t>{960}));  // No branch: the device forgot the other.
  oracle.evict(false);
  EXPECT_EQ(oracle.predict(prompt, 0).resumes, 0);
  const std::vector<TokenId> brief(255, 1);
  EXPECT_TRUE(oracle.predict(brief, 128).captures.empty());
}

}  // namespace
}  // namespace wp::measure
