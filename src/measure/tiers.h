// What each tier of the cache is worth: the same conversations without a cache, from the device, from host memory and
// from the disk after a restart, with equal answers. Blocks; the engines it starts have threads of their own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "measure/replay.h"

namespace wp::measure {

// Everything outlives the run.
struct TierParts {
  const Model* model;
  Device* device;
  const Tokenizer* tokenizer;
  const ChatPrompter* prompter;
  std::vector<TokenId> stop_tokens;
  Clock* clock;
  EngineLimits limits;   // Complete. Of ram_bytes, 0: as much as the conversations need.
  DiskTierOptions disk;  // Its folder is written to.
};

struct TierRun {
  std::string name;
  std::vector<TurnResult> turns;  // In the order of the file.
  double wall_s = 0;
};

// Four runs. In each, conversations take turns: one request at a time, turn k of all before turn k + 1 of any, each
// after finished ones were consolidated. The server of the last run is restarted before each round, so that every warm
// turn is the first of its conversation after a restart.
Result<std::vector<TierRun>> run_tiers(const TierParts& parts, const std::vector<Conversation>& conversations,
                                       const std::function<void(int64_t done, int64_t total)>& progress = nullptr);

// A table in Markdown.
std::string tier_table(const std::vector<TierRun>& runs);
// The first difference between the answers of any two runs, or between what a run should have restored and what it did;
// empty: none.
std::string tier_fault(const std::vector<TierRun>& runs);

}  // namespace wp::measure
