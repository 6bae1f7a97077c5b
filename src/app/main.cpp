// Finds the subcommand, reads its flags and turns its result into an exit code. The last line on stderr before any
// other code than 0 says what was expected, what was found and what to do.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "app/commands.h"
#include "core/cat.h"

extern char** environ;

namespace wp::app {
namespace {

Surroundings read_surroundings() {
  Surroundings surroundings;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) surroundings.environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  surroundings.config_files.push_back("/etc/warmpath/config.toml");
  const auto home = surroundings.environment.find("HOME");
  if (home != surroundings.environment.end())
    surroundings.config_files.push_back(home->second + "/.config/warmpath/config.toml");
  return surroundings;
}

int fail(int code, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "warmpath: %s\n", message.c_str());
  return code;
}

int run_command(const Command& command, const std::vector<std::string>& args) {
  std::vector<FlagSpec> known;
  for (const Command& other : commands()) known = joined(std::move(known), other.flags);
  const auto flags = Flags::parse(command, args, read_surroundings(), known);
  if (!flags.ok()) return fail(2, flags.error().message);
  if (flags->help() || flags->help_all()) {
    std::fputs(help_page(command, flags->help_all()).c_str(), stdout);
    return 0;
  }
  if (flags->print_config()) {
    std::fputs(flags->config_text().c_str(), stdout);
    return 0;
  }
  for (const std::string& notice : flags->notices()) std::fprintf(stderr, "notice: %s\n", notice.c_str());
  const auto result = command.run(*flags);
  if (!result.ok()) return fail(exit_code(result.error().code), result.error().message);
  if (std::fflush(stdout) != 0) return fail(70, "stdout: expected to write all output, found it closed");
  return *result;
}

// A key on the command line is in every process list; its bytes are overwritten once they are read.
void wipe_keys(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    char* key = nullptr;
    if (std::strcmp(argv[i], "--api-key") == 0 && i + 1 < argc) key = argv[i + 1];
    if (std::strncmp(argv[i], "--api-key=", 10) == 0) key = argv[i] + 10;
    if (key) std::memset(key, 'x', std::strlen(key));
  }
}

int run(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  wipe_keys(argc, argv);
  if (args.empty()) {
    std::fputs(overview().c_str(), stderr);
    return fail(2, "expected a command, found none; see warmpath help");
  }
  std::string name = args[0];
  if (name == "--help" || name == "-h") name = "help";
  if (name == "--version" || name == "-V") name = "version";
  const Command* command = find_command(name);
  if (!command) {
    std::vector<std::string> names;
    for (const Command& known : commands()) names.push_back(known.name);
    const std::string near = nearest_name(name, names);
    return fail(2,
                cat("unknown command ", name, near.empty() ? "" : "; the nearest is " + near, "; see warmpath help"));
  }
  return run_command(*command, {args.begin() + 1, args.end()});
}

}  // namespace
}  // namespace wp::app

int main(int argc, char** argv) { return wp::app::run(argc, argv); }
