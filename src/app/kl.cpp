// `warmpath kl`: does this build compute what the reference computed?
#include "measure/kl.h"

#include <cstdio>

#include "app/commands.h"
#include "app/model_loading.h"
#include "app/progress.h"
#include "measure/reference.h"

namespace wp::app {
namespace {

Result<std::vector<int64_t>> parse_pieces(const std::string& text) {
  std::vector<int64_t> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    auto piece = parse_size(std::string_view(text).substr(at, comma - at));
    if (!piece.ok() || *piece < 1)
      return Error{ErrorCode::bad_request, cat("--pieces: expected counts like 70,1,37, found '", text, "'")};
    pieces.push_back(*piece);
    at = comma + 1;
  }
  return pieces;
}

Result<int> kl(const Flags& flags) {
  measure::KlOptions options{.tolerance = flags.number("tolerance"), .tokens_max = flags.integer("tokens-max")};
  WP_TRY(options.pieces, parse_pieces(flags.text("pieces")));
  if (!flags.set("reference"))
    return Error{ErrorCode::bad_request, "--reference: expected a safetensors file of reference logits, found nothing"};
  WP_TRY(const auto reference, measure::Reference::read(flags.text("reference")));
  WP_TRY(const LoadedModel loaded, load_from_flags(flags));
  ProgressBar bar("kl");
  options.progress = [&](const std::string& prompt, int64_t done, int64_t total) {
    bar.show(static_cast<double>(done) / static_cast<double>(total), fmt::format("{} {} of {}", prompt, done, total),
             fmt::format("prompt={} tokens={} of={}", prompt, done, total));
  };
  WP_TRY(const auto result, measure::run_kl(*loaded.model, *loaded.device, reference, options));
  bar.clear();
  if (flags.on("json")) {
    Json out = measure::kl_json(result);
    out["device"] = loaded.device->description();
    std::printf("%s\n", dump_json(out).c_str());
  } else {
    std::fputs(measure::kl_table(result, flags.on("rows")).c_str(), stdout);
  }
  if (!result.passed) return Error{ErrorCode::gate_failed, "kl: " + result.failure};
  return 0;
}

}  // namespace

Command kl_command() {
  return {.name = "kl",
          .positionals = {{.name = "MODEL", .help = "a model folder"}},
          .summary = "compare logits with a reference file; exit 1 outside the tolerance",
          .examples =
              "  warmpath kl models/flash-next-mini --reference models/flash-next-mini/reference/logits.safetensors\n",
          .flags = joined({{.name = "reference",
                            .fallback = "",
                            .placeholder = "FILE",
                            .help = "Reference logits (input_ids, logits, greedy; or prompts.json beside it)",
                            .group = "Gate"},
                           {.name = "pieces",
                            .fallback = "",
                            .placeholder = "N,N,...",
                            .help = "Prefill passes of these sizes, then row by row; else as few as fit",
                            .group = "Gate"},
                           {.name = "tolerance",
                            .kind = FlagKind::number,
                            .fallback = "0",
                            .placeholder = "X",
                            .help = "Largest logit error that passes; 0: 2e-4 on ref (qwen3_5 1e-3), else 2e-3",
                            .group = "Gate",
                            .low = 0},
                           {.name = "tokens-max",
                            .kind = FlagKind::integer,
                            .fallback = "0",
                            .placeholder = "N",
                            .help = "Leave out longer prompts; 0: none",
                            .group = "Gate",
                            .low = 0},
                           {.name = "rows",
                            .kind = FlagKind::boolean,
                            .fallback = "false",
                            .help = "Print every row, not the worst ones",
                            .group = "Gate"},
                           json_flag("Gate")},
                          device_flags()),
          .run = kl};
}

}  // namespace wp::app
