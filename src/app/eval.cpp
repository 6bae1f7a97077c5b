// `warmpath eval GATE MODEL`: gates that need no file but the model.
#include <cstdio>

#include "app/commands.h"
#include "app/model_loading.h"
#include "app/progress.h"
#include "core/log.h"
#include "measure/equality.h"

namespace wp::app {
namespace {

Result<int> equality(const Flags& flags) {
  configure_log({.level = LogLevel::warning});  // A line for each request would bury the result.
  WP_TRY(const LoadedModel loaded, load_from_flags(flags));
  ProgressBar bar("eval");
  measure::EqualityOptions options{.cases = flags.integer("cases"),
                                   .seed = static_cast<Seed>(flags.integer("seed")),
                                   .first_case = flags.integer("first-case"),
                                   .prompt_max = flags.integer("prompt-max")};
  options.progress = [&](int64_t done, int64_t total) {
    bar.show(static_cast<double>(done) / static_cast<double>(total), fmt::format("{} of {} cases", done, total),
             fmt::format("cases={} of={}", done, total));
  };
  WP_TRY(const auto result, measure::run_equality(*loaded.model, *loaded.device, options));
  bar.clear();
  if (flags.on("json")) {
    Json out = measure::equality_json(result);
    out["seed"] = options.seed;
    out["device"] = loaded.device->description();
    std::printf("%s\n", dump_json(out).c_str());
  } else {
    std::fputs(measure::equality_table(result).c_str(), stdout);
  }
  if (!result.passed()) return Error{ErrorCode::gate_failed, "eval equality: " + result.difference};
  return 0;
}

Result<int> eval(const Flags& flags) {
  const std::string gate = flags.positional("GATE").value_or("");
  if (gate == "equality") return equality(flags);
  return Error{ErrorCode::bad_request, cat("eval: expected a gate (equality), found ", gate)};
}

}  // namespace

Command eval_command() {
  return {.name = "eval",
          .positionals = {{.name = "GATE", .help = "equality: the cache changes no bit of an answer"},
                          {.name = "MODEL", .help = "a model folder"}},
          .summary = "gates that need no reference; exit 1 at the first difference",
          .examples = "  warmpath eval equality models/flash-next-mini --cases 500 --seed 7\n",
          .flags = joined({{.name = "cases",
                            .kind = FlagKind::integer,
                            .fallback = "500",
                            .placeholder = "N",
                            .help = "Histories, each from an empty cache",
                            .group = "Gate",
                            .low = 1},
                           {.name = "seed",
                            .kind = FlagKind::integer,
                            .fallback = "1",
                            .placeholder = "S",
                            .help = "Of all cases; the same seed, the same cases",
                            .group = "Gate",
                            .low = 0},
                           {.name = "first-case",
                            .kind = FlagKind::integer,
                            .fallback = "0",
                            .placeholder = "N",
                            .help = "Number of the first case, to repeat one alone",
                            .group = "Gate",
                            .low = 0},
                           {.name = "prompt-max",
                            .kind = FlagKind::integer,
                            .fallback = "12000",
                            .placeholder = "N",
                            .help = "Longest first prompt",
                            .group = "Gate",
                            .low = 40},
                           json_flag("Gate")},
                          device_flags()),
          .run = eval};
}

}  // namespace wp::app
