// What the benchmark programs share: the smoke switch. With --smoke every benchmark runs once at a small size, so that
// none stops building or running. Bench programs only.
#pragma once

namespace wp::testing {

bool smoke();
void set_smoke(bool on);

}  // namespace wp::testing
