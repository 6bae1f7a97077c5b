#include "measure/model_speed.h"

#include <algorithm>

#include "core/clock.h"
#include "core/rng.h"
#include "measure/divergence.h"
#include "measure/model_runner.h"
#include "measure/statistics.h"

namespace wp::measure {
namespace {

constexpr Seed kTokenSeed = 7;
constexpr int64_t kIndexBlock = 4;  // Keys of a block that the indexer scores.

int64_t on_grid(int64_t tokens) { return (tokens + kPageRows - 1) / kPageRows * kPageRows; }

void decode(ModelRunner& runner, TokenId token, int64_t count) {
  for (int64_t i = 0; i < count; ++i) token = argmax(runner.run_last(Phase::decode, {&token, 1}));
}

}  // namespace

void fill_speeds(BenchRow& row, const FmaPeak& peak) {
  std::vector<double> speeds;
  for (double seconds : row.seconds) speeds.push_back(static_cast<double>(row.tokens) / seconds);
  row.tokens_per_s = mean(speeds);
  row.deviation = deviation(speeds);
  const double flops = 2 * row.multiply_adds / static_cast<double>(row.tokens) * row.tokens_per_s;
  row.share_of_peak = peak.gflops > 0 ? flops / (peak.gflops * 1e9) : 0;
}

double multiply_adds_needed(const ModelInfo& info, int64_t begin, int64_t rows, int64_t logit_rows) {
  double sum = info.multiply_adds_per_token * static_cast<double>(rows) +
               info.multiply_adds_head * static_cast<double>(logit_rows);
  for (int64_t position = begin; position < begin + rows; ++position) {
    const int64_t visible = position + 1;
    const int64_t keys = info.sparse_bound > 0 ? std::min(visible, info.sparse_bound) : visible;
    sum += info.multiply_adds_per_token_and_key * static_cast<double>(keys);
    // While everything is attended nothing needs to be chosen.
    if (info.sparse_bound > 0 && visible > info.sparse_bound)
      sum += info.multiply_adds_per_token_and_block * static_cast<double>(visible / kIndexBlock);
  }
  return sum;
}

double decode_bytes_needed(const ModelInfo& info, int64_t begin, int64_t rows) {
  double sum = static_cast<double>(rows) * static_cast<double>(info.weight_bytes_per_token + 2 * info.anchor_bytes);
  for (int64_t position = begin; position < begin + rows; ++position) {
    const int64_t keys = info.sparse_bound > 0 ? std::min(position + 1, info.sparse_bound) : position + 1;
    sum += static_cast<double>(info.page_bytes) / kPageRows * static_cast<double>(keys);
  }
  return sum;
}

Result<std::vector<BenchRow>> run_bench(const Model& model, Device& device, const BenchOptions& options,
                                        const FmaPeak& peak) {
  const ModelInfo& info = model.info();
  std::vector<BenchRow> rows;
  int64_t tokens_max = kPageRows;
  for (int64_t given_depth : options.depths) {
    const int64_t depth = on_grid(given_depth);
    const std::string suffix = depth > 0 ? cat(" @ d", depth) : "";
    for (const bool decoding : {false, true})
      for (int64_t count : decoding ? options.generated : options.prompts) {
        if (count <= 0) continue;
        BenchRow row{
            .test = cat(decoding ? "tg" : "pp", count, suffix), .decode = decoding, .tokens = count, .depth = depth};
        if (decoding) {
          row.multiply_adds = multiply_adds_needed(info, depth, count, count);
          row.bytes = decode_bytes_needed(info, depth, count);
        } else {
          const int64_t passes = (count + options.pass_tokens - 1) / options.pass_tokens;
          row.multiply_adds = multiply_adds_needed(info, depth, count, passes);
        }
        tokens_max = std::max(tokens_max, depth + count);
        rows.push_back(std::move(row));
      }
  }
  if (rows.empty()) return Error{ErrorCode::bad_request, "bench: expected at least one test (-p or -n), found none"};
  WP_TRY(const auto runner, ModelRunner::make(model, device, {tokens_max, options.pass_tokens, 1}));
  const std::vector<TokenId> tokens = random_tokens(tokens_max, info.vocabulary, kTokenSeed);

  int64_t prepared_depth = -1;
  for (BenchRow& row : rows) {
    if (row.depth != prepared_depth && row.depth > 0) {
      if (options.progress) options.progress(cat("reading ", row.depth, " tokens"), 0, options.repetitions);
      runner->restart();
      runner->prefill(std::span(tokens).first(row.depth), options.pass_tokens, true);
      prepared_depth = row.depth;
    }
    for (int64_t repetition = -1; repetition < options.repetitions; ++repetition) {  // The first warms up.
      if (row.depth > 0) runner->rewind();
      else runner->restart();
      const int64_t begin_ns = system_clock().now_ns();
      if (row.decode) decode(*runner, tokens[0], repetition < 0 ? std::min<int64_t>(row.tokens, 8) : row.tokens);
      else runner->prefill(std::span(tokens).subspan(row.depth, row.tokens), options.pass_tokens);
      if (repetition >= 0) row.seconds.push_back(static_cast<double>(system_clock().now_ns() - begin_ns) * 1e-9);
      if (options.progress) options.progress(row.test, repetition + 1, options.repetitions);
    }
    fill_speeds(row, peak);
  }
  return rows;
}

namespace {

std::string parameters_text(int64_t count) {
  return count >= 1'000'000'000 ? fmt::format("{:.2f} B", static_cast<double>(count) * 1e-9)
                                : fmt::format("{:.2f} M", static_cast<double>(count) * 1e-6);
}

double share_of_copy(const BenchRow& row, double copy_bandwidth) {
  return copy_bandwidth > 0 ? row.bytes / static_cast<double>(row.tokens) * row.tokens_per_s / copy_bandwidth : 0;
}

std::string markdown(const std::string& name, const ModelInfo& info, const Device& device,
                     const std::vector<BenchRow>& rows, const FmaPeak& peak, double copy_bandwidth) {
  std::string out =
      fmt::format("| {:<28} | {:>10} | {:>10} | {:<7} | {:>7} | {:>16} | {:>20} | {:>13} | {:>13} |\n", "model", "size",
                  "params", "backend", "threads", "test", "t/s", "share of peak", "share of copy");
  out += fmt::format("| {:-<28} | {:->9}: | {:->9}: | {:-<7} | {:->6}: | {:->15}: | {:->19}: | {:->12}: | {:->12}: |\n",
                     "", "", "", "", "", "", "", "", "");
  for (const BenchRow& row : rows)
    out += fmt::format(
        "| {:<28} | {:>10} | {:>10} | {:<7} | {:>7} | {:>16} | {:>20} | {:>11.1f} % | {:>13} |\n", name,
        bytes_text(static_cast<double>(info.weight_bytes)), parameters_text(info.parameters), wp::name(device.kind()),
        device.threads().threads(), row.test, fmt::format("{:.2f} ± {:.2f}", row.tokens_per_s, row.deviation),
        100 * row.share_of_peak,
        row.decode && row.bytes > 0 ? fmt::format("{:.1f} %", 100 * share_of_copy(row, copy_bandwidth)) : "");
  out += fmt::format(
      "\n{}; FP32 FMA peak of these threads {:.1f} GFLOP/s ({}), copy {:.1f} GB/s, measured now; the shares\n"
      "count only the multiply-adds and, in decode, the bytes that the model needs\n",
      device.description(), peak.gflops, peak.instructions, copy_bandwidth * 1e-9);
  return out;
}

}  // namespace

std::string bench_text(const std::string& model_name, const ModelInfo& info, const Device& device,
                       const std::vector<BenchRow>& rows, const FmaPeak& peak, double copy_bandwidth,
                       BenchFormat format) {
  if (format == BenchFormat::markdown) return markdown(model_name, info, device, rows, peak, copy_bandwidth);
  Json list = Json::array();
  std::string csv =
      "model,size_bytes,params,backend,threads,test,depth,tokens,tokens_per_s,deviation,share_of_peak,share_of_copy,"
      "fma_peak_gflops,copy_gb_per_s\n";
  for (const BenchRow& row : rows) {
    csv += fmt::format("{},{},{},{},{},{},{},{},{:.3f},{:.3f},{:.4f},{:.4f},{:.1f},{:.2f}\n", model_name,
                       info.weight_bytes, info.parameters, wp::name(device.kind()), device.threads().threads(),
                       row.test, row.depth, row.tokens, row.tokens_per_s, row.deviation, row.share_of_peak,
                       share_of_copy(row, copy_bandwidth), peak.gflops, copy_bandwidth * 1e-9);
    list.push_back({{"test", row.test},
                    {"depth", row.depth},
                    {"tokens", row.tokens},
                    {"tokens_per_s", row.tokens_per_s},
                    {"deviation", row.deviation},
                    {"multiply_adds", row.multiply_adds},
                    {"share_of_peak", row.share_of_peak},
                    {"bytes", row.bytes},
                    {"share_of_copy", share_of_copy(row, copy_bandwidth)},
                    {"seconds", row.seconds}});
  }
  if (format == BenchFormat::csv) return csv;
  const Json out = {{"model", model_name},
                    {"size_bytes", info.weight_bytes},
                    {"params", info.parameters},
                    {"backend", wp::name(device.kind())},
                    {"device", device.description()},
                    {"threads", device.threads().threads()},
                    {"fma_peak_gflops", peak.gflops},
                    {"fma_instructions", peak.instructions},
                    {"copy_bytes_per_s", copy_bandwidth},
                    {"rows", std::move(list)}};
  return dump_json(out) + "\n";
}

}  // namespace wp::measure
