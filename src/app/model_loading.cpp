#include "app/model_loading.h"

#include <filesystem>

#include "app/progress.h"
#include "core/clock.h"

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
  return path;
}

Result<LoadedModel> load_from_flags(const Flags& flags, const ProgressSink& progress) {
  WP_TRY(const std::string path, model_path(flags));
  const int64_t begin_ns = system_clock().now_ns();
  LoadedModel loaded;
  WP_TRY(const DeviceKind kind, device_kind(flags.text("device")));
  WP_TRY(loaded.device, Device::make(kind, static_cast<int>(flags.integer("threads"))));
  ProgressBar bar("load");
  auto model = load_model(path, *loaded.device, progress ? progress : bar.load_sink());
  if (!model.ok()) {
    Error error = std::move(model).error();
    // A file that cannot be read is an invalid model to whoever named it.
    if (error.code == ErrorCode::io) error.code = ErrorCode::bad_file;
    return error;
  }
  loaded.model = std::move(*model);
  loaded.load_seconds = static_cast<double>(system_clock().now_ns() - begin_ns) * 1e-9;
  return loaded;
}

}  // namespace wp::app
