// SimulatedSlots: clients of /slots: they save what a slot holds, part by part and as slowly as they like, keep it over
// restarts, give it back whole or damaged, erase, or go away in the middle.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core.h"
#include "known_paths.h"

namespace wp::sim {

class SimulatedSlots {
 public:
  struct Saved {
    uint64_t domain = 0;
    std::vector<TokenId> tokens;
    std::vector<PathPart> parts;
  };
  using Mark = std::function<void(const std::string& name)>;
  SimulatedSlots(Seed seed, KnownPaths& known, Mark mark, Mark wrong)
      : rng_(seed), known_(known), mark_(std::move(mark)), wrong_(std::move(wrong)) {}

  static std::vector<std::string> all_marks();
  void begin(EngineCore& core);              // A new one.
  void after_step(bool to_the_end = false);  // Each takes and gives what it can.
  bool busy() const { return !moving_.empty(); }
  void forget_saved() { saved_.clear(); }  // What was saved is of other numerics.

 private:
  struct Moving {
    std::shared_ptr<PathTransfer> transfer;
    PathTransferOrder::Kind kind;
    Saved path;
    size_t given = 0;
    bool begun = false, damaged = false, finished = false, gone = false;
  };
  void go_on(Moving& moving, bool to_the_end);
  void take(Moving& moving, bool to_the_end);
  void give(Moving& moving);
  void end(Moving& moving);
  void refused(const Moving& moving, const Error& error);

  Rng rng_;
  KnownPaths& known_;
  const Mark mark_, wrong_;
  std::vector<Moving> moving_;
  std::vector<Saved> saved_;  // At most four.
};

}  // namespace wp::sim
