// A conversation's path on its way out of the pools or into them, part by part, without stopping the engine: a part or
// two is copied in each step, and a full or empty pipe waits. PathTransfer is what both sides share: a connection
// thread that reads or writes a file, and the engine thread. PathTransfers is the engine's side, and its alone.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/channel.h"
#include "engine/spill.h"
#include "engine/step.h"

namespace wp {

struct PathPart {
  PartKind kind = PartKind::page;
  int64_t end = 0;
  CaptureClass capture_class = CaptureClass::tail;
  std::vector<std::byte> bytes;
};

struct PathTransferOrder {
  enum class Kind : uint8_t { send, receive, erase };  // From the pools, to them, or out of them for good.
  Kind kind = Kind::send;
  int32_t slot = 0;
  std::optional<uint64_t> domain;  // The path must be of this one; unset: of any. receive: it is of this one.
  std::vector<TokenId> tokens;     // receive: the whole path.
};

class PathTransfer {
 public:
  struct Path {
    uint64_t domain = 0;
    std::vector<TokenId> tokens;  // send: up to the deepest anchor.
  };
  PathTransfer(PathTransferOrder asked, std::shared_ptr<Doorbell> bell)
      : asked_(std::move(asked)), bell_(std::move(bell)) {}

  // The other thread. Each blocks until the engine has done its part.
  Result<Path> path();                     // send: what will come.
  Result<std::optional<PathPart>> take();  // send: nothing is the end.
  Result<void> give(PathPart part);        // receive
  Result<int64_t> finish();                // Tokens that are there now, or no longer: the end of every order.
  void abandon();                          // Nobody waits for it any more.
  void all_given();                        // receive: the first half of finish(), which does not wait.
  // Whether take(), give() or finish() would return at once: for who drives the engine on his own thread.
  bool can_take();
  bool can_give();
  bool has_ended();

 private:
  friend class PathTransfers;
  static constexpr size_t kPartsMax = 4;
  void end(Result<int64_t> result);

  const PathTransferOrder asked_;
  const std::shared_ptr<Doorbell> bell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PathPart> parts_;
  std::optional<Path> path_;
  std::optional<Result<int64_t>> result_;
  bool all_given_ = false, abandoned_ = false;
};

class PathTransfers {
 public:
  // What a slot was last used for. Kept after its request has ended; of a finished turn, with its answer.
  struct SlotPath {
    uint64_t order = 0;  // Of the request.
    uint64_t domain = 0;
    std::vector<TokenId> tokens;
  };
  PathTransfers(int32_t slots, PrefixCache& cache, Step& step, Spill& spill)
      : paths_(static_cast<size_t>(slots)), cache_(cache), step_(step), spill_(spill) {}

  void add(std::shared_ptr<PathTransfer> transfer);
  bool work();  // A bounded piece of each. Whether anything was done.
  void drop_all();
  bool holds_pages() const { return !jobs_.empty(); }

  void ran(int32_t slot, uint64_t order, uint64_t domain, std::vector<TokenId> tokens);
  void consolidated(const Consolidation& turn);
  const SlotPath& path(int32_t slot) const { return paths_[static_cast<size_t>(slot)]; }

 private:
  static constexpr size_t kJobsMax = 8;
  static constexpr int64_t kStepBytes = int64_t{16} << 20;
  struct Job {
    std::shared_ptr<PathTransfer> transfer;
    Lease lease;
    uint64_t domain = 0;
    std::vector<TokenId> tokens;
    int64_t position = 0;  // Pages below it have moved.
    bool begun = false;
  };
  Result<void> begin(Job& job);
  void erase(Job& job);
  bool send(Job& job);
  bool receive(Job& job);
  Result<void> put(Job& job, const PathPart& part);
  bool has_ended(const Job& job);
  PageId page_at(const Job& job, int64_t end) const {
    return job.lease.pages()[static_cast<size_t>(end / kPageTokens - 1)];
  }
  PrefixQuery query_of(const Job& job) const {
    return {.tokens = job.tokens, .domain = job.domain, .prefix_only = true};
  }

  std::vector<SlotPath> paths_;
  PrefixCache& cache_;
  Step& step_;
  Spill& spill_;
  std::vector<Job> jobs_;
};

}  // namespace wp
