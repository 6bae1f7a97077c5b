#include "measure/batch_speed.h"

#include <algorithm>
#include <numeric>

#include "core/clock.h"
#include "measure/model_runner.h"

namespace wp::measure {
namespace {

constexpr Seed kTokenSeed = 13;

// Memory for `sequences` sequences of one prompt: its pages first, then those that each sequence writes.
struct BatchRun {
  const Model& model;
  Stream stream;
  Pools pools;
  std::unique_ptr<Scratch> scratch;
  Buffer logits;
  int64_t depth = 0, pages_each = 0, pass_tokens = 0;
  std::vector<std::vector<int32_t>> pages;  // Of each sequence.

  static Result<std::unique_ptr<BatchRun>> make(const Model& model, Device& device, const BatchOptions& options,
                                                int64_t sequences);
  void read_prompt(std::span<const TokenId> tokens);
  void step(std::span<const TokenId> tokens, int64_t done);
};

Result<std::unique_ptr<BatchRun>> BatchRun::make(const Model& model, Device& device, const BatchOptions& options,
                                                 int64_t sequences) {
  std::unique_ptr<BatchRun> run(new BatchRun{.model = model, .stream = Stream(device)});
  run->depth = options.depth / kPageRows * kPageRows;
  run->pages_each = (options.generated + kPageRows - 1) / kPageRows;
  run->pass_tokens = options.pass_tokens;
  const int64_t shared = run->depth / kPageRows, pages = shared + sequences * run->pages_each;
  const auto count = static_cast<int32_t>(sequences);
  WP_TRY(run->pools, Pools::make(device, model.info(), static_cast<int32_t>(pages), 1, count));
  WP_TRY(run->scratch, model.make_scratch(device, {.rows_max = std::max(options.pass_tokens, sequences),
                                                   .logit_rows_max = sequences,
                                                   .segments_max = sequences,
                                                   .context_max = run->depth + run->pages_each * kPageRows}));
  WP_TRY(run->logits, Buffer::make(device, sequences * model.info().vocabulary * 4, "logits"));
  for (int64_t i = 0; i < sequences; ++i) {
    auto& own = run->pages.emplace_back(static_cast<size_t>(shared + run->pages_each));
    std::iota(own.begin(), own.begin() + shared, 0);
    std::iota(own.begin() + shared, own.end(), static_cast<int32_t>(shared + i * run->pages_each));
  }
  return run;
}

void BatchRun::read_prompt(std::span<const TokenId> tokens) {
  for (int64_t at = 0; at < depth; at += pass_tokens) {
    const int64_t rows = std::min(pass_tokens, depth - at);
    const Capture capture{.position = at + rows, .anchor = 0};
    const bool last = at + rows == depth;
    const Segment segment{.rows = static_cast<int32_t>(rows),
                          .position = at,
                          .source = at == 0 ? StateSource::zero : StateSource::slot,
                          .slot = 0,
                          .pages = pages[0],
                          .captures = {&capture, last ? size_t{1} : size_t{0}}};
    model.forward(stream, {.tokens = tokens.subspan(at, rows), .segments = {&segment, 1}}, pools, *scratch,
                  logits.view(DType::f32, {0, model.info().vocabulary}));
    stream.synchronize();
  }
}

// One token of each; `done` steps came before.
void BatchRun::step(std::span<const TokenId> tokens, int64_t done) {
  std::vector<Segment> segments;
  std::vector<int32_t> rows;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const StateSource begin = depth > 0 ? StateSource::anchor : StateSource::zero;
    segments.push_back({.row_begin = static_cast<int32_t>(i),
                        .rows = 1,
                        .position = depth + done,
                        .source = done > 0 ? StateSource::slot : begin,
                        .anchor = 0,
                        .slot = static_cast<int32_t>(i),
                        .pages = pages[i]});
    rows.push_back(static_cast<int32_t>(i));
  }
  const auto count = static_cast<int64_t>(tokens.size());
  model.forward(stream, {.phase = Phase::decode, .tokens = tokens, .segments = segments, .logit_rows = rows}, pools,
                *scratch, logits.view(DType::f32, {count, model.info().vocabulary}));
  stream.synchronize();
}

}  // namespace

// Tokens are drawn, not chosen from logits: what choosing costs is the engine's, not the pass's.
Result<std::vector<BenchRow>> run_batch_bench(const Model& model, Device& device, const BatchOptions& options,
                                              const FmaPeak& peak) {
  std::vector<BenchRow> rows;
  const ModelInfo& info = model.info();
  const int64_t largest = *std::max_element(options.batches.begin(), options.batches.end());
  WP_TRY(const auto run, BatchRun::make(model, device, options, largest));
  const auto tokens = random_tokens(std::max(run->depth, largest * options.generated), info.vocabulary, kTokenSeed);
  run->read_prompt(tokens);
  for (const int64_t batch : options.batches) {
    BenchRow row{.test = cat("tg", options.generated, " x", batch, run->depth > 0 ? cat(" @ d", run->depth) : ""),
                 .decode = true,
                 .tokens = batch * options.generated,
                 .depth = run->depth};
    for (int64_t repetition = -1; repetition < options.repetitions; ++repetition) {  // The first warms up.
      const int64_t begin_ns = system_clock().now_ns();
      for (int64_t i = 0; i < options.generated; ++i)
        run->step(std::span(tokens).subspan(static_cast<size_t>(i * batch), static_cast<size_t>(batch)), i);
      if (repetition >= 0) row.seconds.push_back(static_cast<double>(system_clock().now_ns() - begin_ns) * 1e-9);
    }
    row.multiply_adds =
        static_cast<double>(batch) * multiply_adds_needed(info, run->depth, options.generated, options.generated);
    fill_speeds(row, peak);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace wp::measure
