// Reading and checking. The grammar of the command line is CLI11's, and so is the reader of TOML; precedence, units
// and messages are here.
#include "app/flags.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cmath>
#include <fstream>

#include "core/cat.h"

namespace wp::app {
namespace {

// On every command.
std::vector<FlagSpec> common_flags() {
  return {
      {.name = "config",
       .fallback = "",
       .placeholder = "FILE",
       .help = "Read flags from a TOML file",
       .group = "Advanced",
       .advanced = true},
      {.name = "print-config",
       .kind = FlagKind::boolean,
       .fallback = "false",
       .help = "Print each value with its source, and exit",
       .group = "Advanced",
       .advanced = true},
  };
}

bool is_ignored(const FlagSpec& spec) {
  return spec.kind == FlagKind::ignored_switch || spec.kind == FlagKind::ignored_value;
}

bool takes_value(const FlagSpec& spec) {
  return spec.kind != FlagKind::boolean && spec.kind != FlagKind::ignored_switch;
}

std::string environment_name(std::string_view flag) {
  std::string name = "WARMPATH_";
  for (char c : flag) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<int64_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::vector<std::string> all_names(const std::vector<FlagSpec>& specs) {
  std::vector<std::string> names = {"--help", "--help-all"};
  for (const FlagSpec& spec : specs) {
    names.push_back("--" + spec.name);
    if (spec.kind == FlagKind::boolean) names.push_back("--no-" + spec.name);
    names.insert(names.end(), spec.aliases.begin(), spec.aliases.end());
  }
  return names;
}

// "12.5" and the letters behind it.
bool split_number(std::string_view text, double* number, std::string* unit) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), *number);
  if (fault != std::errc() || !std::isfinite(*number)) return false;
  *unit = std::string(end, text.data() + text.size() - end);
  return true;
}

// CLI11 knows -x and --xyz; -np of other servers becomes its canonical name first.
std::vector<std::string> with_canonical_names(const std::vector<FlagSpec>& specs,
                                              const std::vector<std::string>& args) {
  std::vector<std::string> out;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string arg = args[i];
    const size_t equals = arg.find('=');
    const std::string head = arg.substr(0, equals);
    for (const FlagSpec& spec : specs)
      if (std::find(spec.aliases.begin(), spec.aliases.end(), head) != spec.aliases.end())
        arg = "--" + spec.name + (equals == std::string::npos ? "" : arg.substr(equals));
    // llama.cpp's -fa may stand alone or before a word.
    if (arg == "--flash-attn" && i + 1 < args.size() &&
        (args[i + 1] == "on" || args[i + 1] == "off" || args[i + 1] == "auto" || args[i + 1] == "1" ||
         args[i + 1] == "0"))
      ++i;
    out.push_back(arg);
  }
  return out;
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  std::string best;
  int64_t best_distance = std::max<int64_t>(3, static_cast<int64_t>(name.size()) / 2);
  for (const std::string& candidate : names) {
    const int64_t distance = edit_distance(name, candidate);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

Result<int64_t> parse_size(std::string_view text) {
  double number = 0;
  std::string unit;
  if (split_number(text, &number, &unit)) {
    constexpr std::string_view kPrefixes = "kmgt";
    unit = lower(unit);
    double factor = 0;
    if (unit.empty() || unit == "b") factor = 1;
    const size_t power = unit.empty() ? std::string_view::npos : kPrefixes.find(unit[0]);
    if (power != std::string_view::npos) {
      const std::string_view rest = std::string_view(unit).substr(1);
      if (rest.empty() || rest == "ib" || rest == "i") factor = std::pow(1024.0, static_cast<double>(power + 1));
      if (rest == "b") factor = std::pow(1000.0, static_cast<double>(power + 1));
    }
    const double value = number * factor;
    if (factor > 0 && std::abs(value) < 9e18 && value == std::floor(value)) return static_cast<int64_t>(value);
  }
  return Error{ErrorCode::bad_request,
               cat("expected a whole number or size like 64k, 500MB or 8GiB, found '", text, "'")};
}

Result<int64_t> parse_duration(std::string_view text) {
  double number = 0;
  std::string unit;
  if (split_number(text, &number, &unit)) {
    const double factor = unit.empty() || unit == "s" ? 1e9
                          : unit == "ms"              ? 1e6
                          : unit == "us"              ? 1e3
                          : unit == "ns"              ? 1
                          : unit == "m"               ? 60e9
                          : unit == "h"               ? 3600e9
                                                      : 0;
    if (factor > 0 && number >= 0 && number * factor < 9e18) return static_cast<int64_t>(number * factor);
  }
  return Error{ErrorCode::bad_request, cat("expected a time like 30s, 250ms or 10m, found '", text, "'")};
}

Result<void> Flags::assign(Value& value, std::string text, FlagSource source, std::string origin) {
  const FlagSpec& spec = *value.spec;
  const std::string where = source == FlagSource::command_line  ? "--" + spec.name
                            : source == FlagSource::environment ? origin
                                                                : cat(origin, ": ", spec.name);
  double number = 0;
  if (spec.kind == FlagKind::integer || spec.kind == FlagKind::size || spec.kind == FlagKind::duration) {
    if (!text.empty()) {
      auto parsed = spec.kind == FlagKind::duration ? parse_duration(text) : parse_size(text);
      if (!parsed.ok()) return std::move(parsed).error().within(where);
      value.integer = *parsed;
      number = static_cast<double>(*parsed);
    }
  } else if (spec.kind == FlagKind::number) {
    std::string unit;
    if (!text.empty() && (!split_number(text, &number, &unit) || !unit.empty()))
      return Error{ErrorCode::bad_request, cat(where, ": expected a number, found '", text, "'")};
    value.number = number;
  } else if (spec.kind == FlagKind::boolean) {
    const std::string word = lower(text);
    const bool yes = word == "true" || word == "1" || word == "on" || word == "yes";
    if (!yes && word != "false" && word != "0" && word != "off" && word != "no" && word != "-1")
      return Error{ErrorCode::bad_request, cat(where, ": expected true or false, found '", text, "'")};
    text = yes ? "true" : "false";
    value.integer = yes;
  }
  if (!text.empty() && (number < spec.low || number > spec.high))
    return Error{ErrorCode::bad_request, cat(where, ": expected ", spec.low, " to ", spec.high, ", found ", text)};
  if (!spec.choices.empty() && !text.empty() &&
      std::find(spec.choices.begin(), spec.choices.end(), text) == spec.choices.end())
    return Error{ErrorCode::bad_request,
                 fmt::format("{}: expected {}, found '{}'", where, fmt::join(spec.choices, " or "), text)};
  value.text = std::move(text);
  value.source = source;
  value.origin = std::move(origin);
  return {};
}

Result<void> Flags::read_arguments(const Command& command, const std::vector<std::string>& args) {
  CLI::App parser;
  parser.set_help_flag();
  parser.allow_extras();
  std::vector<std::string> words;
  parser.add_option("words", words);
  std::map<std::string, std::string> texts;  // A list would take the words behind a value too.
  std::map<std::string, CLI::Option*> options;
  std::map<std::string, bool> switches;
  bool help = false, help_all = false;
  parser.add_flag("-h,--help", help);
  parser.add_flag("--help-all", help_all);
  for (const FlagSpec& spec : specs_) {
    const std::string name = "--" + spec.name;
    if (spec.kind == FlagKind::boolean) {
      options[spec.name] = parser.add_flag(name + ",!--no-" + spec.name, switches[spec.name])
                               ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    } else if (spec.kind == FlagKind::ignored_switch) {
      options[spec.name] = parser.add_flag(name, switches[spec.name]);
    } else {
      options[spec.name] = parser.add_option(name, texts[spec.name]);
      options[spec.name]->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
  try {
    std::vector<std::string> reversed = with_canonical_names(specs_, args);
    std::reverse(reversed.begin(), reversed.end());
    parser.parse(reversed);
  } catch (const CLI::ParseError& fault) {
    return Error{ErrorCode::bad_request, cat(fault.what(), "; see warmpath ", command_, " --help")};
  }
  for (const std::string& extra : parser.remaining()) {
    const std::string name = extra.substr(0, extra.find('='));
    const std::string near = nearest_name(name, all_names(specs_));
    return Error{ErrorCode::bad_request, cat("unknown flag ", name, near.empty() ? "" : "; the nearest is " + near,
                                             "; see warmpath ", command_, " --help-all")};
  }
  help_ = help;
  help_all_ = help_all;
  for (const FlagSpec& spec : specs_) {
    if (options[spec.name]->count() == 0) continue;
    Value& target = values_.find(spec.name)->second;
    if (is_ignored(spec)) {
      notices_.push_back(cat("--", spec.name, " is accepted and changes nothing: ", spec.help));
      continue;
    }
    std::string text = takes_value(spec) ? texts[spec.name] : switches[spec.name] ? "true" : "false";
    WP_TRY(assign(target, std::move(text), FlagSource::command_line, "command line"));
  }
  if (help_ || help_all_) return {};
  for (size_t i = 0; i < words.size(); ++i) {
    if (i >= command.positionals.size())
      return Error{ErrorCode::bad_request, cat("expected ", command.positionals.size(), " words after '", command_,
                                               "', found '", words[i], "' too; see warmpath ", command_, " --help")};
    positionals_[command.positionals[i].name] = words[i];
  }
  return {};
}

Result<void> Flags::read_environment(const Surroundings& surroundings, const std::vector<FlagSpec>& known) {
  std::vector<std::string> names;
  for (const FlagSpec& spec : known) names.push_back(environment_name(spec.name));
  for (const auto& [name, text] : surroundings.environment) {
    if (name.rfind("WARMPATH_", 0) != 0) continue;
    bool mine = false;
    for (auto& [flag, target] : values_) {
      if (environment_name(flag) != name || is_ignored(*target.spec)) continue;
      mine = true;
      if (target.source != FlagSource::command_line && !text.empty())
        WP_TRY(assign(target, text, FlagSource::environment, name));
    }
    if (mine || std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string near = nearest_name(name, names);
    notices_.push_back(cat("unknown environment variable ", name, near.empty() ? "" : "; the nearest is " + near));
  }
  return {};
}

Result<void> Flags::read_config(const std::string& path, bool required, const std::vector<FlagSpec>& known) {
  std::ifstream file(path);
  if (!file) {
    if (!required) return {};
    return Error{ErrorCode::bad_request, cat("--config: expected a file that can be read, found none at ", path)};
  }
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(file);
  } catch (const CLI::Error& fault) {
    return Error{ErrorCode::bad_request, cat(path, ": ", fault.what())};
  }
  std::vector<std::string> names;
  for (const FlagSpec& spec : known) names.push_back(spec.name);
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // CLI11's marks of a section's begin and end.
    if (!item.parents.empty() && item.parents.front() != command_) continue;
    std::string name = item.name;
    std::replace(name.begin(), name.end(), '_', '-');
    const auto found = values_.find(name);
    if (found == values_.end()) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;  // Another command's.
      const std::string near = nearest_name(name, names);
      return Error{ErrorCode::bad_request,
                   cat(path, ": unknown name ", item.name, near.empty() ? "" : "; the nearest is " + near)};
    }
    if (found->second.source > FlagSource::config_file) continue;
    WP_TRY(assign(found->second, item.inputs.empty() ? "" : item.inputs.back(), FlagSource::config_file, path));
  }
  return {};
}

Result<Flags> Flags::parse(const Command& command, const std::vector<std::string>& args,
                           const Surroundings& surroundings, const std::vector<FlagSpec>& known) {
  Flags flags;
  flags.command_ = command.name;
  flags.specs_ = command.flags;
  for (FlagSpec& spec : common_flags()) flags.specs_.push_back(std::move(spec));
  for (const FlagSpec& spec : flags.specs_) {
    Value value{.spec = &spec};
    if (!is_ignored(spec)) {
      const bool good = flags.assign(value, spec.fallback, FlagSource::built_in, "default").ok();
      WP_ASSERT(good);
    }
    flags.values_.emplace(spec.name, std::move(value));
  }
  std::vector<FlagSpec> all = known;
  for (FlagSpec& spec : common_flags()) all.push_back(std::move(spec));

  WP_TRY(flags.read_arguments(command, args));
  if (flags.help_ || flags.help_all_) return flags;
  WP_TRY(flags.read_environment(surroundings, all));
  for (const std::string& path : surroundings.config_files) WP_TRY(flags.read_config(path, false, all));
  if (flags.set("config")) WP_TRY(flags.read_config(flags.text("config"), true, all));
  flags.print_config_ = flags.on("print-config");
  // -m MODEL, and WARMPATH_MODEL, stand for the word.
  if (flags.values_.count("model") && flags.set("model") && !flags.positionals_.count("MODEL"))
    flags.positionals_["MODEL"] = flags.text("model");
  if (flags.print_config_) return flags;
  for (const PositionalSpec& positional : command.positionals)
    if (positional.required && !flags.positionals_.count(positional.name))
      return Error{ErrorCode::bad_request, cat("expected ", positional.name, " (", positional.help,
                                               "), found nothing; see warmpath ", command.name, " --help")};
  return flags;
}

const Flags::Value& Flags::value(std::string_view name) const {
  const auto found = values_.find(name);
  WP_ASSERT(found != values_.end());
  return found->second;
}

const std::string& Flags::text(std::string_view name) const { return value(name).text; }
int64_t Flags::integer(std::string_view name) const { return value(name).integer; }
double Flags::number(std::string_view name) const { return value(name).number; }
bool Flags::on(std::string_view name) const { return value(name).integer != 0; }
FlagSource Flags::source(std::string_view name) const { return value(name).source; }

std::optional<std::string> Flags::positional(std::string_view name) const {
  const auto found = positionals_.find(name);
  if (found == positionals_.end()) return std::nullopt;
  return found->second;
}

std::string Flags::config_text() const {
  std::string out;
  for (const FlagSpec& spec : specs_) {
    if (is_ignored(spec) || spec.name == "print-config") continue;
    const Value& v = value(spec.name);
    const std::string shown = spec.secret && !v.text.empty() ? "(hidden)" : v.text.empty() ? "(unset)" : v.text;
    out += fmt::format("{:<20} {:<24} {}\n", spec.name, shown, v.origin);
  }
  return out;
}

std::string Flags::changed_text() const {
  std::string out;
  for (const FlagSpec& spec : specs_) {
    if (is_ignored(spec) || spec.name == "print-config") continue;
    const Value& v = value(spec.name);
    if (v.source == FlagSource::built_in || v.text == spec.fallback) continue;
    out += cat(out.empty() ? "" : " ", spec.name, "=", spec.secret ? "(hidden)" : v.text);
  }
  return out;
}

std::string help_page(const Command& command, bool all) {
  std::string out = cat("warmpath ", command.name);
  for (const PositionalSpec& positional : command.positionals)
    out += positional.required ? " " + positional.name : " [" + positional.name + "]";
  out += cat(" [flags]\n  ", command.summary, "\n");
  for (const PositionalSpec& positional : command.positionals)
    out += fmt::format("  {:<28} {}\n", positional.name, positional.help);

  std::vector<FlagSpec> specs = command.flags;
  for (FlagSpec& spec : common_flags()) specs.push_back(std::move(spec));
  std::vector<std::string> groups;
  for (const FlagSpec& spec : specs)
    if (std::find(groups.begin(), groups.end(), spec.group) == groups.end()) groups.push_back(spec.group);
  for (const std::string& group : groups) {
    std::string body;
    for (const FlagSpec& spec : specs) {
      if (spec.group != group || ((spec.advanced || is_ignored(spec)) && !all)) continue;
      const bool negative = spec.kind == FlagKind::boolean && spec.fallback == "true";
      std::string left = (negative ? "--no-" : "--") + spec.name;
      if (!spec.placeholder.empty()) left += " " + spec.placeholder;
      for (const std::string& alias : spec.aliases) left += ", " + alias;
      std::string right = spec.help;
      if (is_ignored(spec)) right = "accepted, changes nothing: " + right;
      else if (spec.kind == FlagKind::boolean) right += negative ? " (default: on)" : " (default: off)";
      else if (!spec.fallback.empty()) right += cat(" (default: ", spec.fallback, ")");
      body += left.size() > 28 ? fmt::format("  {}\n  {:<28} {}\n", left, "", right)
                               : fmt::format("  {:<28} {}\n", left, right);
    }
    if (!body.empty()) out += cat("\n", group, "\n", body);
  }
  if (!command.examples.empty()) out += cat("\nExamples\n", command.examples);
  if (!all)
    out += cat("\nwarmpath ", command.name, " --help-all shows every flag. Sizes take k, MiB, GB; times ms, s, m.\n");
  out += "Each flag has an environment twin: --max-queue is WARMPATH_MAX_QUEUE; the flag wins.\n";
  return out;
}

}  // namespace wp::app
