// EngineCore: the engine without its thread. submit() and the orders may come from any thread; step() and what it
// calls belong to one: the engine thread (engine.cpp), or a simulation that drives it under a clock of its own.
//
// A step: obey orders, take new requests, drop cancelled ones, admit (match and lease), let the scheduler decide,
// execute, sample, deliver. A request that begins as a running prompt does waits until that one has computed what they
// share. Where no request waits or runs, a piece of a finished turn is consolidated instead. A
// request is admitted in order of arrival when a slot is free and the cache promises pages for its prompt and all it
// may generate; until then it waits. What was admitted is never preempted.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/channel.h"
#include "engine/consolidator.h"
#include "engine/path_transfer.h"
#include "engine/queue.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/spill.h"
#include "engine/step.h"

namespace wp {

class EngineCore {
 public:
  // `limits` may hold zeros (limits.h). Takes all device memory, and limits.ram_bytes of the
  // host's. `tier` outlives it; null: there is none.
  static Result<std::unique_ptr<EngineCore>> make(const Model& model, Device& device, const EngineLimits& limits,
                                                  Clock& clock, DiskTier* tier = nullptr);
  ~EngineCore();
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  // Any thread.
  Result<std::shared_ptr<EventChannel>> submit(GenerateRequest request);
  void drain() { queue_.drain(); }
  void cancel_all();
  void flush_cache();
  void hold_conversation(const std::string& conversation);
  void consolidate(Consolidation turn);
  std::shared_ptr<PathTransfer> transfer(PathTransferOrder order);
  std::shared_ptr<CacheViewOrder> view_cache(uint64_t domain);
  bool idle() const { return queue_.live() == 0; }
  EngineStats stats() const;
  const EngineLimits& limits() const { return limits_; }
  const ModelInfo& model_info() const { return model_.info(); }
  Doorbell& bell() { return *bell_; }

  // Engine thread. One step; false where nothing could be done until the bell rings.
  bool step();
  void wait();       // Until step() may find something to do.
  void shut_down();  // Ends every request with `cancelled`. Nothing is submitted later.
  // Aborts unless the cache's invariants hold and every slot is free or has one sequence.
  void check() const;
  const PrefixCache& cache() const { return *cache_; }

 private:
  EngineCore(const Model& model, const EngineLimits& limits, Clock& clock);

  // Before the pass.
  bool obey_and_take();
  void show_cache();
  bool drop_cancelled();
  bool use_idle_time();
  bool admit();
  PrefixQuery query_of(const Sequence& sequence) const;
  bool waits_for_prefix(Sequence& sequence);
  int64_t position_to_share(Sequence& other, const Sequence& sequence, int64_t cached) const;
  void expect_branch(Sequence& other, int64_t position);
  bool lease_for(Sequence& sequence);
  int32_t slot_for(const Sequence& sequence) const;
  void count_slots();
  void begin(std::unique_ptr<Sequence> sequence, int32_t slot);
  void log_restore(const Sequence& sequence);
  void view_sequences();

  // The pass, and what follows from it.
  void run_prefill();
  void run_decode();
  void count_step();
  void reserve_captures(Sequence& sequence, int64_t begin, int64_t end);
  std::span<const Capture> captures_of(size_t segment) const;
  void publish_captures(Sequence& sequence, size_t segment, bool numbers_are_good);
  void finish_piece(const Piece& piece, size_t segment);
  bool take_prompt_logprobs(Sequence& sequence, const Piece& piece, size_t segment);
  void take_token(Sequence& sequence, Sampled sampled);
  void note_gap(Sequence& sequence, int64_t now_ns);

  void send_started(Sequence& sequence);
  void send_progress(Sequence& sequence);
  void end(std::unique_ptr<Sequence> sequence, FinishReason reason, std::string error = "");
  void end_for_numbers(Sequence& sequence);
  void end_running(Sequence& sequence, FinishReason reason, std::string error = "");
  void cancel(std::unique_ptr<Sequence> sequence);
  void end_step(int64_t begun_ns);
  void audit_when_idle();

  struct Ended {
    std::shared_ptr<EventChannel> channel;
    TokenEvent event;  // `finished`
  };

  const Model& model_;
  const EngineLimits limits_;
  Clock& clock_;
  std::shared_ptr<Doorbell> bell_;
  RequestQueue queue_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<PrefixCache> cache_;
  std::unique_ptr<RamTier> ram_;  // Null: there is none.
  std::unique_ptr<Spill> spill_;
  std::unique_ptr<Consolidator> consolidator_;
  std::unique_ptr<PathTransfers> transfers_;
  Scheduler scheduler_;
  SamplerScratch sampler_scratch_;

  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::shared_ptr<CacheViewOrder>> views_wanted_;
  std::vector<std::unique_ptr<Sequence>> running_;  // By slot; null where it is free.
  bool admission_blocked_ = false;                  // The head of the queue found no room since a lease last ended.
  int64_t audited_ns_ = 0;

  // Of the step under way; kept for their memory.
  std::vector<Ended> ended_;
  StepPlan plan_;
  std::vector<SequenceView> views_;
  std::vector<StepSegment> segments_;
  std::vector<Capture> captures_;        // Of all segments, in segment order.
  std::vector<int32_t> captures_begin_;  // First of each segment, and the end.

  mutable std::mutex stats_mutex_;
  EngineStats published_;  // Under the mutex; copied from `counts_` at the end of each step.
  EngineStats counts_;     // Engine thread.
};

}  // namespace wp
