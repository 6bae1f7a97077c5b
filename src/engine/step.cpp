#include "engine/step.h"

#include <algorithm>

#include "engine/limits.h"
#include "engine/memory_plan.h"

namespace wp {

Result<std::unique_ptr<Step>> Step::make(const Model& model, Device& device, const EngineLimits& limits) {
  const ModelInfo& info = model.info();
  std::unique_ptr<Step> step(new Step(model, device));
  step->vocabulary_ = info.vocabulary;
  step->logit_rows_max_ = logit_rows_max(limits);
  step->receipts_expected_ = info.capture_receipts;

  const ScratchLimits scratch = scratch_limits(limits);
  WP_TRY(step->scratch_, model.make_scratch(device, scratch));
  const MemoryPlan plan = memory_plan(info, limits);
  WP_TRY(check_fits(plan, available_memory_bytes(device)));
  WP_TRY(check_ram_fits(plan, reads_host_memory(device.kind()), available_memory_bytes()));
  WP_TRY(step->logits_, Buffer::make(device, plan.logits_bytes, "logits"));
  WP_TRY(step->pools_, Pools::make(device, info, limits.pages, limits.anchors, limits.sequences));

  step->tokens_.reserve(static_cast<size_t>(scratch.rows_max));
  step->segments_.reserve(static_cast<size_t>(scratch.segments_max));
  step->logit_rows_.reserve(static_cast<size_t>(scratch.logit_rows_max));
  step->first_logit_.reserve(static_cast<size_t>(scratch.segments_max));
  return step;
}

void Step::warm_up(const EngineLimits& limits) {
  const auto page_of = [&](size_t index) { return static_cast<PageId>(index % static_cast<size_t>(limits.pages)); };
  const int64_t rows_max = std::min(scratch_limits(limits).rows_max, limits.context_tokens);
  const std::vector<TokenId> tokens(static_cast<size_t>(rows_max), 0);
  std::vector<PageId> pages;
  for (int64_t i = 0; i < pages_for(rows_max); ++i) pages.push_back(page_of(static_cast<size_t>(i)));
  for (const int64_t rows : {int64_t{1}, int64_t{64}, int64_t{300}, rows_max, rows_max}) {
    const StepSegment segment{.tokens = std::span(tokens).first(static_cast<size_t>(std::min(rows, rows_max))),
                              .slot = 0,
                              .pages = pages,
                              .logits = LogitRows::last};
    run(Phase::prefill, {&segment, 1});
  }
  // Each number of sequences three times: as it is, written down as a graph, from the graph.
  std::vector<StepSegment> segments;
  for (int32_t slot = 0; slot < limits.sequences; ++slot) {
    segments.push_back({.tokens = std::span(tokens).first(1),
                        .slot = slot,
                        .pages = std::span(pages).subspan(static_cast<size_t>(slot) % pages.size(), 1),
                        .logits = LogitRows::last});
    for (int i = 0; i < 3; ++i) run(Phase::decode, segments);
  }
}

void Step::run(Phase phase, std::span<const StepSegment> segments) {
  tokens_.clear();
  segments_.clear();
  logit_rows_.clear();
  first_logit_.clear();
  for (const StepSegment& segment : segments) {
    const auto row_begin = static_cast<int32_t>(tokens_.size()), rows = static_cast<int32_t>(segment.tokens.size());
    tokens_.insert(tokens_.end(), segment.tokens.begin(), segment.tokens.end());
    segments_.push_back({.row_begin = row_begin,
                         .rows = rows,
                         .position = segment.position,
                         .source = segment.source,
                         .anchor = segment.anchor,
                         .slot = segment.slot,
                         .pages = segment.pages,
                         .captures = segment.captures});
    first_logit_.push_back(static_cast<int64_t>(logit_rows_.size()));
    if (segment.logits == LogitRows::all)
      for (int32_t row = 0; row < rows; ++row) logit_rows_.push_back(row_begin + row);
    if (segment.logits == LogitRows::last) logit_rows_.push_back(row_begin + rows - 1);
    for (const Capture& capture : segment.captures) pools_.clear_receipts(capture.anchor);
  }
  WP_ASSERT(static_cast<int64_t>(logit_rows_.size()) <= logit_rows_max_);
  const Tensor logits = logits_.view(DType::f32, {static_cast<int64_t>(logit_rows_.size()), vocabulary_});
  model_.forward(stream_, {.phase = phase, .tokens = tokens_, .segments = segments_, .logit_rows = logit_rows_}, pools_,
                 *scratch_, logits);
  stream_.synchronize();
}

std::span<const float> Step::logits(size_t index, int64_t row) const {
  const int64_t at = first_logit_[index] + row;
  WP_ASSERT(at < static_cast<int64_t>(logit_rows_.size()));
  const Tensor one = logits_.view(DType::f32, {vocabulary_}, at * vocabulary_ * size_bytes(DType::f32));
  return {one.f32(), static_cast<size_t>(vocabulary_)};
}

}  // namespace wp
