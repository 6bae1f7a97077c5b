// `warmpath profile`: where the time of a pass goes.
#include "measure/profile.h"

#include <cstdio>

#include "app/commands.h"
#include "app/model_loading.h"
#include "measure/peak.h"

namespace wp::app {
namespace {

// What the shares are of: measured now, but for a GPU's products, which the caller has measured with its library.
Result<measure::Ceilings> ceilings_of(const Flags& flags, Device& device) {
  measure::Ceilings ceilings{.flops = flags.number("peak-tflops") * 1e12};
  if (!reads_host_memory(device.kind())) {
    WP_TRY(ceilings.bytes, measure::measure_device_copy(device));
    return ceilings;
  }
  const int threads = device.threads().threads();
  if (ceilings.flops == 0) ceilings.flops = measure::measure_fma_peak(threads).gflops * 1e9;
  ceilings.bytes = measure::measure_copy_bandwidth(threads);
  return ceilings;
}

Result<int> profile(const Flags& flags) {
  if (flags.on("dry")) {
    WP_TRY(const LoadedModel loaded, load_dry(flags));
    WP_TRY(const std::string list, measure::launch_list(*loaded.model, flags.integer("prompt-tokens")));
    std::fputs(list.c_str(), stdout);
    return 0;
  }
  WP_TRY(const LoadedModel loaded, load_from_flags(flags));
  WP_TRY(const auto ceilings, ceilings_of(flags, *loaded.device));
  WP_TRY(const auto phases, measure::run_profile(*loaded.model, *loaded.device,
                                                 {.prompt = flags.integer("prompt-tokens"),
                                                  .steps = flags.integer("steps"),
                                                  .pass_tokens = flags.integer("pass-tokens")}));
  if (flags.on("json")) {
    Json out = measure::profile_json(phases, ceilings);
    out["device"] = loaded.device->description();
    out["commit"] = version_text();
    std::printf("%s\n", dump_json(out).c_str());
  } else {
    std::printf("%s\n%s, %s\n\n", loaded.device->description().c_str(), loaded.model->info().family.c_str(),
                loaded.model->info().description.c_str());
    std::fputs(measure::profile_table(phases, ceilings).c_str(), stdout);
  }
  return 0;
}

}  // namespace

Command profile_command() {
  return {.name = "profile",
          .positionals = {{.name = "MODEL", .required = false, .help = "a model folder, or none with --synth"}},
          .summary = "time of each operation of a pass, beside the machine's ceilings",
          .examples =
              "  warmpath profile models/flash-next-mini\n"
              "  warmpath profile --synth configs/qwen3.8-flash-next.json --dry\n",
          .flags = joined({{.name = "prompt-tokens",
                            .kind = FlagKind::integer,
                            .fallback = "2048",
                            .placeholder = "N",
                            .help = "Rows of the prefill; decode follows it",
                            .group = "Profile",
                            .aliases = {"-p", "--prompt-len"},
                            .low = 1},
                           {.name = "steps",
                            .kind = FlagKind::integer,
                            .fallback = "8",
                            .placeholder = "N",
                            .help = "Decode steps; 0: none",
                            .group = "Profile",
                            .low = 0,
                            .high = 64},
                           {.name = "pass-tokens",
                            .kind = FlagKind::integer,
                            .fallback = "8192",
                            .placeholder = "N",
                            .help = "Rows of a prefill pass",
                            .group = "Profile",
                            .aliases = {"-ub"},
                            .low = 64,
                            .high = 65536},
                           {.name = "peak-tflops",
                            .kind = FlagKind::number,
                            .fallback = "0",
                            .placeholder = "X",
                            .help = "Measured rate of products; 0: measured here on a CPU, else unknown",
                            .group = "Profile",
                            .low = 0},
                           {.name = "dry",
                            .kind = FlagKind::boolean,
                            .fallback = "false",
                            .help = "Print what a GPU would launch and copy, on any machine",
                            .group = "Profile"},
                           json_flag("Profile")},
                          device_flags()),
          .run = profile};
}

}  // namespace wp::app
