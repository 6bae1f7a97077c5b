// Seeds of property tests: one fixed, one fresh for each run, or the one given with --seed=N. A failure prints the
// command that repeats it. Test programs only.
#pragma once

#include <string>
#include <vector>

#include "core/rng.h"

namespace wp::testing {

std::vector<Seed> seeds_of_this_run();
void set_seed(Seed seed);  // --seed=N of the test program.
// How often a test that can go on for long does what it does: `usual`, or as the test program's --runs=N says.
int64_t runs_of_this_run(int64_t usual);
void set_runs(int64_t runs);
std::string repeat_hint(Seed seed);  // "repeat with --seed=N", for SCOPED_TRACE.

// Branches a property or fuzzer must have reached; one that nobody exercised is not tested.
class Marks {
 public:
  explicit Marks(std::vector<std::string> names);
  void reach(const std::string& name);
  bool reached(const std::string& name) const;
  bool all_reached() const { return missing().empty(); }
  std::string missing() const;

 private:
  std::vector<std::pair<std::string, int64_t>> marks_;
};

// Where the sources lie, for testdata/ and models/; and ../shared/oracle/fixtures, "" where it does not exist.
std::string source_directory();
std::string oracle_directory();

}  // namespace wp::testing
