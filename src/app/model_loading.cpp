#include "app/model_loading.h"

#include <filesystem>
#include <functional>

#include "app/progress.h"
#include "core/clock.h"
#include "core/log.h"
#include "measure/reference.h"

namespace wp::app {

std::vector<FlagSpec> device_flags() {
  return {
      {.name = "model",
       .fallback = "",
       .placeholder = "DIR",
       .help = "The model folder, in place of the word",
       .group = "Model",
       .aliases = {"-m"},
       .advanced = true},
      {.name = "device",
       .fallback = "cpu",
       .placeholder = "D",
       .help = "cpu; cuda: an NVIDIA GPU; ref: plain loops in double, slow",
       .group = "Model",
       .choices = {"cpu", "cuda", "ref"}},
      {.name = "synth",
       .fallback = "",
       .placeholder = "FILE",
       .help = "Random weights of this config.json; MODEL gives the texts (tokenizer, template) alone",
       .group = "Model",
       .advanced = true},
      {.name = "quant",
       .fallback = "nvfp4",
       .placeholder = "F",
       .help = "Format of what releases quantize, for --synth",
       .group = "Model",
       .advanced = true,
       .choices = {"nvfp4", "bf16"}},
      {.name = "synth-seed",
       .kind = FlagKind::integer,
       .fallback = "1",
       .placeholder = "N",
       .help = "For --synth",
       .group = "Model",
       .advanced = true,
       .low = 0},
      {.name = "threads",
       .kind = FlagKind::integer,
       .fallback = "0",
       .placeholder = "N",
       .help = "Threads that compute; 0: all cores. Never changes outputs",
       .group = "Scheduling",
       .aliases = {"-t"},
       .low = 0,
       .high = 1024},
  };
}

bool is_url(const std::string& model) { return model.rfind("http://", 0) == 0 || model.rfind("https://", 0) == 0; }

Result<std::string> model_path(const Flags& flags) {
  const std::string path = flags.positional("MODEL").value_or("");
  std::error_code fault;
  if (!std::filesystem::exists(path, fault))
    return Error{ErrorCode::not_found,
                 cat(path,
                     ": expected a model folder (config.json, tokenizer.json, model.safetensors), found nothing; "
                     "the bundled one is models/flash-next-mini")};
  if (std::filesystem::path(path).extension() == ".gguf")
    return Error{ErrorCode::bad_file,
                 cat(path, ": expected a model folder with safetensors, found a GGUF file, which is not read")};
  return path;
}

Result<Checkpoint> synthetic_checkpoint(const Flags& flags, const std::string& config_path, bool fill) {
  WP_TRY(const std::string text, measure::read_text_file(config_path, 16 << 20));
  auto config = parse_json(text);
  if (!config.ok()) return Error{ErrorCode::bad_file, cat(config_path, ": ", config.error().message)};
  return Checkpoint::synthesize({.name = std::filesystem::path(config_path).stem().string(),
                                 .config = std::move(*config),
                                 .nvfp4 = flags.text("quant") == "nvfp4",
                                 .seed = static_cast<uint64_t>(flags.integer("synth-seed")),
                                 .fill = fill});
}

namespace {

using Loader = std::function<Result<std::unique_ptr<Model>>(Device& device, const ProgressSink& progress)>;

Result<LoadedModel> load_on_device(const Flags& flags, const ProgressSink& progress, const Loader& load) {
  const int64_t begin_ns = system_clock().now_ns();
  LoadedModel loaded;
  WP_TRY(const DeviceKind kind, device_kind(flags.text("device")));
  WP_TRY(loaded.device, Device::make(kind, static_cast<int>(flags.integer("threads"))));
  ProgressBar bar("load");
  auto model = load(*loaded.device, progress ? progress : bar.load_sink());
  if (!model.ok()) {
    Error error = std::move(model).error();
    // A file that cannot be read is an invalid model to whoever named it.
    if (error.code == ErrorCode::io) error.code = ErrorCode::bad_file;
    return error;
  }
  loaded.model = std::move(*model);
  loaded.load_seconds = static_cast<double>(system_clock().now_ns() - begin_ns) * 1e-9;
  if (!reads_host_memory(kind)) {
    const int64_t bytes = loaded.model->info().weight_bytes;
    log_info("load", {{"bytes", bytes},
                      {"seconds", fmt::format("{:.3f}", loaded.load_seconds)},
                      {"rate", fmt::format("{:.2f}GB/s", static_cast<double>(bytes) * 1e-9 / loaded.load_seconds)}});
  }
  return loaded;
}

}  // namespace

Result<LoadedModel> load_from_flags(const Flags& flags, const ProgressSink& progress) {
  if (flags.set("synth")) return load_synthetic(flags, flags.text("synth"), progress);
  WP_TRY(const std::string path, model_path(flags));
  return load_on_device(flags, progress,
                        [&](Device& device, const ProgressSink& sink) { return load_model(path, device, sink); });
}

Result<LoadedModel> load_dry(const Flags& flags) {
  LoadedModel loaded;
  WP_TRY(loaded.device, Device::make(DeviceKind::ref, 1));
  if (flags.set("synth")) {
    WP_TRY(auto checkpoint, synthetic_checkpoint(flags, flags.text("synth"), false));
    WP_TRY(loaded.model, load_model(std::move(checkpoint), *loaded.device));
  } else {
    WP_TRY(const std::string path, model_path(flags));
    WP_TRY(loaded.model, load_model(path, *loaded.device));
  }
  return loaded;
}

Result<LoadedModel> load_synthetic(const Flags& flags, const std::string& config_path, const ProgressSink& progress) {
  return load_on_device(
      flags, progress, [&](Device& device, const ProgressSink& sink) -> Result<std::unique_ptr<Model>> {
        WP_TRY(auto checkpoint, synthetic_checkpoint(flags, config_path, reads_host_memory(device.kind())));
        return load_model(std::move(checkpoint), device, sink);
      });
}

}  // namespace wp::app
