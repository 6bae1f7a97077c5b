// main() of every test program: GoogleTest, with --seed=N for property tests and --runs=N for those that can go on for
// long.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "testing/seeds.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seed=", 7) == 0) wp::testing::set_seed(std::strtoull(argv[i] + 7, nullptr, 10));
    if (std::strncmp(argv[i], "--runs=", 7) == 0) wp::testing::set_runs(std::strtoll(argv[i] + 7, nullptr, 10));
  }
  return RUN_ALL_TESTS();
}
