#include "app/commands.h"

#include "core/cat.h"

namespace wp::app {

std::vector<Command> commands() {
  std::vector<Command> all;
  for (const auto make :
       {serve_command, chat_command, replay_command, bench_command, profile_command, kl_command, perplexity_command,
        eval_command, inspect_command, ctl_command, synth_command, version_command, help_command})
    all.push_back(make());
  return all;
}

const Command* find_command(std::string_view name) {
  static const std::vector<Command> all = commands();
  if (name == "run") name = "chat";
  for (const Command& command : all)
    if (command.name == name) return &command;
  return nullptr;
}

std::string overview() {
  std::string out = cat("warmpath ", version_text(), "\n\nwarmpath COMMAND ...\n");
  for (const Command& command : commands()) {
    std::string left = command.name;
    for (const PositionalSpec& positional : command.positionals)
      left += positional.required ? " " + positional.name : " [" + positional.name + "]";
    out += fmt::format("  {:<24} {}\n", left, command.summary);
  }
  out +=
      "\nwarmpath COMMAND --help shows the flags of a command; warmpath help exit-codes and help environment more.\n";
  return out;
}

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::gate_failed: return 1;
    case ErrorCode::bad_request: return 2;
    case ErrorCode::bad_file:
    case ErrorCode::not_found:
    case ErrorCode::unsupported: return 3;
    case ErrorCode::too_long: return 4;
    case ErrorCode::no_memory: return 5;
    case ErrorCode::timeout: return 6;
    case ErrorCode::device: return 7;
    case ErrorCode::address_in_use: return 8;
    case ErrorCode::cancelled: return 9;
    case ErrorCode::io:
    case ErrorCode::overloaded:
    case ErrorCode::unavailable: return 70;
  }
  return 70;
}

FlagSpec json_flag(const std::string& group) {
  return {.name = "json", .kind = FlagKind::boolean, .fallback = "false", .help = "As one JSON object", .group = group};
}

std::vector<FlagSpec> joined(std::vector<FlagSpec> flags, const std::vector<FlagSpec>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

}  // namespace wp::app
