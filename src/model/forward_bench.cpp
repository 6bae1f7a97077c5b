// One pass of the bundled model on one backend, kernel by kernel: prefill of a long prompt and decode steps at a
// context. Each launch counts with its least time over the repetitions, so that a busy machine shows less. The whole
// pass is timed apart: on a GPU a recorded launch is waited for.
//   model_bench [--smoke] [--prefill=4096] [--context=1000] [--threads=N] [--repeat=5] [--model=DIR]
//               [--device=cpu]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "core/rng.h"
#include "testing/bench.h"
#include "testing/model_run.h"

namespace wp {
namespace {

using testing::ModelRun;
using testing::RunningSequence;

struct Options {
  DeviceKind device = DeviceKind::cpu;
  std::string model = std::string(WP_SOURCE_DIR) + "/models/flash-next-mini";
  int64_t prefill = 4096, context = 1000, threads = 0, repeat = 5, piece = 4096;
};

std::vector<TokenId> random_tokens(int64_t count, int64_t vocabulary) {
  Rng rng(7);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng.between(10, vocabulary - 1));
  return tokens;
}

// The least time of each launch, by its place in the pass.
class Breakdown {
 public:
  void add(const std::vector<Launch>& launches, double seconds) {
    if (least_.empty()) least_ = launches;
    WP_ASSERT(least_.size() == launches.size());
    for (size_t i = 0; i < launches.size(); ++i) least_[i].seconds = std::min(least_[i].seconds, launches[i].seconds);
    whole_ = whole_ > 0 ? std::min(whole_, seconds) : seconds;
  }

  void print(const char* title, int64_t tokens) const {
    std::map<std::string_view, std::pair<int64_t, double>> ops;
    double sum = 0;
    for (const Launch& launch : least_) {
      ops[launch.op].first += 1;
      ops[launch.op].second += launch.seconds;
      sum += launch.seconds;
    }
    std::vector<std::pair<std::string_view, std::pair<int64_t, double>>> rows(ops.begin(), ops.end());
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.second > b.second.second; });
    std::printf("%s: best pass %.3f ms = %.1f tok/s; sum of least launches %.3f ms = %.1f tok/s\n", title, whole_ * 1e3,
                static_cast<double>(tokens) / whole_, sum * 1e3, static_cast<double>(tokens) / sum);
    for (const auto& [op, row] : rows)
      std::printf("  %-18.*s %4lld launches %10.1f us %6.1f %%\n", static_cast<int>(op.size()), op.data(),
                  static_cast<long long>(row.first), row.second * 1e6, 100 * row.second / sum);
  }

 private:
  std::vector<Launch> least_;
  double whole_ = 0;
};

template <class Step>
void timed(ModelRun& run, Recorder& recorder, Breakdown& breakdown, const Step& step) {
  recorder.clear();
  const auto begin = std::chrono::steady_clock::now();
  step();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  run.stream().record(&recorder);
  step();
  run.stream().record(nullptr);
  breakdown.add(recorder.launches(), taken.count());
}

int run(const Options& options) {
  const int64_t longest = std::max(options.prefill, options.context + options.repeat * 16 + 64);
  auto made = ModelRun::make(
      options.model, options.device, static_cast<int>(options.threads),
      {.rows_max = std::min(longest, options.piece), .context_max = longest, .sequences = 1, .anchors = 1});
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.error().message.c_str());
    return 1;
  }
  ModelRun& model = **made;
  Recorder recorder(1 << 16);
  const std::vector<TokenId> tokens = random_tokens(longest, model.info().vocabulary);

  Breakdown prefill;
  for (int64_t i = 0; i < options.repeat; ++i) {
    timed(model, recorder, prefill, [&] {
      RunningSequence sequence = model.start(0);
      for (int64_t at = 0; at < options.prefill; at += options.piece) {
        const int64_t end = std::min(options.prefill, at + options.piece);
        model.pass(Phase::prefill, {{&sequence, {tokens.begin() + at, tokens.begin() + end}}},
                   end == options.prefill ? 1 : 0);
      }
    });
  }
  prefill.print("prefill", options.prefill);

  Breakdown decode;
  RunningSequence sequence = model.start(0);
  for (int64_t at = 0; at < options.context; at += options.piece)
    model.pass(Phase::prefill,
               {{&sequence, {tokens.begin() + at, tokens.begin() + std::min(options.context, at + options.piece)}}}, 0);
  for (int64_t i = 0; i < options.repeat * 8; ++i)
    timed(model, recorder, decode, [&] { model.pass(Phase::decode, {{&sequence, {tokens[static_cast<size_t>(i)]}}}); });
  decode.print("decode", 1);
  return 0;
}

}  // namespace
}  // namespace wp

int main(int argc, char** argv) {
  wp::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const auto number = [&](std::string_view name, int64_t& to) { return wp::testing::read_number(flag, name, &to); };
    if (flag.starts_with("--benchmark_")) continue;  // Of the other bench programs; this one times whole passes.
    if (flag == "--smoke") options.prefill = 128, options.context = 64, options.repeat = 1;
    else if (flag == "--device=cuda") options.device = wp::DeviceKind::cuda;
    else if (flag.starts_with("--model=")) options.model = flag.substr(8);
    else if (!number("--prefill=", options.prefill) && !number("--context=", options.context) &&
             !number("--threads=", options.threads) && !number("--repeat=", options.repeat) &&
             !number("--piece=", options.piece)) {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      return 2;
    }
  }
  return wp::run(options);
}
