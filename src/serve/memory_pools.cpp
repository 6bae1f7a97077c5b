#include "serve/memory_pools.h"

#include <algorithm>

#include "engine/memory_plan.h"

namespace wp {

std::vector<PoolUse> memory_pools(const Engine& engine, const EngineStats& stats) {
  const ModelInfo& info = engine.model_info();
  const MemoryPlan plan = memory_plan(info, engine.limits());
  const CacheStats& cache = stats.cache;
  // Activations and logits: what the device gave beside the pools.
  const int64_t scratch =
      std::max<int64_t>(0, stats.device_bytes - plan.pages_bytes - plan.anchors_bytes - plan.slots_bytes);
  std::vector<PoolUse> pools = {
      {"weights", info.weight_bytes, info.weight_bytes},
      {"pages", plan.pages_bytes, (cache.pages_cached + cache.pages_leased) * info.page_bytes},
      {"anchors", plan.anchors_bytes, (cache.anchors_published + cache.anchors_pending) * info.anchor_bytes},
      {"sequences", plan.slots_bytes, stats.running * info.slot_bytes},
      {"scratch", scratch, scratch}};
  if (plan.ram_bytes > 0) pools.push_back({"ram", plan.ram_bytes, stats.ram.bytes});
  return pools;
}

}  // namespace wp
