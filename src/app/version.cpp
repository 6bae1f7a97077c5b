// `warmpath version` and `warmpath help`.
#include <cstdio>

#include "app/commands.h"
#include "core/cat.h"
#include "core/json.h"
#include "model/model.h"
#include "ops/tables.h"

namespace wp::app {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "gcc " __VERSION__;
#endif

// Those with a kernel for every operation.
std::vector<std::string> backends() {
  std::vector<std::string> names;
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda, DeviceKind::ref})
    if (ops::check_backend(kind).ok()) names.emplace_back(name(kind));
  return names;
}

Result<int> version(const Flags& flags) {
  if (flags.on("json")) {
    const Json out = {{"version", WP_VERSION},
                      {"commit", WP_COMMIT},
                      {"compiler", kCompiler},
                      {"backends", backends()},
                      {"model_types", model_types()}};
    std::printf("%s\n", dump_json(out).c_str());
  } else {
    std::printf("warmpath %s\n", version_text().c_str());
  }
  return 0;
}

constexpr const char* kExitCodes =
    "0   ok\n"
    "1   a gate failed: kl, ppl, eval, replay\n"
    "2   usage: an unknown flag, a value that is none\n"
    "3   model file invalid, or not there\n"
    "4   does not fit: context or memory\n"
    "5   allocation failed at run time\n"
    "6   timeout\n"
    "7   device error\n"
    "8   port in use, bind failed\n"
    "9   cancelled\n"
    "70  internal error\n"
    "128 + n  signal n\n";

constexpr const char* kEnvironment =
    "Each flag has a twin in the environment: --max-queue is WARMPATH_MAX_QUEUE. What holds, from the strongest:\n"
    "the flag, the environment, --config FILE, ~/.config/warmpath/config.toml, /etc/warmpath/config.toml, the\n"
    "checkpoint, the built-in value. `warmpath serve --print-config` prints each value with its source.\n"
    "A config file is TOML with the flags' names: port = 9000; a section [serve] holds for that command alone.\n";

Result<int> help(const Flags& flags) {
  const auto topic = flags.positional("TOPIC");
  if (!topic) {
    std::fputs(overview().c_str(), stdout);
  } else if (*topic == "exit-codes") {
    std::fputs(kExitCodes, stdout);
  } else if (*topic == "environment") {
    std::fputs(kEnvironment, stdout);
  } else if (const Command* command = find_command(*topic)) {
    std::fputs(help_page(*command, false).c_str(), stdout);
  } else {
    std::vector<std::string> names = {"exit-codes", "environment"};
    for (const Command& known : commands()) names.push_back(known.name);
    const std::string near = nearest_name(*topic, names);
    return Error{ErrorCode::bad_request, cat("help: expected a command, exit-codes or environment, found ", *topic,
                                             near.empty() ? "" : "; the nearest is " + near)};
  }
  return 0;
}

}  // namespace

std::string version_text() {
  std::string built;
  for (const std::string& backend : backends()) built += (built.empty() ? "" : "+") + backend;
  return cat(WP_VERSION, " (", WP_COMMIT, ", ", kCompiler, ", ", built, ")");
}

Command version_command() {
  return {.name = "version",
          .positionals = {},
          .summary = "version, commit, compiler, backends",
          .examples = "",
          .flags = {json_flag()},
          .run = version};
}

Command help_command() {
  return {.name = "help",
          .positionals = {{.name = "TOPIC", .required = false, .help = "a command, exit-codes or environment"}},
          .summary = "this list, or more about a topic",
          .examples = "",
          .flags = {},
          .run = help};
}

}  // namespace wp::app
