// main() of every bench program: Google Benchmark, with --smoke for one tiny run of each.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "testing/bench.h"

int main(int argc, char** argv) {
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--smoke") == 0) wp::testing::set_smoke(true);
    else rest.push_back(argv[i]);
  }
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
