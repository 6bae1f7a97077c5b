// Flags: one command's options, from the command line, the environment twin WARMPATH_NAME, a TOML file or the default,
// in this order. Checked as a whole before anything is loaded: an unknown name is an error that names the nearest one.
// Made once by main; const afterwards.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace wp::app {

enum class FlagKind {
  text,
  integer,         // A whole number; 64k is 65536.
  number,          // A decimal number.
  size,            // Bytes: 8GiB, 500MB, 64k.
  duration,        // 30s, 250ms, 10m; a bare number is in seconds. Kept in ns.
  boolean,         // --x, --no-x, --x=true
  ignored_switch,  // Accepted with a notice: what other servers' users have in their fingers.
  ignored_value
};

struct FlagSpec {
  std::string name;  // Without dashes.
  FlagKind kind = FlagKind::text;
  std::string fallback;           // What holds when nobody says anything, as it would be typed; "" may mean unset.
  std::string placeholder;        // "N", "FILE"
  std::string help;               // One sentence.
  std::string group = "General";  // As in spec/cli.md 2.
  std::vector<std::string> aliases = {};  // With dashes: "-np", "--ctx".
  bool advanced = false;                  // On the --help-all page only.
  bool secret = false;                    // Never printed.
  double low = -1e18, high = 1e18;        // For numbers of any kind.
  std::vector<std::string> choices = {};
};

struct PositionalSpec {
  std::string name;  // "MODEL"
  bool required = true;
  std::string help;
};

class Flags;

struct Command {
  std::string name;
  std::vector<PositionalSpec> positionals;
  std::string summary;   // One line for the list of commands.
  std::string examples;  // Whole lines, or empty.
  std::vector<FlagSpec> flags;
  Result<int> (*run)(const Flags& flags) = nullptr;  // The process's exit code.
};

// What parsing may read beside the arguments; tests pass their own.
struct Surroundings {
  std::map<std::string, std::string> environment;
  std::vector<std::string> config_files;  // Later ones win; absent ones are skipped.
};

enum class FlagSource { built_in, config_file, environment, command_line };

class Flags {
 public:
  // `args` without the program and the command. `known` are all commands' flags, for the check of the environment.
  static Result<Flags> parse(const Command& command, const std::vector<std::string>& args,
                             const Surroundings& surroundings, const std::vector<FlagSpec>& known);

  const std::string& text(std::string_view name) const;
  int64_t integer(std::string_view name) const;  // integer, size and duration (ns).
  double number(std::string_view name) const;
  bool on(std::string_view name) const;  // boolean
  bool given(std::string_view name) const { return source(name) != FlagSource::built_in; }
  bool set(std::string_view name) const { return !text(name).empty(); }
  FlagSource source(std::string_view name) const;
  std::optional<std::string> positional(std::string_view name) const;

  bool help() const { return help_; }
  bool help_all() const { return help_all_; }
  bool print_config() const { return print_config_; }
  const std::vector<std::string>& notices() const { return notices_; }  // For stderr, whole lines.
  std::string config_text() const;                                      // --print-config
  std::string changed_text() const;                                     // "port=9000 cache=false": non-default values.

 private:
  struct Value {
    const FlagSpec* spec;
    std::string text;
    FlagSource source = FlagSource::built_in;
    std::string origin;  // "WARMPATH_PORT", the file's path.
    int64_t integer = 0;
    double number = 0;
  };
  struct Lines;

  Result<void> read_arguments(const Command& command, const std::vector<std::string>& args);
  Result<void> read_environment(const Surroundings& surroundings, const std::vector<FlagSpec>& known);
  Result<void> read_config(const std::string& path, bool required, const std::vector<FlagSpec>& known);
  Result<void> assign(Value& value, std::string text, FlagSource source, std::string origin);
  const Value& value(std::string_view name) const;

  std::string command_;
  std::vector<FlagSpec> specs_;
  std::map<std::string, Value, std::less<>> values_;
  std::map<std::string, std::string, std::less<>> positionals_;
  std::vector<std::string> notices_;
  bool help_ = false, help_all_ = false, print_config_ = false;
};

// The page of `warmpath COMMAND --help`; `all` shows the advanced flags and the accepted no-ops too.
std::string help_page(const Command& command, bool all);
// Of `names` the one with the smallest edit distance; "" where none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);
Result<int64_t> parse_size(std::string_view text);      // Bytes or a count.
Result<int64_t> parse_duration(std::string_view text);  // ns

}  // namespace wp::app
