// `warmpath synth`: random weights of a configuration, in a folder or on the device.
#include <cmath>
#include <cstdio>

#include "app/commands.h"
#include "app/model_loading.h"
#include "app/progress.h"
#include "core/clock.h"
#include "core/rng.h"
#include "measure/model_runner.h"
#include "weights/synthetic_writer.h"

namespace wp::app {
namespace {

// Whether a short prompt makes finite logits that differ from row to row: what weights drawn badly do not.
Result<void> try_out(const LoadedModel& loaded) {
  constexpr int64_t kRows = 64;
  const ModelInfo& info = loaded.model->info();
  WP_TRY(auto runner, measure::ModelRunner::make(*loaded.model, *loaded.device,
                                                 {.tokens_max = kRows, .rows_max = kRows, .logit_rows_max = kRows}));
  std::vector<TokenId> tokens;
  std::vector<int32_t> rows;
  Rng rng(1);
  for (int32_t i = 0; i < kRows; ++i) {
    tokens.push_back(static_cast<TokenId>(rng.between(0, info.vocabulary - 1)));
    rows.push_back(i);
  }
  const Tensor logits = runner->run(Phase::prefill, tokens, rows);
  double squares = 0, largest = 0;
  for (int64_t i = 0; i < logits.count(); ++i) {
    const double value = logits.f32()[i];
    if (!std::isfinite(value))
      return Error{ErrorCode::gate_failed,
                   cat("synth: expected finite logits, found ", value, " in row ", i / info.vocabulary)};
    squares += value * value;
    largest = std::max(largest, std::abs(value));
  }
  std::printf("logits    root mean square %.3f, largest %.2f over %lld rows\n",
              std::sqrt(squares / static_cast<double>(logits.count())), largest, static_cast<long long>(kRows));
  return {};
}

// Whoever binds all tensors once knows them all: the family itself, on the device that copies none.
Result<int> write_folder(const Flags& flags, const std::string& config, const std::string& folder) {
  WP_TRY(const auto device, Device::make(DeviceKind::ref, 1));
  WP_TRY(auto checkpoint, synthetic_checkpoint(flags, config, false));
  WP_TRY(const auto model, load_model(std::move(checkpoint), *device));
  const Checkpoint& made = *model->checkpoint();
  ProgressBar bar("synth");
  WP_TRY(write_synthetic(made, folder, bar.load_sink()));
  bar.clear();
  std::printf("%s: %zu tensors, %lld bytes\n", folder.c_str(), made.tensors().size(),
              static_cast<long long>(made.size_bytes()));
  return 0;
}

Result<int> synth(const Flags& flags) {
  const std::string config = *flags.positional("CONFIG");
  const auto folder = flags.positional("OUT");
  if (flags.on("in-memory") == folder.has_value())
    return Error{ErrorCode::bad_request, "synth: expected a folder OUT or --in-memory, found both or neither"};
  if (folder) return write_folder(flags, config, *folder);
  WP_TRY(const LoadedModel loaded, load_synthetic(flags, config));
  const ModelInfo& info = loaded.model->info();
  std::printf("model     %s, %s\n", info.family.c_str(), info.description.c_str());
  std::printf("weights   %.2f GB of %.2f billion parameters, made in %.1f s on %s\n",
              static_cast<double>(info.weight_bytes) * 1e-9, static_cast<double>(info.parameters) * 1e-9,
              loaded.load_seconds, loaded.device->description().c_str());
  WP_TRY(try_out(loaded));
  return 0;
}

}  // namespace

Command synth_command() {
  return {.name = "synth",
          .positionals = {{.name = "CONFIG", .help = "a config.json, with or without weights beside it"},
                          {.name = "OUT", .required = false, .help = "a folder to be made"}},
          .summary = "random weights of a configuration, for tests and speed",
          .examples =
              "  warmpath synth testdata/qwen4_exp/tiny-nvfp4/config.json tiny\n"
              "  warmpath synth configs/qwen3.8-flash-next.json --in-memory --device cuda\n",
          .flags = joined({{.name = "in-memory",
                            .kind = FlagKind::boolean,
                            .fallback = "false",
                            .help = "Make them on the device, try them and forget them",
                            .group = "Synth"}},
                          device_flags()),
          .run = synth};
}

}  // namespace wp::app
