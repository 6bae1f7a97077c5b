#include "app/flags.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "app/commands.h"

namespace wp::app {
namespace {

Command sample() {
  return {
      .name = "sample",
      .positionals = {{.name = "MODEL", .help = "a model folder"}},
      .flags = {{.name = "port", .kind = FlagKind::integer, .fallback = "8080", .low = 0, .high = 65535},
                {.name = "max-queue", .kind = FlagKind::integer, .fallback = "256", .aliases = {"-mq", "-q"}},
                {.name = "limit", .kind = FlagKind::size, .fallback = ""},
                {.name = "wait", .kind = FlagKind::duration, .fallback = "250ms"},
                {.name = "cache", .kind = FlagKind::boolean, .fallback = "true"},
                {.name = "key", .fallback = "", .secret = true},
                {.name = "form", .fallback = "text", .choices = {"text", "json"}},
                {.name = "jinja", .kind = FlagKind::ignored_switch, .help = "the template decides"},
                {.name = "ngl", .kind = FlagKind::ignored_value, .help = "the device decides", .aliases = {"-ngl"}}}};
}

Result<Flags> parse(const std::vector<std::string>& args, const Surroundings& surroundings = {}) {
  static const Command command = sample();
  return Flags::parse(command, args, surroundings, command.flags);
}

TEST(Flags, FormsOfAValue) {
  const auto flags = parse({"m", "--port=1", "-mq", "7", "--limit", "8GiB", "--wait=2s", "--no-cache"});
  ASSERT_TRUE(flags.ok()) << flags.error().message;
  EXPECT_EQ(flags->positional("MODEL"), "m");
  EXPECT_EQ(flags->integer("port"), 1);
  EXPECT_EQ(flags->integer("max-queue"), 7);
  EXPECT_EQ(flags->integer("limit"), int64_t{8} << 30);
  EXPECT_EQ(flags->integer("wait"), 2'000'000'000);
  EXPECT_FALSE(flags->on("cache"));
  EXPECT_TRUE(parse({"m", "--cache"})->on("cache"));
  EXPECT_FALSE(parse({"m", "--cache=false"})->on("cache"));
  EXPECT_TRUE(parse({"m"})->on("cache"));
  EXPECT_EQ(parse({"--port", "3", "m"})->integer("port"), 3);
}

TEST(Flags, UnknownNamesTheNearest) {
  const auto flags = parse({"m", "--prot", "1"});
  ASSERT_FALSE(flags.ok());
  EXPECT_EQ(flags.error().message, "unknown flag --prot; the nearest is --port; see warmpath sample --help-all");
  EXPECT_NE(parse({"m", "--no-cahce"}).error().message.find("--no-cache"), std::string::npos);
  EXPECT_FALSE(parse({"m", "-z"}).ok());
}

TEST(Flags, BadValuesSayWhatWasExpected) {
  EXPECT_EQ(parse({"m", "--port=70000"}).error().message, "--port: expected 0 to 65535, found 70000");
  EXPECT_NE(parse({"m", "--port=x"}).error().message.find("--port: expected a whole number"), std::string::npos);
  EXPECT_NE(parse({"m", "--wait=soon"}).error().message.find("expected a time like 30s"), std::string::npos);
  EXPECT_EQ(parse({"m", "--form=xml"}).error().message, "--form: expected text or json, found 'xml'");
  EXPECT_FALSE(parse({"m", "--port"}).ok());
  EXPECT_FALSE(parse({"m", "other"}).ok());
  EXPECT_NE(parse({}).error().message.find("expected MODEL"), std::string::npos);
}

TEST(Flags, AcceptedNoOpsGiveANotice) {
  const auto flags = parse({"m", "--jinja", "-ngl", "99"});
  ASSERT_TRUE(flags.ok()) << flags.error().message;
  EXPECT_EQ(flags->notices().size(), 2u);
  EXPECT_EQ(flags->positional("MODEL"), "m");
}

TEST(Flags, FlagThenEnvironmentThenFile) {
  const std::string path = ::testing::TempDir() + "/warmpath_flags_test.toml";
  std::ofstream(path) << "port = 3\nmax_queue = 4\nform = \"json\"\n[sample]\nwait = \"9s\"\n[other]\nport = 99\n";
  const Surroundings surroundings{.environment = {{"WARMPATH_PORT", "2"}, {"WARMPATH_CACHE", "0"}, {"HOME", "/"}},
                                  .config_files = {path, "/nowhere.toml"}};
  const auto flags = parse({"m", "--cache"}, surroundings);
  ASSERT_TRUE(flags.ok()) << flags.error().message;
  EXPECT_EQ(flags->integer("port"), 2);
  EXPECT_EQ(flags->integer("max-queue"), 4);
  EXPECT_EQ(flags->text("form"), "json");
  EXPECT_EQ(flags->integer("wait"), 9'000'000'000);
  EXPECT_TRUE(flags->on("cache"));
  EXPECT_EQ(flags->source("port"), FlagSource::environment);
  EXPECT_EQ(flags->source("max-queue"), FlagSource::config_file);
  EXPECT_NE(flags->config_text().find("WARMPATH_PORT"), std::string::npos);
  EXPECT_NE(flags->changed_text().find("port=2"), std::string::npos);

  std::ofstream(path) << "prot = 3\n";
  EXPECT_NE(parse({"m"}, surroundings).error().message.find("unknown name prot; the nearest is port"),
            std::string::npos);
  std::remove(path.c_str());
}

TEST(Flags, UnknownEnvironmentIsAWarning) {
  const auto flags = parse({"m"}, {.environment = {{"WARMPATH_PROT", "2"}}});
  ASSERT_TRUE(flags.ok());
  ASSERT_EQ(flags->notices().size(), 1u);
  EXPECT_NE(flags->notices()[0].find("WARMPATH_PROT; the nearest is WARMPATH_PORT"), std::string::npos);
}

TEST(Flags, SecretsAreNotPrinted) {
  const auto flags = parse({"m", "--key", "hush"});
  EXPECT_EQ(flags->config_text().find("hush"), std::string::npos);
  EXPECT_EQ(flags->changed_text().find("hush"), std::string::npos);
  EXPECT_EQ(flags->text("key"), "hush");
}

TEST(Flags, Sizes) {
  EXPECT_EQ(*parse_size("64k"), 65536);
  EXPECT_EQ(*parse_size("500MB"), 500'000'000);
  EXPECT_EQ(*parse_size("1.5GiB"), int64_t{3} << 29);
  for (const char* bad : {"", "k", "1x", "1.0000001", "1e30", "GiB", "nan"}) EXPECT_FALSE(parse_size(bad).ok()) << bad;
  EXPECT_EQ(*parse_duration("10m"), 600'000'000'000);
  for (const char* bad : {"", "-1s", "1y", "s"}) EXPECT_FALSE(parse_duration(bad).ok()) << bad;
}

// Every command's table is sound: defaults parse, names and aliases are not given twice, help fits a terminal.
TEST(Commands, TablesAreSound) {
  for (const Command& command : commands()) {
    SCOPED_TRACE(command.name);
    std::vector<std::string> args(command.positionals.size(), "x"), names;
    const auto flags = Flags::parse(command, args, {}, command.flags);
    ASSERT_TRUE(flags.ok()) << flags.error().message;
    for (const FlagSpec& spec : command.flags) {
      names.push_back("--" + spec.name);
      names.insert(names.end(), spec.aliases.begin(), spec.aliases.end());
      EXPECT_FALSE(spec.help.empty()) << spec.name;
    }
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end())
        << *std::adjacent_find(names.begin(), names.end());
    EXPECT_NE(help_page(command, true).find("Examples") == std::string::npos, !command.examples.empty());
    EXPECT_LE(help_page(command, false).size(), help_page(command, true).size());
  }
}

TEST(Commands, AliasesAndExitCodes) {
  ASSERT_NE(find_command("run"), nullptr);
  EXPECT_EQ(find_command("run")->name, "chat");
  EXPECT_EQ(find_command("srve"), nullptr);
  EXPECT_EQ(exit_code(ErrorCode::gate_failed), 1);
  EXPECT_EQ(exit_code(ErrorCode::bad_request), 2);
  EXPECT_EQ(exit_code(ErrorCode::bad_file), 3);
  EXPECT_EQ(exit_code(ErrorCode::address_in_use), 8);
}

}  // namespace
}  // namespace wp::app
