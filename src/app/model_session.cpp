#include "app/model_session.h"

#include <algorithm>
#include <filesystem>

#include "app/commands.h"
#include "core/clock.h"
#include "core/hash.h"
#include "engine/limits.h"
#include "measure/reference.h"

namespace wp::app {
namespace {

constexpr double kReserveShare = 0.1;  // Of what is free after the weights; the host keeps it.

// A JSON file of the model's folder; null where it is not there.
Result<Json> read_json_file(const std::string& path) {
  std::error_code fault;
  if (!std::filesystem::exists(path, fault)) return Json(nullptr);
  auto text = measure::read_text_file(path, 64 << 20);
  if (!text.ok()) return Error{ErrorCode::bad_file, text.error().message};
  auto parsed = parse_json(*text);
  if (!parsed.ok()) return Error{ErrorCode::bad_file, cat(path, ": ", parsed.error().message)};
  if (!parsed->is_object()) return Error{ErrorCode::bad_file, cat(path, ": expected an object")};
  return std::move(*parsed);
}

bool has_template(const std::string& path, const Json& tokenizer_config) {
  std::error_code fault;
  return std::filesystem::exists(path + "/chat_template.jinja", fault) ||
         (tokenizer_config.is_object() && tokenizer_config.contains("chat_template"));
}

void number_at(const Json& object, const char* name, float* target) {
  if (object.contains(name) && object[name].is_number()) *target = object[name].get<float>();
}

Result<void> read_end_tokens(const Json& object, std::vector<TokenId>* tokens) {
  if (!object.is_object() || !object.contains("eos_token_id") || object["eos_token_id"].is_null()) return {};
  const Json& value = object["eos_token_id"];
  for (const Json& token : value.is_array() ? value : Json::array({value})) {
    if (!token.is_number_integer() || token.get<int64_t>() < 0 || token.get<int64_t>() > INT32_MAX)
      return Error{ErrorCode::bad_file, cat("eos_token_id: expected token ids, found ", dump_json(value))};
    tokens->push_back(token.get<TokenId>());
  }
  return {};
}

EngineLimits limits_from(const Flags& flags) {
  EngineLimits limits;
  limits.context_tokens = flags.integer("context-tokens");
  limits.sequences = static_cast<int32_t>(flags.integer("sequences"));
  limits.anchors = static_cast<int32_t>(flags.integer("anchors"));
  limits.queue_max = static_cast<int32_t>(flags.integer("max-queue"));
  limits.pass_tokens = flags.integer("pass-tokens");
  limits.stall_ns = flags.integer("stall-limit");
  limits.cache = flags.on("cache");
  limits.ram_bytes = limits.cache && flags.set("cache-ram") ? flags.integer("cache-ram") : 0;
  limits.consolidate = flags.on("consolidate");
  return limits;
}

// A device's own memory has no room for both guesses and scratch: activations come off first. Rows of a pass that
// nobody asked for are as many as take half of the room at most.
Result<void> reserve_scratch(const Flags& flags, Session& session, int64_t& budget) {
  constexpr int64_t kRowsWanted = 8192;
  EngineLimits& limits = session.limits;
  const auto bytes = [&] {
    return session.loaded.model->scratch_bytes(*session.loaded.device, scratch_limits(limits));
  };
  if (!flags.given("pass-tokens"))
    for (limits.pass_tokens = kRowsWanted; limits.pass_tokens > 512 && bytes() > budget / 2;) limits.pass_tokens /= 2;
  if (bytes() > budget)
    return Error{ErrorCode::too_long, cat("memory: need ", bytes() >> 20, " MiB for activations, have ", budget >> 20,
                                          " MiB; lower --pass-tokens or --context-tokens")};
  budget -= bytes();
  return {};
}

// What was asked for must fit; what was left open takes what there is, at most one context for each conversation.
Result<void> plan_memory(const Flags& flags, Session& session) {
  const ModelInfo& info = session.info();
  Device& device = *session.loaded.device;
  session.available_bytes = available_memory_bytes(device);
  int64_t budget = session.available_bytes < 0
                       ? INT64_MAX
                       : static_cast<int64_t>(static_cast<double>(session.available_bytes) * (1 - kReserveShare));
  WP_TRY(session.limits, complete_limits(limits_from(flags), info));
  if (!reads_host_memory(device.kind())) WP_TRY(reserve_scratch(flags, session, budget));
  else budget -= session.limits.ram_bytes;
  if (budget < 0)
    return Error{ErrorCode::too_long,
                 cat("memory: need ", session.limits.ram_bytes >> 20, " MiB for --cache-ram, have ",
                     (budget + session.limits.ram_bytes) >> 20, " MiB; lower --cache-ram")};
  if (flags.set("mem-limit")) budget = std::min(budget, flags.integer("mem-limit"));
  EngineLimits& limits = session.limits;
  const int64_t fitting = pages_within(info, limits, budget);
  if (!flags.given("context-tokens")) {
    const int64_t context = std::min(limits.context_tokens, fitting * kPageTokens);
    if (context >= kPageTokens) limits.context_tokens = context;
  }
  const int64_t wanted = pages_for(limits.context_tokens) * conversations_of(limits);
  limits.pages = static_cast<int32_t>(std::max(pages_for(limits.context_tokens), std::min(wanted, fitting)));
  session.plan = memory_plan(info, limits);
  if (session.plan.total_bytes() > budget)
    return Error{ErrorCode::too_long,
                 cat("memory: need ", session.plan.total_bytes() >> 20, " MiB for pages, anchors and slots, have ",
                     budget >> 20, " MiB; lower --context-tokens or --sequences")};
  return {};
}

}  // namespace

std::vector<FlagSpec> engine_flags() {
  const auto advanced = true;
  std::vector<FlagSpec> flags = {
      {.name = "context-tokens",
       .kind = FlagKind::integer,
       .fallback = "0",
       .placeholder = "N",
       .help = "Longest prompt and answer; 0: what fits, at most the model's",
       .group = "Memory",
       .aliases = {"-c", "--ctx", "--ctx-size", "--max-model-len"},
       .low = 0},
      {.name = "sequences",
       .kind = FlagKind::integer,
       .fallback = "4",
       .placeholder = "N",
       .help = "Requests that run at once",
       .group = "Memory",
       .aliases = {"-np", "--max-num-seqs"},
       .low = 1,
       .high = 1024},
      {.name = "mem-limit",
       .kind = FlagKind::size,
       .fallback = "",
       .placeholder = "SIZE",
       .help = "For pages, anchors and slots; unset: nine tenths of what is free",
       .group = "Memory",
       .low = 1},
      {.name = "cache", .kind = FlagKind::boolean, .fallback = "true", .help = "Prefix cache", .group = "Cache"},
      {.name = "anchors",
       .kind = FlagKind::integer,
       .fallback = "0",
       .placeholder = "N",
       .help = "Recurrent states kept; 0: 2 x sequences + 4",
       .group = "Cache",
       .low = 0,
       .high = 1 << 20},
      {.name = "cache-ram",
       .kind = FlagKind::size,
       .fallback = "",
       .placeholder = "SIZE",
       .help = "Host memory for what the pools evict, taken at start; unset: none",
       .group = "Cache",
       .low = 1},
      {.name = "cache-disk",
       .kind = FlagKind::text,
       .fallback = "",
       .placeholder = "DIR",
       .help = "Keep the cache in this folder too, so that it outlives the server; unset: in memory only",
       .group = "Cache"},
      {.name = "cache-disk-limit",
       .kind = FlagKind::size,
       .fallback = "",
       .placeholder = "SIZE",
       .help = "Of that folder; what is worth least goes first; unset: no limit",
       .group = "Cache",
       .low = 1},
      {.name = "consolidate",
       .kind = FlagKind::boolean,
       .fallback = "true",
       .help = "Prefill finished turns while idle, so that the next turn begins at their end",
       .group = "Cache"},
      {.name = "pass-tokens",
       .kind = FlagKind::integer,
       .fallback = "512",
       .placeholder = "N",
       .help = "Rows of a prefill pass, a multiple of 64; never changes outputs",
       .group = "Scheduling",
       .aliases = {"-ub", "--ubatch-size"},
       .advanced = advanced,
       .low = 64,
       .high = 65536},
      {.name = "stall-limit",
       .kind = FlagKind::duration,
       .fallback = "250ms",
       .placeholder = "T",
       .help = "A prefill pass while others decode ends within this",
       .group = "Scheduling",
       .advanced = advanced},
      {.name = "max-queue",
       .kind = FlagKind::integer,
       .fallback = "256",
       .placeholder = "N",
       .help = "Waiting requests; above: 503",
       .group = "Scheduling",
       .advanced = advanced,
       .low = 1,
       .high = 65536},
      {.name = "temperature",
       .kind = FlagKind::number,
       .fallback = "",
       .placeholder = "X",
       .help = "Default of requests; unset: the checkpoint's",
       .group = "Sampling defaults",
       .low = 0,
       .high = 100},
      {.name = "top-p",
       .kind = FlagKind::number,
       .fallback = "",
       .placeholder = "X",
       .help = "As --temperature",
       .group = "Sampling defaults",
       .advanced = advanced,
       .low = 0,
       .high = 1},
      {.name = "top-k",
       .kind = FlagKind::integer,
       .fallback = "",
       .placeholder = "N",
       .help = "As --temperature",
       .group = "Sampling defaults",
       .advanced = advanced,
       .low = 0},
      {.name = "min-p",
       .kind = FlagKind::number,
       .fallback = "",
       .placeholder = "X",
       .help = "As --temperature",
       .group = "Sampling defaults",
       .advanced = advanced,
       .low = 0,
       .high = 1},
      {.name = "batch-size",
       .kind = FlagKind::ignored_value,
       .placeholder = "N",
       .help = "--pass-tokens bounds a pass",
       .group = "Scheduling",
       .aliases = {"-b"}},
      {.name = "enable-prefix-caching",
       .kind = FlagKind::ignored_switch,
       .help = "the cache is on unless --no-cache",
       .group = "Cache"},
      {.name = "n-gpu-layers",
       .kind = FlagKind::ignored_value,
       .placeholder = "N",
       .help = "the device decides",
       .group = "Model",
       .aliases = {"-ngl", "--gpu-layers"}},
      {.name = "flash-attn",
       .kind = FlagKind::ignored_switch,
       .help = "the device decides",
       .group = "Model",
       .aliases = {"-fa"}},
  };
  return joined(device_flags(), flags);
}

Result<GenerationDefaults> read_defaults(const Json& generation_config, const Json& config) {
  GenerationDefaults defaults;
  if (generation_config.is_object()) {
    number_at(generation_config, "temperature", &defaults.temperature);
    number_at(generation_config, "top_p", &defaults.top_p);
    number_at(generation_config, "min_p", &defaults.min_p);
    number_at(generation_config, "repetition_penalty", &defaults.repetition_penalty);
    if (generation_config.contains("top_k") && generation_config["top_k"].is_number_integer())
      defaults.top_k = std::max<int32_t>(0, generation_config["top_k"].get<int32_t>());
    if (generation_config.contains("do_sample") && generation_config["do_sample"] == false) defaults.temperature = 0;
  }
  WP_TRY(read_end_tokens(generation_config, &defaults.eos_tokens));
  if (defaults.eos_tokens.empty()) {
    WP_TRY(read_end_tokens(config, &defaults.eos_tokens));
    if (defaults.eos_tokens.empty() && config.is_object() && config.contains("text_config")) {
      WP_TRY(read_end_tokens(config["text_config"], &defaults.eos_tokens));
    }
  }
  return defaults;
}

Result<FolderTexts> read_folder(const std::string& path) {
  FolderTexts folder;
  WP_TRY(const Json generation_config, read_json_file(path + "/generation_config.json"));
  WP_TRY(const Json config, read_json_file(path + "/config.json"));
  WP_TRY(folder.defaults, read_defaults(generation_config, config));
  folder.has_generation_config = generation_config.is_object();
  if (!config.is_object()) return folder;
  const Json& text = config.contains("text_config") ? config["text_config"] : config;
  const auto number = [&](const char* name) {
    return text.is_object() && text.contains(name) && text[name].is_number_integer() ? text[name].get<int64_t>() : 0;
  };
  folder.embedding_width = number("hidden_size");
  folder.context_max = number("max_position_embeddings");
  return folder;
}

namespace {

Result<void> read_texts(const Flags& flags, Session& session) {
  const std::string& path = session.path;
  auto tokenizer = Tokenizer::load(path);
  if (!tokenizer.ok()) return Error{ErrorCode::bad_file, tokenizer.error().message};
  session.tokenizer.emplace(std::move(*tokenizer));
  WP_TRY(const Json tokenizer_config, read_json_file(path + "/tokenizer_config.json"));
  if (has_template(path, tokenizer_config)) {
    auto chat_template = ChatTemplate::load(path);
    if (!chat_template.ok()) return Error{ErrorCode::bad_file, chat_template.error().message};
    session.chat_template.emplace(std::move(*chat_template));
    WP_TRY(auto prompter, ChatPrompter::make(*session.chat_template, *session.tokenizer));
    session.prompter.emplace(std::move(prompter));
  }
  WP_TRY(FolderTexts folder, read_folder(path));
  session.defaults = std::move(folder.defaults);
  session.defaults_source = folder.has_generation_config ? "generation_config" : "built-in";
  session.embedding_width = folder.embedding_width;
  if (flags.set("temperature")) session.defaults.temperature = static_cast<float>(flags.number("temperature"));
  if (flags.set("top-p")) session.defaults.top_p = static_cast<float>(flags.number("top-p"));
  if (flags.set("top-k")) session.defaults.top_k = static_cast<int32_t>(flags.integer("top-k"));
  if (flags.set("min-p")) session.defaults.min_p = static_cast<float>(flags.number("min-p"));
  for (const char* name : {"temperature", "top-p", "top-k", "min-p"})
    if (flags.set(name)) session.defaults_source = "flags and " + session.defaults_source;
  return {};
}

}  // namespace

DiskTierOptions tier_options(const Flags& flags, const Session& session, const std::string& folder) {
  const ModelInfo& info = session.info();
  return {.folder = folder,
          .limit_bytes = flags.set("cache-disk-limit") ? flags.integer("cache-disk-limit") : 0,
          .origin = session.origin,
          .page_bytes = info.page_bytes,
          .anchor_bytes = info.anchor_bytes};
}

Result<std::unique_ptr<Session>> open_model(const Flags& flags, const ProgressSink& progress) {
  auto session = std::make_unique<Session>();
  WP_TRY(session->path, model_path(flags));
  std::filesystem::path path = std::filesystem::path(session->path).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  session->name = path.filename().string();
  WP_TRY(read_texts(flags, *session));
  WP_TRY(session->loaded, load_from_flags(flags, progress));
  Stream stream(*session->loaded.device);
  session->numerics = numerics_id(stream);
  const uint64_t tokenizer = session->tokenizer->fingerprint();
  session->origin = {hash_bytes(&tokenizer, sizeof tokenizer, session->info().fingerprint), session->numerics};
  WP_TRY(plan_memory(flags, *session));
  return session;
}

Result<std::unique_ptr<Session>> open_session(const Flags& flags, const ProgressSink& progress) {
  WP_TRY(auto session, open_model(flags, progress));
  if (flags.set("cache-disk") && session->limits.cache) {
    WP_TRY(session->tier, DiskTier::open(tier_options(flags, *session, flags.text("cache-disk"))));
  }
  WP_TRY(session->engine, Engine::make(*session->loaded.model, *session->loaded.device, session->limits, system_clock(),
                                       session->tier.get()));
  return session;
}

}  // namespace wp::app
