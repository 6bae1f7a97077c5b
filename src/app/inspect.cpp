// `warmpath inspect`: what a model folder or a cache folder holds. Reads headers and text files, no weights.
#include <cstdio>
#include <filesystem>

#include "app/commands.h"
#include "app/model_loading.h"
#include "measure/statistics.h"
#include "store/folder_report.h"
#include "text/chat_prompt.h"
#include "weights/inspect.h"

namespace wp::app {
namespace {

std::string text_at(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_string() ? object[name].get<std::string>() : "";
}

std::string gib(int64_t bytes) { return measure::bytes_text(static_cast<double>(bytes)); }

Json tensors_json(const CheckpointSummary& summary) {
  Json modules = Json::array(), formats = Json::array();
  for (const ModuleSummary& module : summary.modules) {
    Json weights = Json::array();
    for (const WeightSummary& weight : module.weights)
      weights.push_back({{"name", weight.name},
                         {"format", weight.format},
                         {"shape", to_string(weight.shape)},
                         {"bytes", weight.size_bytes},
                         {"tensors", weight.tensors_count},
                         {"file", weight.file}});
    modules.push_back({{"name", module.name}, {"bytes", module.size_bytes}, {"weights", std::move(weights)}});
  }
  for (const FormatTotal& format : summary.formats)
    formats.push_back({{"format", format.format},
                       {"weights", format.weights_count},
                       {"values", format.values_count},
                       {"bytes", format.size_bytes}});
  return {{"tensors", summary.tensors_count}, {"files", summary.files_count},  {"bytes", summary.size_bytes},
          {"values", summary.values_count},   {"formats", std::move(formats)}, {"modules", std::move(modules)}};
}

void print_tensors(const CheckpointSummary& summary, bool every_weight) {
  std::printf("tensors    %lld in %lld files, %s, %s values\n", static_cast<long long>(summary.tensors_count),
              static_cast<long long>(summary.files_count), gib(summary.size_bytes).c_str(),
              measure::count_text(summary.values_count).c_str());
  for (const FormatTotal& format : summary.formats)
    std::printf("  %-14s %8lld weights  %16s values  %12s\n", format.format.c_str(),
                static_cast<long long>(format.weights_count), measure::count_text(format.values_count).c_str(),
                gib(format.size_bytes).c_str());
  for (const ModuleSummary& module : summary.modules) {
    std::printf("%-52s %12s\n", module.name.c_str(), gib(module.size_bytes).c_str());
    if (!every_weight) continue;
    for (const WeightSummary& weight : module.weights)
      std::printf("  %-50s %12s  %-13s %-16s x%-5lld %s\n", weight.name.c_str(), gib(weight.size_bytes).c_str(),
                  weight.format.c_str(), to_string(weight.shape).c_str(), static_cast<long long>(weight.tensors_count),
                  weight.file.c_str());
  }
}

// The parts that a folder may lack: said, not failed on.
struct Texts {
  Json tokenizer = nullptr, chat_template = nullptr;
  std::string lines;
};

Texts read_texts(const std::string& path) {
  Texts texts;
  const auto tokenizer = Tokenizer::load(path);
  if (!tokenizer.ok()) {
    texts.lines += cat("tokenizer  ", tokenizer.error().message, "\n");
  } else {
    int64_t added = 0;
    std::string names;
    for (TokenId id = 0; id < tokenizer->vocabulary_count(); ++id) {
      if (!tokenizer->is_added(id)) continue;
      ++added;
      if (added <= 12) names += cat(" ", tokenizer->bytes(id));
    }
    texts.lines += cat("tokenizer  byte-level BPE, ", tokenizer->vocabulary_count(), " ids, ", added, " added:", names,
                       added > 12 ? " ..." : "", "\n");
    texts.tokenizer = {{"ids", tokenizer->vocabulary_count()}, {"added", added}};
  }
  const auto chat_template = ChatTemplate::load(path);
  if (!chat_template.ok()) {
    texts.lines += cat("template   ", chat_template.error().message, "\n");
    return texts;
  }
  const std::string& source = chat_template->source();
  const auto says = [&source](const char* word) { return source.find(word) != std::string::npos; };
  texts.chat_template = {{"bytes", source.size()},
                         {"tools", says("tools")},
                         {"thinking", says("enable_thinking")},
                         {"keeps_thinking", says("preserve_thinking")}};
  texts.lines += cat("template   ", source.size(), " bytes; tools: ", says("tools") ? "yes" : "no",
                     "; enable_thinking: ", says("enable_thinking") ? "yes" : "no",
                     "; preserve_thinking: ", says("preserve_thinking") ? "yes" : "no", "\n");
  return texts;
}

Result<int> inspect(const Flags& flags) {
  if (flags.positional("MODEL") == "why") return inspect_why(flags);
  WP_TRY(const std::string path, model_path(flags));
  if (is_cache_folder(path)) return inspect_cache(path, flags);
  if (flags.on("verify"))
    return Error{ErrorCode::bad_file, cat(path, ": --verify: expected a folder of --cache-disk, found no cache there")};
  auto opened = Checkpoint::open(path);
  if (!opened.ok()) {
    Error error = std::move(opened).error();
    if (error.code == ErrorCode::io) error.code = ErrorCode::bad_file;
    return error;
  }
  const CheckpointSummary summary = summarize(*opened);
  const Json& config = opened->config();
  const bool folder = std::filesystem::is_directory(path);
  const Texts texts = folder ? read_texts(path) : Texts{};
  if (flags.on("json")) {
    Json out = {{"path", path}, {"model_type", text_at(config, "model_type")}, {"config", config}};
    out["weights"] = tensors_json(summary);
    out["tokenizer"] = texts.tokenizer;
    out["chat_template"] = texts.chat_template;
    std::printf("%s\n", dump_json(out).c_str());
    return 0;
  }
  std::printf("model      %s  %s\n", path.c_str(),
              config.is_null() ? "(no config.json)" : text_at(config, "model_type").c_str());
  std::fputs(texts.lines.c_str(), stdout);
  print_tensors(summary, flags.on("tensors"));
  return 0;
}

}  // namespace

Command inspect_command() {
  return {
      .name = "inspect",
      .positionals = {{.name = "MODEL",
                       .help = "a model folder, one .safetensors file, a cache folder, or the word why"},
                      {.name = "OF", .required = false, .help = "with why: a model folder; no weights are read"},
                      {.name = "FILE", .required = false, .help = "with why: conversations, as replay takes them"}},
      .summary =
          "tensors by module, formats, bytes; records of a cache folder; why the cache would restore a recorded turn "
          "or not",
      .examples =
          "  warmpath inspect models/flash-next-mini --tensors\n"
          "  warmpath inspect CACHE_DIR --verify\n"
          "  warmpath inspect why models/flash-next-mini conversation.jsonl --anchors 8 --parallel 4\n",
      .flags =
          {{.name = "tensors", .kind = FlagKind::boolean, .fallback = "false", .help = "Every weight of every module"},
           {.name = "verify",
            .kind = FlagKind::boolean,
            .fallback = "false",
            .help = "Of a cache folder: read every record and check its checksum; 1 where one is damaged"},
           {.name = "parallel",
            .kind = FlagKind::integer,
            .fallback = "1",
            .placeholder = "N",
            .help = "Conversations at a time",
            .group = "Why",
            .low = 1,
            .high = 256},
           {.name = "sequences",
            .kind = FlagKind::integer,
            .fallback = "4",
            .placeholder = "N",
            .help = "As serve's",
            .group = "Why",
            .low = 1,
            .high = 1024},
           {.name = "anchors",
            .kind = FlagKind::integer,
            .fallback = "0",
            .placeholder = "N",
            .help = "As serve's",
            .group = "Why",
            .low = 0,
            .high = 1 << 20},
           {.name = "context-tokens",
            .kind = FlagKind::integer,
            .fallback = "0",
            .placeholder = "N",
            .help = "As serve's; 0: the model's",
            .group = "Why",
            .low = 0},
           {.name = "consolidate", .kind = FlagKind::boolean, .fallback = "true", .help = "As serve's", .group = "Why"},
           {.name = "pace",
            .kind = FlagKind::boolean,
            .fallback = "true",
            .help = "Finished turns are consolidated before the next begins",
            .group = "Why"},
           json_flag()},
      .run = inspect};
}

}  // namespace wp::app
