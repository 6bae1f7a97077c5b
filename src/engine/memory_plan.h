// The memory that an engine takes, from its limits and the model's record sizes: a formula, and what is free to hold
// it. Any thread.
#pragma once

#include "engine/engine.h"

namespace wp {

struct MemoryPlan {
  int64_t pages_bytes = 0, anchors_bytes = 0, slots_bytes = 0, logits_bytes = 0;
  int64_t ram_bytes = 0;  // The tier's behind the device, of the host: not in the total.
  int64_t total_bytes() const { return pages_bytes + anchors_bytes + slots_bytes + logits_bytes; }
};

// Limits must be complete (limits.h). Weights and scratch are taken before and are not in it.
MemoryPlan memory_plan(const ModelInfo& info, const EngineLimits& limits);

// Pages that fit into `budget_bytes` beside the rest of the plan, at most 2^31 - 1; 0 if not even the rest does.
int64_t pages_within(const ModelInfo& info, const EngineLimits& limits, int64_t budget_bytes);

// What this process may still take: the least of MemAvailable and the room below its control groups' limits; a
// negative number where none is known.
int64_t available_memory_bytes();
// The same from given files, for tests: `root` stands for /.
int64_t available_memory_bytes_below(const std::string& root);

// The same on this device: measured (Device::probe_memory) where it has memory of its own.
int64_t available_memory_bytes(Device& device);

// Refused where the plan exceeds what is available less a reserve for the host of 3 %: need, have, what to lower.
Result<void> check_fits(const MemoryPlan& plan, int64_t available_bytes);
// The same of the tier in host memory, beside the pools where they lie there too.
Result<void> check_ram_fits(const MemoryPlan& plan, bool pools_are_the_hosts, int64_t available_bytes);

}  // namespace wp
