// What this server's memory is taken by, for /status and /metrics. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"

namespace wp {

struct PoolUse {
  const char* name;  // "weights", "pages", "anchors", "sequences", "scratch", "ram"
  int64_t bytes = 0, used_bytes = 0;
};

// All but `ram`, the tier of --cache-ram, are the device's. `stats` are of the same engine.
std::vector<PoolUse> memory_pools(const Engine& engine, const EngineStats& stats);

}  // namespace wp
