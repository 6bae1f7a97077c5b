// `warmpath replay`: recorded conversations, turn after turn.
#include "measure/replay.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "app/commands.h"
#include "app/model_session.h"
#include "app/progress.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/log.h"
#include "measure/http_client.h"
#include "measure/reference.h"
#include "measure/replay_report.h"
#include "measure/temporary_folder.h"
#include "measure/tiers.h"

namespace wp::app {
namespace {

Result<Json> read_run(const std::string& path) {
  WP_TRY(const std::string text, measure::read_text_file(path));
  auto parsed = parse_json(text, {.size_bytes_max = 1 << 30});
  if (!parsed.ok()) return Error{ErrorCode::bad_request, cat(path, ": ", parsed.error().message)};
  return std::move(*parsed);
}

Result<int> compare(const Flags& flags) {
  const auto a = flags.positional("MODEL"), b = flags.positional("FILE");
  if (!a || !b) return Error{ErrorCode::bad_request, "replay --compare: expected two files, A.json B.json"};
  WP_TRY(const Json left, read_run(*a));
  WP_TRY(const Json right, read_run(*b));
  WP_TRY(const auto found, measure::compare_replays(left, right));
  if (found.warm_to_cold_turns > 0)
    std::printf("restored TTFT is %.1f %% of the computed one: median of %lld turns over 4,000 tokens\n",
                100 * found.warm_to_cold, static_cast<long long>(found.warm_to_cold_turns));
  if (!found.identical) {
    std::printf("%s\n", found.difference.c_str());
    return Error{ErrorCode::gate_failed, cat("replay: expected identical turns: ", found.difference)};
  }
  std::printf("%lld turns identical\n", static_cast<long long>(found.turns));
  return 0;
}

struct Source {
  std::vector<measure::Conversation> conversations;
  std::optional<measure::SyntheticShape> synthetic;
};

Result<Source> read_source(const Flags& flags) {
  Source source;
  if (flags.set("synthetic")) {
    WP_TRY(source.synthetic, measure::parse_synthetic(flags.text("synthetic")));
    return source;
  }
  const auto file = flags.positional("FILE");
  if (!file) return Error{ErrorCode::bad_request, "replay: expected FILE.jsonl or --synthetic, found neither"};
  WP_TRY(source.conversations, measure::read_conversations(*file));
  const size_t wanted = static_cast<size_t>(flags.integer("conversations"));
  if (wanted > 0 && wanted < source.conversations.size()) source.conversations.resize(wanted);
  return source;
}

std::vector<measure::TurnResult> play(measure::ReplayTarget& target, const Source& source, const Session* session,
                                      const Flags& flags) {
  ProgressBar bar("replay");
  int64_t faults = 0;
  const measure::ReplayOptions options{.parallel = flags.integer("parallel"),
                                       .pace = flags.on("pace"),
                                       .progress = [&](const measure::TurnResult& turn, int64_t done, int64_t total) {
                                         faults += !turn.fault.empty();
                                         bar.show(static_cast<double>(done) / static_cast<double>(total),
                                                  fmt::format("{} of {} turns, {} faults", done, total, faults),
                                                  fmt::format("turns={} of={} faults={}", done, total, faults));
                                       }};
  if (!source.synthetic) return measure::run_replay(target, source.conversations, options);
  return measure::run_prompts(
      target, measure::synthetic_prompts(*source.synthetic, *session->tokenizer, session->info().vocabulary), options);
}

Result<void> write_json(const std::string& path, const Json& out) {
  std::ofstream file(path, std::ios::binary);
  file << out.dump(1) << "\n";
  file.close();
  if (!file) return Error{ErrorCode::io, cat("--json ", path, ": expected to write it, could not")};
  return {};
}

Json describe(const Flags& flags, const Session* session, const Source& source) {
  Json about = {{"warmpath", version_text()},
                {"model", flags.positional("MODEL").value_or("")},
                {"cache", flags.on("cache")},
                {"consolidate", flags.on("consolidate")},
                {"parallel", flags.integer("parallel")},
                {"pace", flags.on("pace")},
                {"source", source.synthetic ? "synthetic " + flags.text("synthetic") : *flags.positional("FILE")}};
  if (!session) return about;
  about["device"] = session->loaded.device->description();
  about["numerics"] = hex(session->numerics);
  about["pass_tokens"] = session->limits.pass_tokens;
  about["anchors"] = session->limits.anchors;
  about["pages"] = session->limits.pages;
  return about;
}

// No records of earlier runs: they would be restored by turns that are to be cold.
Result<void> expect_unused(const std::string& folder) {
  std::error_code fault;
  if (!std::filesystem::exists(folder, fault) || std::filesystem::is_empty(folder, fault)) return {};
  return Error{ErrorCode::bad_request,
               cat("replay --tiers: --cache-disk ", folder, ": expected an empty folder, found files there")};
}

Result<int> replay_tiers(const Flags& flags) {
  const std::string model = flags.positional("MODEL").value_or("");
  if (is_url(model) || flags.set("synthetic"))
    return Error{ErrorCode::bad_request, "replay --tiers: expected MODEL and FILE.jsonl, found a URL or --synthetic"};
  WP_TRY(const Source source, read_source(flags));
  measure::TemporaryFolder own;
  std::string folder = flags.text("cache-disk");
  if (folder.empty()) {
    WP_TRY(own, measure::TemporaryFolder::make("tiers"));
    folder = own.path();
  }
  WP_TRY(expect_unused(folder));
  configure_log({.level = LogLevel::warning});
  WP_TRY(const auto session, open_model(flags));
  if (!session->prompter) return Error{ErrorCode::bad_file, "replay --tiers: expected a chat template, found none"};
  ProgressBar bar("replay");
  const auto progress = [&](int64_t done, int64_t total) {
    bar.show(static_cast<double>(done) / static_cast<double>(total), fmt::format("{} of {} turns", done, total),
             fmt::format("turns={} of={}", done, total));
  };
  WP_TRY(const auto runs, measure::run_tiers({.model = session->loaded.model.get(),
                                              .device = session->loaded.device.get(),
                                              .tokenizer = &*session->tokenizer,
                                              .prompter = &*session->prompter,
                                              .stop_tokens = session->defaults.eos_tokens,
                                              .clock = &system_clock(),
                                              .limits = session->limits,
                                              .disk = tier_options(flags, *session, folder)},
                                             source.conversations, progress));
  std::fputs(measure::tier_table(runs).c_str(), stdout);
  if (const std::string fault = measure::tier_fault(runs); !fault.empty())
    return Error{ErrorCode::gate_failed, cat("replay --tiers: expected equal answers and warm turns: ", fault)};
  std::printf("%zu turns of %zu conversations, four times; all answers identical\n", runs.front().turns.size(),
              source.conversations.size());
  return 0;
}

Result<int> replay(const Flags& flags) {
  if (flags.on("compare")) return compare(flags);
  if (flags.on("tiers")) return replay_tiers(flags);
  WP_TRY(const Source source, read_source(flags));
  const std::string model = flags.positional("MODEL").value_or("");

  std::unique_ptr<Session> session;
  std::unique_ptr<measure::ReplayTarget> target;
  if (is_url(model)) {
    WP_TRY(measure::parse_url(model));
    target = measure::make_http_target(model, flags.on("cache"), system_clock());
  } else {
    configure_log({.level = LogLevel::warning});  // The table says what the engine's request lines would.
    WP_TRY(session, open_session(flags));
    target = measure::make_local_target({.engine = session->engine.get(),
                                         .tokenizer = &*session->tokenizer,
                                         .prompter = session->prompter ? &*session->prompter : nullptr,
                                         .stop_tokens = session->defaults.eos_tokens,
                                         .clock = &system_clock()});
  }
  const int64_t begin_ns = system_clock().now_ns();
  const auto turns = play(*target, source, session.get(), flags);
  const auto summary = measure::summarize_replay(turns, static_cast<double>(system_clock().now_ns() - begin_ns) * 1e-9);
  if (flags.on("turns")) {
    std::fputs(measure::turn_header().c_str(), stdout);
    for (const auto& turn : turns) std::fputs(measure::turn_line(turn).c_str(), stdout);
    std::printf("\n");
  }
  std::fputs(measure::replay_table(summary).c_str(), stdout);
  if (flags.set("json"))
    WP_TRY(
        write_json(flags.text("json"), measure::replay_json(describe(flags, session.get(), source), summary, turns)));

  for (const auto& turn : turns)
    if (!turn.fault.empty())
      return Error{ErrorCode::gate_failed, cat("replay: ", summary.faults, " faults; the first, ", turn.conversation,
                                               " turn ", turn.turn, ": ", turn.fault)};
  return 0;
}

}  // namespace

Command replay_command() {
  return {
      .name = "replay",
      .positionals = {{.name = "MODEL", .required = false, .help = "a model folder, or http://HOST:PORT of a server"},
                      {.name = "FILE", .required = false, .help = "conversations, one JSON object a line"}},
      .summary = "play recorded conversations; TTFT, reuse, score, and equality of two runs",
      .examples =
          "  warmpath replay models/flash-next-mini models/flash-next-mini/replay/agentic-200.jsonl --json on.json\n"
          "  warmpath replay --compare on.json off.json\n"
          "  warmpath replay models/flash-next-mini models/flash-next-mini/replay/agentic-200.jsonl --tiers\n"
          "  warmpath replay models/flash-next-mini --synthetic turns=12,start=24000,new=500\n",
      .flags = joined({{.name = "conversations",
                        .kind = FlagKind::integer,
                        .fallback = "0",
                        .placeholder = "N",
                        .help = "The first N; 0: all",
                        .group = "Replay",
                        .low = 0},
                       {.name = "parallel",
                        .kind = FlagKind::integer,
                        .fallback = "1",
                        .placeholder = "N",
                        .help = "Conversations at a time",
                        .group = "Replay",
                        .low = 1,
                        .high = 256},
                       {.name = "pace",
                        .kind = FlagKind::boolean,
                        .fallback = "false",
                        .help = "Pause between turns until finished ones are consolidated, as a user's tools would",
                        .group = "Replay"},
                       {.name = "json",
                        .fallback = "",
                        .placeholder = "OUT",
                        .help = "Write every turn to this file",
                        .group = "Replay"},
                       {.name = "turns",
                        .kind = FlagKind::boolean,
                        .fallback = "true",
                        .help = "Print a line for each turn",
                        .group = "Replay"},
                       {.name = "compare",
                        .kind = FlagKind::boolean,
                        .fallback = "false",
                        .help = "Compare two files that --json wrote: replay --compare A.json B.json",
                        .group = "Replay"},
                       {.name = "tiers",
                        .kind = FlagKind::boolean,
                        .fallback = "false",
                        .help = "The table of cold, warm from the device, from RAM, and from disk after restarts",
                        .group = "Replay"},
                       {.name = "synthetic",
                        .fallback = "",
                        .placeholder = "SHAPE",
                        .help = "Random tokens that grow, in place of FILE: turns=12,start=24000,new=500",
                        .group = "Replay"}},
                      engine_flags()),
      .run = replay};
}

}  // namespace wp::app
