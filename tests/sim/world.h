// World: the real EngineCore, PrefixCache and tiers over the fake model, driven by random clients under a virtual
// clock. One seed decides everything: limits, speeds, arrivals, extensions, branches, repeats, domains, pins, holds,
// cancels, slow readers, shortage, slots saved and restored, a disk that fails and stands still, restarts and kills.
// After each step all invariants are checked; every answer is compared with the pure function of its prompt, and what
// it restored with what anybody has brought into its domain.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/hash.h"
#include "disk.h"
#include "engine/core.h"
#include "known_paths.h"
#include "slots.h"
#include "testing/fake_answer.h"
#include "testing/fake_clock.h"
#include "testing/fake_model.h"

namespace wp::sim {

// What a broken cache would do: negative controls, as testing::Fault are of the model.
enum class Sabotage : uint8_t {
  none,
  evict_a_read_path,  // The pages of a path that a request reads are given to others.
  share_domains,      // Every request is of the same domain.
  lying_disk          // Gives other bytes than it was given, under a good checksum.
};

constexpr TokenId kEndToken = 1, kPoisonToken = 63;
constexpr int64_t kContext = 1024;

struct WorldOptions {
  testing::Fault fault = testing::Fault::none;
  Sabotage sabotage = Sabotage::none;
  bool cache = true;
  bool scarce_anchors = false;  // The fewest allowed, and passes that hold all captures of several prompts.
  bool check = true;            // Else the model alone judges.
};

class World {
 public:
  explicit World(Seed seed, const WorldOptions& options = {});

  // `operations` random ones, then everybody reads to the end. Stops at the first problem.
  void run(int64_t operations);

  const std::string& problem() const { return problem_; }  // Empty: all went well.
  uint64_t trace() const { return trace_; }                // Of all events and their times.
  EngineStats stats() const { return core_->stats(); }
  int64_t sabotaged() const { return sabotaged_; }
  // How often something happened, by the names of kMarks.
  const std::map<std::string, int64_t>& marks() const { return marks_; }
  static std::vector<std::string> all_marks();

 private:
  struct Client {
    GenerateRequest request;
    testing::FakeAnswer expected;
    std::shared_ptr<EventChannel> channel;
    int reading_percent = 100;
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    bool started = false, finished = false, cancelled = false, repeat = false;
  };

  void operate();
  void start();    // A new life, over the disk of the one before.
  void restart();  // Ends one and starts the next.
  void arrive(GenerateRequest request);
  void consolidate();
  GenerateRequest invent();
  std::vector<TokenId> invent_prompt(GenerateRequest& request);
  void invent_captures(GenerateRequest& request, int64_t stem);
  void invent_sampling(GenerateRequest& request);
  bool step();
  bool sabotage();
  void check_step();
  void read(Client& client, bool to_the_end);
  void see(Client& client, const TokenEvent& event);
  void see_finish(Client& client, const TokenEvent& event);
  void leave_one();
  void finish_all();
  void cut_off();
  void check_totals();
  void mark(const std::string& name) { ++marks_[name]; }
  void mark_stats();
  void mark_cache(const CacheStats& cache);
  void mark_tiers(const EngineStats& stats);
  void wrong(const std::string& what);
  TokenId token() { return static_cast<TokenId>(rng_.between(2, 62)); }
  std::vector<TokenId> tokens(int64_t count);

  const WorldOptions options_;
  Rng rng_;
  testing::FakeClock clock_;
  EngineLimits limits_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<testing::FakeModel> model_;
  KnownPaths known_;  // Of all lives whose tiers this one may read.
  uint64_t numerics_ = 1, next_salt_ = 100;
  std::unique_ptr<SimulatedDisk> disk_;  // Null: this world has none.
  std::unique_ptr<EngineCore> core_;
  std::unique_ptr<SimulatedSlots> slots_;
  std::vector<std::vector<TokenId>> stems_;
  std::vector<GenerateRequest> past_;  // Prompts to extend, branch from and repeat; bounded.
  std::vector<Client> clients_;
  int64_t submitted_ = 0, operations_ = 0, arrivals_ = 0, sabotaged_ = 0;
  std::map<std::string, int64_t> marks_;
  std::string problem_;
  uint64_t trace_ = 0;
};

}  // namespace wp::sim
