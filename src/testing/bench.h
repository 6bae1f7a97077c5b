// What the benchmark programs share: the smoke switch. With --smoke every benchmark runs once at a small size, so that
// none stops building or running. Bench programs only.
#pragma once

#include <cstdint>
#include <string_view>

namespace wp::testing {

bool smoke();
void set_smoke(bool on);
// For programs with a main() of their own: whether `argument` is `name` (as "--rounds=") and a number, which is then in
// `to`.
bool read_number(std::string_view argument, std::string_view name, int64_t* to);

}  // namespace wp::testing
