#include "measure/profile.h"

#include <algorithm>

#include "core/clock.h"
#include "measure/model_runner.h"
#include "measure/statistics.h"

namespace wp::measure {
namespace {

constexpr size_t kLaunchesMax = 1 << 18;
constexpr Seed kTokenSeed = 11;

double seconds_of(const std::function<void()>& work) {
  const int64_t begin_ns = system_clock().now_ns();
  work();
  return static_cast<double>(system_clock().now_ns() - begin_ns) * 1e-9;
}

// In the order of first launches.
std::vector<ProfileRow> rows_of(const std::vector<Launch>& launches, double runs) {
  std::vector<ProfileRow> rows;
  for (const Launch& launch : launches) {
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const ProfileRow& r) { return r.op == launch.op && r.place == launch.place; });
    if (row == rows.end()) row = rows.insert(rows.end(), {.place = launch.place, .op = launch.op});
    ++row->calls;
    row->seconds += launch.seconds / runs;
    row->flops += launch.cost.flops / runs;
    row->bytes += launch.cost.bytes / runs;
  }
  for (ProfileRow& row : rows) row.calls = static_cast<int64_t>(static_cast<double>(row.calls) / runs);
  return rows;
}

ProfilePhase phase_of(std::string name, Recorder& recorder, double runs, double rows) {
  recorder.resolve();
  const auto& launches = recorder.launches();
  ProfilePhase phase{.name = std::move(name), .rows = rows, .operations = rows_of(launches, runs)};
  for (const ProfileRow& row : phase.operations) phase.operations_seconds += row.seconds;
  std::sort(phase.operations.begin(), phase.operations.end(),
            [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
  return phase;
}

double span_of(Recorder& recorder) {
  recorder.resolve();
  const Launch &first = recorder.launches().front(), &last = recorder.launches().back();
  return last.begin_seconds + last.seconds - first.begin_seconds;
}

std::string share(double value, double of) { return of > 0 ? fmt::format("{:.1f} %", 100 * value / of) : ""; }

}  // namespace

Result<double> measure_device_copy(Device& device) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  WP_TRY(const Buffer from, Buffer::make(device, kBytes, "copy measurement", Memory::device));
  WP_TRY(const Buffer to, Buffer::make(device, kBytes, "copy measurement", Memory::device));
  std::vector<double> rates;
  for (int i = 0; i < 9; ++i)
    rates.push_back(2.0 * kBytes / seconds_of([&] { device.copy(to.data(), from.data(), kBytes); }));
  return median(rates);
}

Result<std::vector<ProfilePhase>> run_profile(const Model& model, Device& device, const ProfileOptions& options) {
  WP_TRY(auto runner,
         ModelRunner::make(model, device,
                           {.tokens_max = options.prompt + 2 * options.steps + 2 * kPageRows,
                            .rows_max = std::max<int64_t>(1, std::min(options.prompt, options.pass_tokens)),
                            .logit_rows_max = 1}));
  const auto tokens = random_tokens(options.prompt + 1, model.info().vocabulary, kTokenSeed);
  const std::span<const TokenId> prompt = std::span(tokens).first(static_cast<size_t>(options.prompt));
  Recorder recorder(kLaunchesMax, Recorder::Timing::events);
  const auto steps = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) runner->run_last(Phase::decode, {&tokens[prompt.size()], 1});
  };

  runner->prefill(prompt, options.pass_tokens);  // Kernels are loaded.
  runner->restart();
  const double plain_prefill = seconds_of([&] { runner->prefill(prompt, options.pass_tokens); });
  runner->restart();
  runner->stream().record(&recorder);
  runner->prefill(prompt, options.pass_tokens);
  std::vector<ProfilePhase> phases;
  phases.push_back(phase_of(cat("prefill ", options.prompt), recorder, 1, static_cast<double>(options.prompt)));
  phases[0].span_seconds = span_of(recorder);
  phases[0].plain_seconds = plain_prefill;
  if (options.steps == 0) return phases;

  runner->stream().record(nullptr);
  steps(3);
  const double plain_step = seconds_of([&] { steps(options.steps); }) / static_cast<double>(options.steps);
  runner->stream().record(&recorder);
  recorder.clear();
  steps(1);
  const double span = span_of(recorder);
  recorder.clear();
  steps(options.steps);
  phases.push_back(phase_of(cat("decode @ ", options.prompt), recorder, static_cast<double>(options.steps), 1));
  phases[1].span_seconds = span;
  phases[1].plain_seconds = plain_step;
  runner->stream().record(nullptr);
  return phases;
}

std::string profile_table(const std::vector<ProfilePhase>& phases, const Ceilings& ceilings) {
  std::string out;
  for (const ProfilePhase& phase : phases) {
    out += fmt::format(
        "{}: {:.3f} ms, {:.1f} tok/s; recorded {:.3f} ms, of which operations {:.3f} ms, gaps {:.3f} ms\n\n",
        phase.name, 1e3 * phase.plain_seconds, phase.rows / phase.plain_seconds, 1e3 * phase.span_seconds,
        1e3 * phase.operations_seconds, 1e3 * (phase.span_seconds - phase.operations_seconds));
    out += fmt::format("| {:<18} | {:<17} | {:>6} | {:>10} | {:>7} | {:>8} | {:>8} | {:>8} | {:>8} |\n", "part",
                       "operation", "calls", "ms", "share", "TFLOP/s", "of peak", "GB/s", "of copy");
    out += fmt::format("| {:-<18} | {:-<17} | {:->5}: | {:->9}: | {:->6}: | {:->7}: | {:->7}: | {:->7}: | {:->7}: |\n",
                       "", "", "", "", "", "", "", "", "");
    for (const ProfileRow& row : phase.operations) {
      const double flops = row.flops / row.seconds, bytes = row.bytes / row.seconds;
      out += fmt::format(
          "| {:<18} | {:<17} | {:>6} | {:>10.3f} | {:>7} | {:>8} | {:>8} | {:>8} | {:>8} |\n", row.place, row.op,
          row.calls, 1e3 * row.seconds, share(row.seconds, phase.operations_seconds),
          row.flops > 0 ? fmt::format("{:.2f}", flops * 1e-12) : "", row.flops > 0 ? share(flops, ceilings.flops) : "",
          row.bytes > 0 ? fmt::format("{:.1f}", bytes * 1e-9) : "", row.bytes > 0 ? share(bytes, ceilings.bytes) : "");
    }
    out += "\n";
  }
  out += fmt::format(
      "ceilings: {} TFLOP/s, copy {:.1f} GB/s; bytes that depend on data (keys, table rows) are not in\n",
      ceilings.flops > 0 ? fmt::format("{:.1f}", ceilings.flops * 1e-12) : "unknown", ceilings.bytes * 1e-9);
  return out;
}

Json profile_json(const std::vector<ProfilePhase>& phases, const Ceilings& ceilings) {
  Json list = Json::array();
  for (const ProfilePhase& phase : phases) {
    Json operations = Json::array();
    for (const ProfileRow& row : phase.operations)
      operations.push_back({{"part", row.place},
                            {"operation", row.op},
                            {"calls", row.calls},
                            {"seconds", row.seconds},
                            {"flops", row.flops},
                            {"bytes", row.bytes}});
    list.push_back({{"name", phase.name},
                    {"rows", phase.rows},
                    {"seconds", phase.plain_seconds},
                    {"recorded_seconds", phase.span_seconds},
                    {"operations_seconds", phase.operations_seconds},
                    {"operations", std::move(operations)}});
  }
  return {{"flops_ceiling", ceilings.flops}, {"bytes_ceiling", ceilings.bytes}, {"phases", std::move(list)}};
}

Result<std::string> launch_list(const Model& model, int64_t rows) {
  const auto device = Device::make_dry(DeviceKind::cuda);
  WP_TRY(auto runner,
         ModelRunner::make(model, *device, {.tokens_max = rows + 1, .rows_max = rows, .logit_rows_max = 1}));
  const std::vector<TokenId> tokens(static_cast<size_t>(rows), 0);
  Recorder recorder(kLaunchesMax);
  runner->stream().record(&recorder);
  std::string out;
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    recorder.clear();
    runner->run_last(phase, std::span(tokens).first(phase == Phase::prefill ? tokens.size() : 1));
    for (const ProfileRow& row : rows_of(recorder.launches(), 1))
      out += cat(phase == Phase::prefill ? "prefill " : "decode ", row.place, " ", row.op, " ", row.calls, "\n");
  }
  return out;
}

}  // namespace wp::measure
