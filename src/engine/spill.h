// Spill: the way between the cache's pools and the disk tier. Copies what is published out to it, and what it has back
// in before a request is admitted, as pages and an anchor like those of any request. Optional throughout: what cannot
// be had is computed. Engine thread only.
#pragma once

#include <memory>
#include <span>

#include "cache/prefix_cache.h"
#include "core/clock.h"
#include "engine/channel.h"
#include "engine/sequence.h"
#include "engine/step.h"
#include "store/disk_tier.h"

namespace wp {

class Spill {
 public:
  // All outlive it; no tier: does nothing.
  Spill(DiskTier* tier, PrefixCache& cache, Step& step, Clock& clock, std::shared_ptr<Doorbell> bell)
      : tier_(tier), cache_(cache), step_(step), clock_(clock), bell_(std::move(bell)) {}

  // The anchor was published over these tokens of the lease's sequence: it and the pages below it are copied, unless
  // the tier has them, and written later.
  void published(const Lease& lease, std::span<const TokenId> covered, uint64_t domain, AnchorId anchor);
  // Whether a request in the queue must wait for what is being read for it. Begins the read at the first call, and puts
  // what was read into the cache at the last. `query` is the request's.
  bool waits(Sequence& sequence, const PrefixQuery& query);
  // While a read is under way the engine thread must look again by itself, should the disk never answer.
  bool reading() const { return reading_ > 0; }
  void forget(Sequence& sequence);  // The request leaves the queue.
  DiskTierStats tier_stats() const { return tier_ ? tier_->stats() : DiskTierStats{}; }  // Any thread.
  int64_t restored() const { return restored_; }

 private:
  void restore(const DiskLoad& load, const PrefixQuery& query, Sequence& sequence);

  DiskTier* tier_;
  PrefixCache& cache_;
  Step& step_;
  Clock& clock_;
  std::shared_ptr<Doorbell> bell_;
  int64_t reading_ = 0;
  int64_t restored_ = 0;
};

}  // namespace wp
