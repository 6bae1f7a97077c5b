// What the cache costs where it never helps: prompts that never repeat, on the bundled model and the cpu backend, with
// the cache on and off in turns in one process, so that a busy machine slows both. Processor time is shown beside wall
// time, as it knows less of neighbours. Limit: 2 %.
//   measure_bench [--smoke] [--rounds=N] [--prompt=N] [--threads=N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>

#include "core/log.h"
#include "core/rng.h"
#include "engine/engine.h"
#include "measure/statistics.h"
#include "testing/bench.h"

namespace wp {
namespace {

struct Options {
  int64_t rounds = 40, prompt = 2048, threads = 0;
};

double processor_seconds() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) * 1e-9;
}

struct Cost {
  double wall_s = 0, processor_s = 0;
};

// To the first token of a prompt that nobody has seen, with S and T captures as a chat asks for them.
Cost time_prompt(Engine& engine, int64_t tokens_count, Rng& rng, double* check) {
  GenerateRequest request{.id = "cost", .max_tokens = 1};
  for (int64_t i = 0; i < tokens_count; ++i) request.tokens.push_back(static_cast<TokenId>(rng.between(10, 8000)));
  const int64_t tail = (tokens_count - 1) / kPageTokens * kPageTokens;
  request.cache.captures = {{std::min<int64_t>(512, tail), CaptureClass::system}, {tail, CaptureClass::tail}};
  const int64_t begin_ns = system_clock().now_ns();
  const double begin_s = processor_seconds();
  TokenStream stream = engine.submit(std::move(request)).value();
  while (const auto event = stream.next())
    if (event->kind == TokenEvent::Kind::finished) *check += static_cast<double>(event->stats.cached_tokens);
  return {static_cast<double>(system_clock().now_ns() - begin_ns) * 1e-9, processor_seconds() - begin_s};
}

void print(const char* name, const std::vector<Cost>& on, const std::vector<Cost>& off, double Cost::*time) {
  std::vector<double> on_s, off_s, ratios;
  for (size_t i = 0; i < on.size(); ++i) {
    on_s.push_back(on[i].*time);
    off_s.push_back(off[i].*time);
    ratios.push_back(on_s.back() / off_s.back());
  }
  std::printf("%-9s  cache on %.2f ms, off %.2f ms (medians); on / off, median of pairs: %.4f  (limit 1.02)\n", name,
              measure::median(on_s) * 1e3, measure::median(off_s) * 1e3, measure::median(ratios));
}

int run(const Options& options) {
  configure_log({.level = LogLevel::error});
  const auto device = Device::make(DeviceKind::cpu, static_cast<int>(options.threads)).value();
  const auto model = load_model(std::string(WP_SOURCE_DIR) + "/models/flash-next-mini", *device).value();
  const EngineLimits limits{.context_tokens = options.prompt + 64, .sequences = 4, .anchors = 12};
  EngineLimits without = limits;
  without.cache = false;
  const auto on = Engine::make(*model, *device, limits, system_clock()).value();
  const auto off = Engine::make(*model, *device, without, system_clock()).value();
  Rng rng(11);
  double restored = 0;
  std::vector<Cost> on_costs, off_costs;
  for (int64_t round = -1; round < options.rounds; ++round) {  // The first warms up.
    const bool first = round % 2 == 0;
    const Cost one = time_prompt(first ? *on : *off, options.prompt, rng, &restored);
    const Cost other = time_prompt(first ? *off : *on, options.prompt, rng, &restored);
    if (round < 0) continue;
    on_costs.push_back(first ? one : other);
    off_costs.push_back(first ? other : one);
  }
  std::printf("prompts of %lld tokens that never repeat, %zu pairs; restored %.0f tokens\n",
              static_cast<long long>(options.prompt), on_costs.size(), restored);
  print("wall", on_costs, off_costs, &Cost::wall_s);
  print("processor", on_costs, off_costs, &Cost::processor_s);
  return 0;
}

}  // namespace
}  // namespace wp

int main(int argc, char** argv) {
  wp::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    wp::testing::read_number(argument, "--rounds=", &options.rounds);
    wp::testing::read_number(argument, "--prompt=", &options.prompt);
    wp::testing::read_number(argument, "--threads=", &options.threads);
    if (argument == "--smoke") wp::testing::set_smoke(true);
  }
  if (wp::testing::smoke()) options = {.rounds = 2, .prompt = 300, .threads = 1};
  return wp::run(options);
}
