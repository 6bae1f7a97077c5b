#include "testing/model_run.h"

#include <algorithm>
#include <cstring>

#include "core/argmax.h"

namespace wp::testing {

Result<std::unique_ptr<ModelRun>> ModelRun::make(const std::string& path, DeviceKind kind, int threads,
                                                 const ModelRunSizes& sizes) {
  std::unique_ptr<ModelRun> run(new ModelRun());
  WP_TRY(run->device_, Device::make(kind, threads));
  run->stream_ = std::make_unique<Stream>(*run->device_);
  WP_TRY(run->model_, load_model(path, *run->device_));
  WP_TRY(run->take_memory(sizes));
  return run;
}

Result<std::unique_ptr<ModelRun>> ModelRun::synthesize(SyntheticOptions options, DeviceKind kind,
                                                       const ModelRunSizes& sizes) {
  std::unique_ptr<ModelRun> run(new ModelRun());
  WP_TRY(run->device_, Device::make(kind));
  run->stream_ = std::make_unique<Stream>(*run->device_);
  options.fill = reads_host_memory(kind);
  WP_TRY(auto checkpoint, Checkpoint::synthesize(options));
  WP_TRY(run->model_, load_model(std::move(checkpoint), *run->device_));
  WP_TRY(run->take_memory(sizes));
  return run;
}

Result<void> ModelRun::take_memory(const ModelRunSizes& sizes) {
  sizes_ = sizes;
  pages_each_ = static_cast<int32_t>((sizes.context_max + kPageRows - 1) / kPageRows);
  WP_TRY(pools_, Pools::make(*device_, info(), pages_each_ * sizes.sequences, sizes.anchors, sizes.sequences));
  WP_TRY(scratch_, model_->make_scratch(*device_, {.rows_max = sizes.rows_max,
                                                   .logit_rows_max = sizes.rows_max,
                                                   .segments_max = sizes.sequences,
                                                   .context_max = sizes.context_max}));
  return {};
}

RunningSequence ModelRun::start(int32_t index) {
  RunningSequence sequence{.slot = index};
  for (int32_t i = 0; i < pages_each_; ++i) sequence.pages.push_back(index * pages_each_ + i);
  // What is read before it was written shows.
  device_->fill(pools_.slot(index), 0xFF, info().slot_bytes);
  for (int32_t page : sequence.pages) device_->fill(pools_.page(page), 0xFF, info().page_bytes);
  return sequence;
}

std::vector<float> ModelRun::pass(Phase phase, const std::vector<Part>& parts, int64_t last_rows) {
  std::vector<TokenId> tokens;
  std::vector<Segment> segments;
  std::vector<int32_t> rows;
  for (const Part& part : parts) {
    RunningSequence& sequence = *part.sequence;
    Segment segment{.row_begin = static_cast<int32_t>(tokens.size()),
                    .rows = static_cast<int32_t>(part.tokens.size()),
                    .position = sequence.position,
                    .source = sequence.position == 0 ? StateSource::zero : StateSource::slot,
                    .slot = sequence.slot,
                    .pages = sequence.pages,
                    .captures = part.captures};
    if (sequence.resume_anchor >= 0) {
      segment.source = StateSource::anchor;
      segment.anchor = sequence.resume_anchor;
      sequence.resume_anchor = -1;
    }
    segments.push_back(segment);
    for (TokenId token : part.tokens) {
      rows.push_back(static_cast<int32_t>(tokens.size()));
      tokens.push_back(token);
    }
    sequence.position += static_cast<int64_t>(part.tokens.size());
  }
  if (last_rows >= 0 && last_rows < static_cast<int64_t>(rows.size())) rows.erase(rows.begin(), rows.end() - last_rows);
  const Shape shape{static_cast<int64_t>(rows.size()), info().vocabulary};
  if (shape.count() * 4 > logits_.size_bytes()) {
    auto made = Buffer::make(*device_, shape.count() * 4, "logits");
    WP_ASSERT(made.ok());
    logits_ = std::move(*made);
  }
  const Tensor logits = logits_.view(DType::f32, shape);
  model_->forward(*stream_, {.phase = phase, .tokens = tokens, .segments = segments, .logit_rows = rows}, pools_,
                  *scratch_, logits);
  stream_->synchronize();
  return {logits.f32(), logits.f32() + logits.count()};
}

std::vector<float> ModelRun::prefill(RunningSequence& sequence, const std::vector<TokenId>& tokens,
                                     const std::vector<int64_t>& pieces) {
  std::vector<float> all;
  size_t piece = 0;
  for (size_t at = 0; at < tokens.size();) {
    int64_t length = piece < pieces.size() ? pieces[piece++] : static_cast<int64_t>(tokens.size() - at);
    length = std::min({length, static_cast<int64_t>(tokens.size() - at), sizes_.rows_max});
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(at);
    const std::vector<float> logits = pass(Phase::prefill, {{&sequence, {begin, begin + length}}});
    all.insert(all.end(), logits.begin(), logits.end());
    at += static_cast<size_t>(length);
  }
  return all;
}

std::vector<float> ModelRun::prefill_rows(RunningSequence& sequence, const std::vector<TokenId>& tokens,
                                          const std::vector<int64_t>& rows) {
  std::vector<float> found;
  size_t next = 0;
  const auto count = static_cast<int64_t>(tokens.size()), V = info().vocabulary;
  for (int64_t begin = 0; begin < count; begin += sizes_.rows_max) {
    const int64_t end = std::min(count, begin + sizes_.rows_max);
    const int64_t first = next < rows.size() ? rows[next] : end;
    const auto logits = pass(Phase::prefill, {{&sequence, {tokens.begin() + begin, tokens.begin() + end}}},
                             std::max<int64_t>(0, end - first));
    for (; next < rows.size() && rows[next] < end; ++next) {
      const auto row = logits.begin() + (rows[next] - std::max(begin, first)) * V;
      found.insert(found.end(), row, row + V);
    }
  }
  return found;
}

std::vector<std::byte> ModelRun::record(const std::byte* data, int64_t size_bytes) {
  std::vector<std::byte> bytes(static_cast<size_t>(size_bytes));
  device_->copy(bytes.data(), data, size_bytes);
  return bytes;
}

void ModelRun::flip_a_bit(std::byte* record) {
  uint32_t bits = 0;
  device_->copy(&bits, record + 4, 4);
  bits ^= 0x00400000u;
  device_->copy(record + 4, &bits, 4);
}

std::vector<TokenId> ModelRun::greedy(RunningSequence& sequence, const std::vector<float>& last_logits, int64_t count) {
  const int64_t V = info().vocabulary;
  std::vector<TokenId> tokens{argmax(last_logits.data() + last_logits.size() - V, V)};
  while (static_cast<int64_t>(tokens.size()) < count) {
    const std::vector<float> logits = pass(Phase::decode, {{&sequence, {tokens.back()}}});
    tokens.push_back(argmax(logits.data(), V));
  }
  return tokens;
}

TokenId argmax(const float* logits, int64_t count) {
  return static_cast<TokenId>(index_of_largest({logits, static_cast<size_t>(count)}));
}

}  // namespace wp::testing
