// The subcommands, one file each; this is the only list of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/flags.h"

namespace wp::app {

Command serve_command();
Command chat_command();
Command replay_command();
Command bench_command();
Command kl_command();
Command perplexity_command();
Command eval_command();
Command inspect_command();
Result<int> inspect_why(const Flags& flags);                               // `inspect why`
Result<int> inspect_cache(const std::string& folder, const Flags& flags);  // `inspect CACHE_DIR`
Command ctl_command();
Command synth_command();
Command profile_command();
Command version_command();
Command help_command();

std::vector<Command> commands();
// With the aliases of spec/cli.md 1 (run is chat); null: there is none.
const Command* find_command(std::string_view name);
std::string overview();  // `warmpath help`: a line for each command.

// spec/cli.md 3.
int exit_code(ErrorCode code);

// Adds `more` behind `flags`.
FlagSpec json_flag(const std::string& group = "General");  // --json: one object on stdout
std::vector<FlagSpec> joined(std::vector<FlagSpec> flags, const std::vector<FlagSpec>& more);

std::string version_text();  // "0.1.0 (abc1234, gcc 12.2, cpu)"

}  // namespace wp::app
