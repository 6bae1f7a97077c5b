// `warmpath serve`: binds first, loads then, serves until a signal, drains.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>

#include "app/commands.h"
#include "app/model_session.h"
#include "app/progress.h"
#include "app/service_manager.h"
#include "app/signals.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/log.h"
#include "measure/statistics.h"
#include "serve/server.h"

namespace wp::app {
namespace {

constexpr int64_t kTellNs = 2'000'000'000;  // For those that are cut to be told so.
constexpr int64_t kStatusNs = 10'000'000'000;
constexpr int64_t kDrainPollNs = 20'000'000;
constexpr int64_t kCutNs = 10'000'000'000;  // What is left to do once requests are cut takes less.

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) items.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return items;
}

Result<std::vector<std::string>> read_keys(const Flags& flags) {
  std::vector<std::string> keys;
  if (flags.set("api-key")) keys.push_back(flags.text("api-key"));
  if (!flags.set("api-key-file")) return keys;
  const std::string& path = flags.text("api-key-file");
  std::ifstream file(path);
  if (!file)
    return Error{ErrorCode::bad_request, cat("--api-key-file: expected a file that can be read, found none at ", path)};
  const size_t before = keys.size();
  for (std::string line; std::getline(file, line);) {
    const size_t begin = line.find_first_not_of(" \t\r"), end = line.find_last_not_of(" \t\r");
    if (begin != std::string::npos && line[begin] != '#') keys.push_back(line.substr(begin, end - begin + 1));
  }
  if (keys.size() == before)
    return Error{ErrorCode::bad_request, cat("--api-key-file ", path, ": expected a key a line, found none")};
  return keys;
}

Result<ServerOptions> server_options(const Flags& flags) {
  ServerOptions options;
  options.host = flags.text("host");
  options.port = static_cast<uint16_t>(flags.integer("port"));
  WP_TRY(options.api_keys, read_keys(flags));
  options.allowed_hosts = split_list(flags.text("allowed-host"));
  options.allowed_origins = split_list(flags.text("cors-origin"));
  options.responses.bytes_max = flags.integer("response-store");
  options.responses.seconds_max = flags.integer("response-store-time") / 1'000'000'000;
  options.http.workers_max = static_cast<int32_t>(flags.integer("max-queue") + flags.integer("sequences") + 16);
  return options;
}

std::shared_ptr<const Service> make_service(const Flags& flags, const Session& session, SlotFiles* slot_files) {
  auto service = std::make_shared<Service>();
  service->engine = session.engine.get();
  service->slot_files = slot_files;
  service->tokenizer = &*session.tokenizer;
  if (session.chat_template) service->chat_template = &*session.chat_template;
  if (session.prompter) service->prompter = &*session.prompter;
  service->disk_tier = session.tier != nullptr;
  service->clock = &system_clock();
  service->model_name = flags.set("name") ? flags.text("name") : session.name;
  service->model_path = session.path;
  service->build = cat("warmpath ", version_text());
  service->context_tokens = session.limits.context_tokens;
  service->context_trained = session.info().context_max;
  service->embedding_width = session.embedding_width;
  service->defaults = session.defaults;
  service->seed =
      flags.set("seed")
          ? static_cast<Seed>(flags.integer("seed"))
          : splitmix64(static_cast<uint64_t>(system_clock().now_ns()) ^ static_cast<uint64_t>(unix_time_s()) << 32);
  service->strict_api = flags.on("strict-api");
  service->domain_per_key = flags.text("cache-domains") == "key";
  service->strict_model = flags.on("strict-model");
  service->call_in_thinking = flags.text("call-in-thinking") == "accept";
  service->strip_volatile = flags.on("strip-volatile");
  service->reasoning_both = flags.text("reasoning-field") == "both";
  return service;
}

void print_banner(const Flags& flags, const Session& session, const Server& server, bool keyed, double ready_s) {
  const auto gib = [](int64_t bytes) { return measure::bytes_text(static_cast<double>(bytes)); };
  const ModelInfo& info = session.info();
  const GenerationDefaults& d = session.defaults;
  std::string out =
      fmt::format("warmpath {}  pid {}  numerics {}\n", version_text(), getpid(), hex(session.numerics).substr(0, 8));
  out += fmt::format("model    {}  {}  {}   {}\n", session.name, info.family, info.description, gib(info.weight_bytes));
  out += fmt::format("device   {}{}\n", session.loaded.device->description(),
                     session.available_bytes < 0
                         ? ""
                         : fmt::format("  avail {} (measured, after the weights)", gib(session.available_bytes)));
  out += fmt::format("memory   weights {}  kv {} ({} tok)  anchors {} ({})  slots {} ({})   fits\n",
                     gib(info.weight_bytes), gib(session.plan.pages_bytes),
                     measure::count_text(int64_t{session.limits.pages} * kPageTokens), gib(session.plan.anchors_bytes),
                     session.limits.anchors, gib(session.plan.slots_bytes), session.limits.sequences);
  out += fmt::format(
      "cache    exact: {}   reuse from {} tok   ram: {}  disk: {}   sampling temp {} top_p {} top_k {} ({})\n",
      session.limits.cache ? "on" : "off", kPageTokens,
      session.limits.ram_bytes > 0 ? gib(session.limits.ram_bytes) : "off",
      session.tier ? flags.text("cache-disk") : "off", d.temperature, d.top_p, d.top_k, session.defaults_source);
  out += fmt::format("serving  {}   openai responses   context {}   key: {}\n", server.url(),
                     session.limits.context_tokens, keyed ? "asked for" : "none");
  if (!flags.changed_text().empty()) out += fmt::format("flags    {}\n", flags.changed_text());
  out += fmt::format("ready    {:.1f} s  (load {:.1f})\n", ready_s, session.loaded.load_seconds);
  out += fmt::format(
      "next     warmpath chat {0}   or   curl {0}/v1/chat/completions --json "
      "'{{\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n",
      server.url());
  std::fputs(out.c_str(), stderr);
  std::fflush(stderr);
}

// One line every ten seconds in which something ran.
class StatusLine {
 public:
  void show(const EngineStats& now) {
    const auto rate = [](int64_t tokens, int64_t ns) {
      return ns > 0 ? fmt::format("{:.1f}", static_cast<double>(tokens) * 1e9 / static_cast<double>(ns))
                    : std::string("0");
    };
    const auto share = [](int64_t part, int64_t whole) { return whole > 0 ? part * 100 / whole : 0; };
    const int64_t computed = now.computed_tokens - before_.computed_tokens;
    const int64_t generated = now.generated_tokens - before_.generated_tokens;
    if (computed > 0 || generated > 0 || now.running > 0 || now.waiting > 0)
      log_info("status", {{"running", now.running},
                          {"waiting", now.waiting},
                          {"prefill_tps", rate(computed, now.prefill_ns - before_.prefill_ns)},
                          {"decode_tps", rate(generated, now.decode_ns - before_.decode_ns)},
                          {"kv_percent", share(now.pages_total - now.cache.pages_free, now.pages_total)},
                          {"anchors", now.cache.anchors_published},
                          {"reuse_percent", share(now.cache.hit_tokens - before_.cache.hit_tokens,
                                                  now.cache.query_tokens - before_.cache.query_tokens)}});
    before_ = now;
  }

 private:
  EngineStats before_;
};

// Until a signal: then no new work, what runs ends or the time is over, or a second signal cuts.
int drain(const Flags& flags, SignalWaiter& signals, ServiceManager& manager, Server& server, Engine& engine) {
  manager.stopping(flags.integer("drain-delay") + flags.integer("drain-timeout") + kCutNs);
  log_info("drain", {{"in_flight", server.in_flight()}, {"timeout_ms", flags.integer("drain-timeout") / 1'000'000}});
  server.begin_drain();
  // Whoever presses Ctrl-C waits for no load balancer.
  bool cut = signals.last_signal() != SIGINT && signals.wait_for(2, flags.integer("drain-delay"));
  server.stop_accepting();
  const int64_t end_ns = system_clock().now_ns() + flags.integer("drain-timeout");
  while (!cut && server.in_flight() > 0 && system_clock().now_ns() < end_ns) cut = signals.wait_for(2, kDrainPollNs);
  const int64_t left = server.in_flight();
  if (left > 0) {
    log_warning("drain_cut", {{"in_flight", left}, {"second_signal", cut ? 1 : 0}});
    server.cut();
    engine.cancel_all();
    const int64_t told_ns = system_clock().now_ns() + kTellNs;
    while (server.in_flight() > 0 && system_clock().now_ns() < told_ns) signals.wait_for(3, kDrainPollNs);
  }
  server.stop();
  if (left > 0)
    std::fprintf(stderr, "warmpath: expected %lld requests to end while draining, cut them; raise --drain-timeout\n",
                 static_cast<long long>(left));
  return 0;
}

Result<int> serve(const Flags& flags) {
  const int64_t begin_ns = system_clock().now_ns();
  SignalWaiter signals;  // Before any thread that must not take a signal.
  configure_log({.level = flags.on("verbose") ? LogLevel::debug : LogLevel::info,
                 .json = flags.text("log-format") == "json",
                 .file = flags.text("log-file"),
                 .jsonl_file = flags.text("log-jsonl")});
  WP_TRY(model_path(flags));
  WP_TRY(ServerOptions options, server_options(flags));
  const bool keyed = !options.api_keys.empty();
  if (!keyed && options.host != "127.0.0.1" && options.host != "localhost" && options.host != "::1")
    std::fprintf(stderr, "notice: %s can be reached from elsewhere and no --api-key is set\n", options.host.c_str());
  WP_TRY(const auto server, Server::bind(std::move(options)));
  server->run();
  server->set_loading("open", 0);
  ServiceManager manager(ServiceManager::address_from_environment());

  auto session = [&] {
    ProgressBar bar("load");
    const ProgressSink shown = bar.load_sink();
    return open_session(flags, [&](const LoadProgress& at) {
      const double share =
          at.bytes_total > 0 ? static_cast<double>(at.bytes_done) / static_cast<double>(at.bytes_total) : 0;
      server->set_loading(at.phase, 100 * share);
      manager.loading(at.phase, 100 * share);
      shown(at);
    });
  }();
  if (!session.ok()) {
    server->stop();
    return std::move(session).error();
  }
  Engine& engine = *(*session)->engine;
  std::unique_ptr<SlotFiles> slot_files;
  if (flags.set("slot-save-path")) {
    auto opened = SlotFiles::open(engine, flags.text("slot-save-path"), (*session)->origin);
    if (!opened.ok()) {
      server->stop();
      return std::move(opened).error();
    }
    slot_files = std::move(*opened);
  }
  server->ready(make_service(flags, **session, slot_files.get()));
  signals.end_process_on_signal(false);
  manager.ready(server->url());
  print_banner(flags, **session, *server, keyed, static_cast<double>(system_clock().now_ns() - begin_ns) * 1e-9);

  StatusLine status;
  while (!signals.wait_for(1, kStatusNs)) status.show(engine.stats());
  return drain(flags, signals, manager, *server, engine);
}

std::vector<FlagSpec> serve_flags() {
  const auto yes = true;
  return {
      {.name = "host", .fallback = "127.0.0.1", .placeholder = "H", .help = "Address to listen on", .group = "API"},
      {.name = "port",
       .kind = FlagKind::integer,
       .fallback = "8080",
       .placeholder = "N",
       .help = "Port; 0: any free one",
       .group = "API",
       .low = 0,
       .high = 65535},
      {.name = "name",
       .fallback = "",
       .placeholder = "NAME",
       .help = "Model name for clients; unset: the folder's",
       .group = "Model",
       .aliases = {"-a", "--alias", "--served-model-name"}},
      {.name = "api-key",
       .fallback = "",
       .placeholder = "K",
       .help = "Ask clients for this key; a file is safer",
       .group = "Security",
       .secret = true},
      {.name = "api-key-file",
       .fallback = "",
       .placeholder = "F",
       .help = "Keys, one a line, # comments",
       .group = "Security"},
      {.name = "cors-origin",
       .fallback = "",
       .placeholder = "O",
       .help = "Web origins that may call, with commas",
       .group = "Security",
       .advanced = yes},
      {.name = "allowed-host",
       .fallback = "",
       .placeholder = "H",
       .help = "Host names beside the loopback ones, with commas",
       .group = "Security",
       .advanced = yes},
      {.name = "slot-save-path",
       .fallback = "",
       .placeholder = "DIR",
       .help = "Folder of POST /slots/N?action=save and restore; unset: both are refused",
       .group = "Cache"},
      {.name = "cache-domains",
       .fallback = "none",
       .placeholder = "none|key",
       .help = "key: requests under different API keys share no cached prefix",
       .group = "Cache",
       .advanced = yes,
       .choices = {"none", "key"}},
      {.name = "response-store",
       .kind = FlagKind::size,
       .fallback = "64MiB",
       .placeholder = "SIZE",
       .help = "Host memory for answers of /v1/responses that previous_response_id continues; 0: none is kept",
       .group = "API",
       .advanced = yes},
      {.name = "response-store-time",
       .kind = FlagKind::duration,
       .fallback = "24h",
       .placeholder = "T",
       .help = "How long they are kept at most",
       .group = "API",
       .advanced = yes},
      {.name = "strip-volatile",
       .kind = FlagKind::boolean,
       .fallback = "true",
       .help = "Take known per-request lines out of system texts: the cache could find nothing behind them",
       .group = "Cache",
       .advanced = yes},
      {.name = "strict-api",
       .kind = FlagKind::boolean,
       .fallback = "false",
       .help = "Unknown request fields are errors",
       .group = "API",
       .advanced = yes},
      {.name = "strict-model",
       .kind = FlagKind::boolean,
       .fallback = "false",
       .help = "A foreign model name is an error",
       .group = "API",
       .advanced = yes},
      {.name = "call-in-thinking",
       .fallback = "accept",
       .placeholder = "accept|text",
       .help = "A complete tool call inside a thought",
       .group = "API",
       .advanced = yes,
       .choices = {"accept", "text"}},
      {.name = "reasoning-field",
       .fallback = "content",
       .placeholder = "content|both",
       .help = "reasoning_content, or reasoning beside it",
       .group = "API",
       .advanced = yes,
       .choices = {"content", "both"}},
      {.name = "seed",
       .kind = FlagKind::integer,
       .fallback = "",
       .placeholder = "N",
       .help = "Seed of requests that bring none; unset: a fresh one",
       .group = "Sampling defaults",
       .advanced = yes},
      {.name = "drain-delay",
       .kind = FlagKind::duration,
       .fallback = "0s",
       .placeholder = "T",
       .help = "Time between not ready and not accepting, after SIGTERM",
       .group = "Scheduling",
       .advanced = yes},
      {.name = "drain-timeout",
       .kind = FlagKind::duration,
       .fallback = "30s",
       .placeholder = "T",
       .help = "Time for running requests to end, after SIGTERM",
       .group = "Scheduling",
       .advanced = yes},
      {.name = "log-format",
       .fallback = "text",
       .placeholder = "text|json",
       .help = "Form of log lines",
       .group = "Logging",
       .choices = {"text", "json"}},
      {.name = "log-file", .fallback = "", .placeholder = "F", .help = "Log there; unset: stderr", .group = "Logging"},
      {.name = "log-jsonl",
       .fallback = "",
       .placeholder = "F",
       .help = "Log there too, as JSON lines",
       .group = "Logging",
       .advanced = yes},
      {.name = "verbose",
       .kind = FlagKind::boolean,
       .fallback = "false",
       .help = "Debug lines too",
       .group = "Logging",
       .aliases = {"-v"}},
      {.name = "tool-call-parser",
       .kind = FlagKind::ignored_value,
       .placeholder = "X",
       .help = "the template decides",
       .group = "API"},
      {.name = "reasoning-parser",
       .kind = FlagKind::ignored_value,
       .placeholder = "X",
       .help = "the template decides",
       .group = "API"},
      {.name = "jinja", .kind = FlagKind::ignored_switch, .help = "the template is always used", .group = "API"},
  };
}

}  // namespace

Command serve_command() {
  return {.name = "serve",
          .positionals = {{.name = "MODEL", .help = "a model folder"}},
          .summary = "serve a model over HTTP (OpenAI's API)",
          .examples =
              "  warmpath serve models/flash-next-mini\n"
              "  warmpath serve DIR --port 9000 --context-tokens 64k --api-key-file keys.txt\n",
          .flags = joined(serve_flags(), engine_flags()),
          .run = serve};
}

}  // namespace wp::app
