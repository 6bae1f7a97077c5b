// `warmpath eval equality`: the same requests with the cache and without it, compared bit by bit, over random histories
// (spec/prefix_cache.md 19). Every case starts from an empty cache and has a seed of its own, so that one can be
// repeated alone. Where each warm request resumes is predicted from the requests before it, by RestoreOracle, which
// knows nothing of the cache's code, and so is the tier that it comes from: a battery in which nothing is restored
// would prove nothing. Where a tier lies behind the device, the device is emptied between a case's prompts.
//
// One thread drives both engines step by step; nothing is timed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/rng.h"
#include "device/device.h"
#include "engine/engine.h"
#include "model/model.h"

namespace wp::measure {

enum class History : uint8_t {
  fresh,
  repeat,
  extend,       // The prompt, and so many tokens behind it.
  answer,       // The prompt, its answer, and so many tokens: the next turn.
  branch,       // Cut somewhere and gone on with, twice.
  edit,         // One token in the middle is another, twice.
  delete_turn,  // A turn later, the same prompt with another turn.
  interleave,   // Four conversations with one beginning, turn by turn.
  evict_all,
  poisoned  // A conversation full of one marker token, then prompts that share only its beginning.
};
constexpr int kHistories = 10;
const char* name(History history);

// What lies behind the device's pools.
enum class Behind : uint8_t { nothing, ram, disk, ram_and_disk, restart };
constexpr int kBehinds = 5;
const char* name(Behind behind);

struct EqualityOptions {
  int64_t cases = 500;
  Seed seed = 1;
  int64_t first_case = 0;  // Cases first_case .. first_case + cases - 1: one alone repeats it.
  int64_t prompt_max = 12'000;
  FileLayer* files = nullptr;  // Of the disk tiers, for tests; null: the operating system's.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct EqualityResult {
  int64_t cases = 0, requests = 0, tokens_compared = 0, prompt_tokens = 0;
  int64_t warm_requests = 0;  // Restored above 0, all where the oracle said.
  int64_t restored_tokens = 0;
  int64_t cancelled = 0;  // Requests broken off on purpose.
  int64_t batched_cases = 0;
  int64_t prompt_longest = 0;
  std::array<int64_t, kHistories> by_history{};
  std::array<int64_t, kBehinds> by_behind{};
  std::array<int64_t, kTiers> warm_by_tier{};  // Of the warm requests, where their anchors came from.
  std::string difference;                      // The first; empty: none.
  bool passed() const { return difference.empty(); }
};

// Stops at the first difference.
Result<EqualityResult> run_equality(const Model& model, Device& device, const EqualityOptions& options);

Json equality_json(const EqualityResult& result);
std::string equality_table(const EqualityResult& result);

// Where a request must resume, by the rules of spec/prefix_cache.md 6 to 8 for a cache with room for everything.
class RestoreOracle {
 public:
  struct Point {
    int64_t resumes = 0;
    bool from_tier = false;         // That state is not on the device.
    std::vector<int64_t> captures;  // Where states are left behind, ascending.
  };
  // `system` is the end of what conversations share; 0: nothing.
  Point predict(const std::vector<TokenId>& prompt, int64_t system) const;
  // The prompt was computed up to here.
  void computed(const std::vector<TokenId>& prompt, const Point& point, int64_t position);
  // All is evicted from the device; a tier still has it, or nothing does.
  void evict(bool tier);

 private:
  std::vector<std::vector<TokenId>> known_;  // Paths that end in a state on the device,
  std::vector<std::vector<TokenId>> kept_;   // and in a tier.
};

// The tail: the last grid position below the prompt's end.
int64_t tail_of(int64_t prompt);

}  // namespace wp::measure
