// Session: everything between a model folder and an engine that answers: device, model, tokenizer, template, defaults,
// memory plan. The one path on which serve, replay and chat open a model, so that what one does holds for the others.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/flags.h"
#include "app/model_loading.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "serve/service.h"
#include "store/disk_tier.h"
#include "text/chat_prompt.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace wp::app {

// Memory, cache, scheduling and sampling flags, with those of device_flags().
std::vector<FlagSpec> engine_flags();

struct Session {
  std::string path, name;
  LoadedModel loaded;
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;  // A checkpoint may have none.
  std::optional<ChatPrompter> prompter;       // Exactly where chat_template is.
  GenerationDefaults defaults;
  std::string defaults_source;  // "generation_config", "built-in", with "flags" where one was given.
  EngineLimits limits;
  MemoryPlan plan;
  int64_t available_bytes = 0;     // After the weights were loaded, before the pools.
  uint64_t numerics = 0;           // The canonical kernels' id on this device.
  int64_t embedding_width = 0;     // Of config.json; 0: not there.
  std::unique_ptr<DiskTier> tier;  // Null without --cache-disk.
  Origin origin;                   // Of what this session stores.
  std::unique_ptr<Engine> engine;  // Last: it ends before what it works on.

  const ModelInfo& info() const { return loaded.model->info(); }
};

// All of it but the tier and the engine.
Result<std::unique_ptr<Session>> open_model(const Flags& flags, const ProgressSink& progress = nullptr);
// Of a disk tier in this folder.
DiskTierOptions tier_options(const Flags& flags, const Session& session, const std::string& folder);

// Text files first (cheap, and what is most often missing), then weights, then pools.
Result<std::unique_ptr<Session>> open_session(const Flags& flags, const ProgressSink& progress = nullptr);

// What a model folder's JSON files say beside the weights. Absent files are empty.
struct FolderTexts {
  GenerationDefaults defaults;
  bool has_generation_config = false;
  int64_t context_max = 0, embedding_width = 0;  // Of config.json; 0: not there.
};
Result<FolderTexts> read_folder(const std::string& path);

// generation_config.json over built-in values; end tokens from it, else from config.json. Absent files are empty.
Result<GenerationDefaults> read_defaults(const Json& generation_config, const Json& config);

}  // namespace wp::app
