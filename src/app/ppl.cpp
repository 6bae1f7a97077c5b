// `warmpath ppl`: perplexity of a text, by windows.
#include <cstdio>

#include "app/commands.h"
#include "app/model_loading.h"
#include "app/progress.h"
#include "core/hash.h"
#include "measure/perplexity.h"
#include "measure/reference.h"
#include "text/tokenizer.h"

namespace wp::app {
namespace {

Result<int> perplexity(const Flags& flags) {
  const std::string path = *flags.positional("MODEL"), file = *flags.positional("FILE");
  WP_TRY(const std::string text, measure::read_text_file(file));
  WP_TRY(const Tokenizer tokenizer, Tokenizer::load(path));
  // Markup in the text becomes its token, as the reference's tokenizer call does it.
  const auto tokens = tokenizer.encode_with_special(text);
  WP_TRY(const LoadedModel loaded, load_from_flags(flags));
  ProgressBar bar("ppl");
  measure::PerplexityOptions options{.window_tokens = flags.integer("ctx"),
                                     .windows_max = flags.integer("windows-max")};
  options.progress = [&](int64_t done, int64_t total) {
    bar.show(static_cast<double>(done) / static_cast<double>(total), fmt::format("{} of {} tokens", done, total),
             fmt::format("tokens={} of={}", done, total));
  };
  WP_TRY(const auto result, measure::run_perplexity(*loaded.model, *loaded.device, tokens, options));
  bar.clear();

  const uint64_t hash = hash_text(text);
  const int64_t bound = loaded.model->info().sparse_bound;
  if (flags.on("json")) {
    const auto loss = [](const measure::Loss& l) {
      return Json{{"tokens", l.tokens}, {"perplexity", l.perplexity()}, {"error", l.error()}, {"nll_mean", l.mean}};
    };
    const Json out = {{"perplexity", result.all.perplexity()},
                      {"error", result.all.error()},
                      {"tokens", result.all.tokens},
                      {"windows", result.windows},
                      {"ctx", options.window_tokens},
                      {"file", file},
                      {"file_hash", hex(hash)},
                      {"sparse_bound", bound},
                      {"dense", loss(result.dense)},
                      {"sparse", loss(result.sparse)},
                      {"device", loaded.device->description()}};
    std::printf("%s\n", dump_json(out).c_str());
  } else {
    std::printf("PPL = %.4f ± %.4f\n", result.all.perplexity(), result.all.error());
    std::printf("tokens %lld in %lld windows, ctx %lld, file %s %s\n", static_cast<long long>(result.all.tokens),
                static_cast<long long>(result.windows), static_cast<long long>(options.window_tokens), file.c_str(),
                hex(hash).c_str());
    if (result.sparse.tokens > 0)
      std::printf("up to %lld tokens of context %.4f ± %.4f, above %.4f ± %.4f\n", static_cast<long long>(bound),
                  result.dense.perplexity(), result.dense.error(), result.sparse.perplexity(), result.sparse.error());
  }
  const double reference = flags.number("reference"), ratio = result.all.perplexity() / reference;
  const double allowed = flags.number("tolerance");
  if (reference > 0 && !(ratio <= 1 + allowed && ratio >= 1 - allowed))
    return Error{ErrorCode::gate_failed, fmt::format("ppl: expected {:.4f} within {:.2f} %, found {:.4f}", reference,
                                                     100 * allowed, result.all.perplexity())};
  return 0;
}

}  // namespace

Command perplexity_command() {
  return {
      .name = "ppl",
      .positionals = {{.name = "MODEL", .help = "a model folder"}, {.name = "FILE", .help = "a text"}},
      .summary = "perplexity of a text, window by window",
      .examples = "  warmpath ppl models/flash-next-mini models/flash-next-mini/eval/prose.txt --reference 94.241\n",
      .flags = joined({{.name = "ctx",
                        .kind = FlagKind::integer,
                        .fallback = "2048",
                        .placeholder = "N",
                        .help = "Tokens of a window; each is run alone, its tokens from the second on count",
                        .group = "Gate",
                        .low = 2},
                       {.name = "windows-max",
                        .kind = FlagKind::integer,
                        .fallback = "64",
                        .placeholder = "N",
                        .help = "Whole windows from the start of the text, at most",
                        .group = "Gate",
                        .low = 1},
                       {.name = "reference",
                        .kind = FlagKind::number,
                        .fallback = "0",
                        .placeholder = "X",
                        .help = "Exit 1 unless the perplexity is near this; 0: no gate",
                        .group = "Gate",
                        .low = 0},
                       {.name = "tolerance",
                        .kind = FlagKind::number,
                        .fallback = "0.002",
                        .placeholder = "X",
                        .help = "How near, as a share",
                        .group = "Gate",
                        .low = 0},
                       json_flag("Gate")},
                      device_flags()),
      .run = perplexity};
}

}  // namespace wp::app
