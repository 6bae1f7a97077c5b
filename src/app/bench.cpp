// `warmpath bench`: speed of the forward pass beside what the machine can do.
#include <cstdio>
#include <filesystem>

#include "app/commands.h"
#include "app/model_loading.h"
#include "app/progress.h"
#include "cache/policy_simulation.h"
#include "measure/batch_speed.h"
#include "measure/model_speed.h"
#include "measure/profile.h"

namespace wp::app {
namespace {

constexpr Seed kCacheSeed = 1;

Result<std::vector<int64_t>> parse_counts(const Flags& flags, const char* name) {
  std::vector<int64_t> counts;
  const std::string& text = flags.text(name);
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    auto count = parse_size(std::string_view(text).substr(at, comma - at));
    if (!count.ok() || *count < 0)
      return Error{ErrorCode::bad_request, cat("--", name, ": expected counts like 512,2048, found '", text, "'")};
    counts.push_back(*count);
    at = comma + 1;
  }
  return counts;
}

Result<int> bench(const Flags& flags) {
  if (flags.positional("MODEL") == "cache") {
    std::fputs(policy_table(kCacheSeed).c_str(), stdout);
    return 0;
  }
  measure::BenchOptions options{.repetitions = flags.integer("repetitions"),
                                .pass_tokens = flags.integer("pass-tokens")};
  WP_TRY(options.prompts, parse_counts(flags, "prompt-tokens"));
  WP_TRY(options.generated, parse_counts(flags, "generate-tokens"));
  WP_TRY(options.depths, parse_counts(flags, "depth"));
  if (options.depths.empty()) options.depths = {0};
  WP_TRY(const auto batches, parse_counts(flags, "batch"));
  for (const int64_t batch : batches)
    if (batch < 1 || batch > 256)
      return Error{ErrorCode::bad_request, cat("--batch: expected 1..256 sequences, found ", batch)};
  const std::string& format = flags.text("output");
  WP_TRY(const LoadedModel loaded, load_from_flags(flags));
  const int threads = loaded.device->threads().threads();
  measure::FmaPeak peak;
  double copy = 0;
  if (reads_host_memory(loaded.device->kind())) {
    peak = measure::measure_fma_peak(threads);
    copy = measure::measure_copy_bandwidth(threads);
  } else {
    peak = {.gflops = 1e3 * flags.number("peak-tflops"), .instructions = "given by --peak-tflops"};
    WP_TRY(copy, measure::measure_device_copy(*loaded.device));
  }

  ProgressBar bar("bench");
  options.progress = [&](const std::string& test, int64_t done, int64_t total) {
    bar.show(static_cast<double>(done) / static_cast<double>(total), test,
             fmt::format("test={} repetition={} of={}", test, done, total));
  };
  WP_TRY(auto rows, measure::run_bench(*loaded.model, *loaded.device, options, peak));
  if (!batches.empty() && !options.generated.empty())
    for (const int64_t depth : options.depths) {
      WP_TRY(const auto more, measure::run_batch_bench(*loaded.model, *loaded.device,
                                                       {.batches = batches,
                                                        .generated = options.generated[0],
                                                        .depth = depth,
                                                        .repetitions = options.repetitions,
                                                        .pass_tokens = options.pass_tokens},
                                                       peak));
      rows.insert(rows.end(), more.begin(), more.end());
    }
  bar.clear();
  std::filesystem::path path =
      std::filesystem::path(flags.set("synth") ? flags.text("synth") : *flags.positional("MODEL")).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const auto kind = format == "md"    ? measure::BenchFormat::markdown
                    : format == "csv" ? measure::BenchFormat::csv
                                      : measure::BenchFormat::json;
  std::fputs(measure::bench_text(path.filename().string(), loaded.model->info(), *loaded.device, rows, peak, copy, kind)
                 .c_str(),
             stdout);
  return 0;
}

}  // namespace

Command bench_command() {
  return {
      .name = "bench",
      .positionals = {{.name = "MODEL",
                       .required = false,
                       .help = "a model folder, or the word cache; none with --synth"}},
      .summary = "prefill and decode speed (pp512, tg128), beside the machine's measured peak; what the cache saves",
      .examples =
          "  warmpath bench models/flash-next-mini\n"
          "  warmpath bench models/flash-next-mini -p 4096 -n 128 -d 0,1024 -o csv\n"
          "  warmpath bench cache          simulated agents: the eviction policy beside LRU\n",
      .flags = joined({{.name = "prompt-tokens",
                        .fallback = "512",
                        .placeholder = "N,...",
                        .help = "Prefill of so many",
                        .group = "Bench",
                        .aliases = {"-p", "--n-prompt"}},
                       {.name = "generate-tokens",
                        .fallback = "128",
                        .placeholder = "N,...",
                        .help = "Decode of so many, one after the other",
                        .group = "Bench",
                        .aliases = {"-n", "--n-gen"}},
                       {.name = "depth",
                        .fallback = "0",
                        .placeholder = "N,...",
                        .help = "Tokens that come before, rounded up to 64",
                        .group = "Bench",
                        .aliases = {"-d", "--n-depth"}},
                       {.name = "batch",
                        .fallback = "",
                        .placeholder = "N,...",
                        .help = "Decode of so many sequences at once, too",
                        .group = "Bench"},
                       {.name = "peak-tflops",
                        .kind = FlagKind::number,
                        .fallback = "0",
                        .placeholder = "X",
                        .help = "Measured rate of a GPU's products, for the shares",
                        .group = "Bench",
                        .low = 0},
                       {.name = "repetitions",
                        .kind = FlagKind::integer,
                        .fallback = "5",
                        .placeholder = "N",
                        .help = "Of each test, after one to warm up",
                        .group = "Bench",
                        .aliases = {"-r"},
                        .low = 1,
                        .high = 1000},
                       {.name = "pass-tokens",
                        .kind = FlagKind::integer,
                        .fallback = "512",
                        .placeholder = "N",
                        .help = "Rows of a prefill pass",
                        .group = "Bench",
                        .aliases = {"-ub"},
                        .low = 64,
                        .high = 65536},
                       {.name = "output",
                        .fallback = "md",
                        .placeholder = "md|csv|json",
                        .help = "Form of the table",
                        .group = "Bench",
                        .aliases = {"-o"},
                        .choices = {"md", "csv", "json"}}},
                      device_flags()),
      .run = bench};
}

}  // namespace wp::app
