// Spill: the way between the cache's pools and the tiers behind them, host memory first, then the disk. Copies what is
// published out to them, and what they have back in before a request is admitted, as pages and an anchor like those of
// any request. Optional throughout: what cannot be had is computed. Engine thread only.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "cache/prefix_cache.h"
#include "core/clock.h"
#include "engine/channel.h"
#include "engine/sequence.h"
#include "engine/step.h"
#include "store/disk_tier.h"
#include "store/ram_tier.h"

namespace wp {

class Spill {
 public:
  // All outlive it. A tier that is null is passed over.
  Spill(RamTier* ram, DiskTier* disk, PrefixCache& cache, Step& step, Clock& clock, std::shared_ptr<Doorbell> bell)
      : ram_(ram), disk_(disk), cache_(cache), step_(step), clock_(clock), bell_(std::move(bell)) {}

  // The anchor was published over these tokens of the lease's sequence: it and the pages below it are copied, unless
  // a tier has them; to the disk they are written later.
  void published(const Lease& lease, std::span<const TokenId> covered, uint64_t domain, AnchorId anchor);
  // Whether a request in the queue must wait for what is being read for it. The first call restores what host memory
  // has and begins to read what the disk has beyond that; the last puts it into the cache. `query` is the request's.
  bool waits(Sequence& sequence, const PrefixQuery& query);
  // While a read is under way the engine thread must look again by itself, should the disk never answer.
  bool reading() const { return reading_ > 0; }
  void forget(Sequence& sequence);  // The request leaves the queue.
  void resumed(
      Sequence& sequence);  // It was admitted: its statistics say what the tiers did, the tiers that it was used.
  DiskTierStats disk_stats() const { return disk_ ? disk_->stats() : DiskTierStats{}; }  // Any thread.
  void count(EngineStats& stats) const;

 private:
  using Fill = std::function<bool(const Lease& lease, AnchorId anchor)>;
  enum class Outcome : uint8_t { restored, no_room, damaged };
  Outcome restore(const PrefixQuery& query, int64_t begin, int64_t end, CaptureClass capture_class, const Fill& fill);
  void keep_in_ram(const Lease& lease, std::span<const TokenId> covered, uint64_t domain, AnchorId anchor);
  void keep_on_disk(const Lease& lease, std::span<const TokenId> covered, uint64_t domain, AnchorId anchor);
  void from_ram(Sequence& sequence, const PrefixQuery& query);
  void begin_reading(Sequence& sequence, const PrefixQuery& query);
  void from_disk(Sequence& sequence, const PrefixQuery& query);
  static void failed(Sequence& sequence, Tier tier, int64_t position);

  RamTier* ram_;
  DiskTier* disk_;
  PrefixCache& cache_;
  Step& step_;
  Clock& clock_;
  std::shared_ptr<Doorbell> bell_;
  int64_t reading_ = 0;
  int64_t restored_ram_ = 0, restored_disk_ = 0;
};

}  // namespace wp
