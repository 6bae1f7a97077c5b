// A model on a device, from the flags that every command with a MODEL shares.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/flags.h"
#include "device/device.h"
#include "model/model.h"

namespace wp::app {

struct LoadedModel {
  std::unique_ptr<Device> device;
  std::unique_ptr<Model> model;
  double load_seconds = 0;
};

std::vector<FlagSpec> device_flags();  // --model, --device, --threads, --verbose

// MODEL as a folder that is there; else an error that says what a model is.
Result<std::string> model_path(const Flags& flags);
// Random weights of the configuration in this file; `fill`: matrices in host memory too.
Result<Checkpoint> synthetic_checkpoint(const Flags& flags, const std::string& config_path, bool fill);
// Without a sink of the caller's, shows its own bar.
Result<LoadedModel> load_from_flags(const Flags& flags, const ProgressSink& progress = nullptr);
// On ref, whatever --device says, without numbers where they are synthetic: to see what would be launched.
Result<LoadedModel> load_dry(const Flags& flags);
Result<LoadedModel> load_synthetic(const Flags& flags, const std::string& config_path,
                                   const ProgressSink& progress = nullptr);
// MODEL is the address of a running server.
bool is_url(const std::string& model);

}  // namespace wp::app
