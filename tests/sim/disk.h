// SimulatedDisk: a folder, the real DiskTier on it, and a layer between them that fails, ends short, flips bits, stands
// still and dies. Outlives the engines that use it, as a disk outlives servers.
//
// Its threads move bytes only while settle() lets them, first the writer, then the reader: whatever an engine asks in a
// step finds the same, so a run repeats from its seed.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "core/rng.h"
#include "model/model.h"
#include "store/disk_tier.h"
#include "testing/safetensors_writer.h"

namespace wp::sim {

class FaultyDisk final : public FileLayer {
 public:
  // Once in `one_in` calls something goes wrong; 0: never. `lies`: what is written is other bytes under a good
  // checksum, which no tier can see (a control).
  FaultyDisk(Seed seed, int64_t one_in, bool lies)
      : rng_(seed), one_in_(one_in), lies_(lies), owner_(std::this_thread::get_id()) {}
  int64_t read(int file, void* to, int64_t size_bytes, int64_t offset) override;
  int64_t write(int file, const void* from, int64_t size_bytes, int64_t offset) override;
  void let(bool write, bool read);  // Threads other than the one that made it.
  void die(bool dead);              // Nothing is written any more; the call that it hits writes half.
  void restarted();                 // Other threads will write and read.

 private:
  enum class Fault : uint8_t { none, fail, short_count, end, flipped_bit };
  Fault next(bool is_write);
  int64_t lie(int file, const void* from, int64_t size_bytes, int64_t offset);

  std::mutex mutex_;
  std::condition_variable goes_on_;
  Rng rng_;
  const int64_t one_in_;
  const bool lies_;
  const std::thread::id owner_;
  std::thread::id writer_;
  bool may_write_ = false, may_read_ = false, dead_ = false, hit_ = false;
  std::vector<std::byte> last_payload_;
};

struct SimulatedDiskOptions {
  int64_t limit_bytes = 0;
  bool faulty = false, lies = false;
};

class SimulatedDisk {
 public:
  SimulatedDisk(Seed seed, const ModelInfo& model, Clock& clock, const SimulatedDiskOptions& options);
  ~SimulatedDisk();
  DiskTier& tier() { return *tier_; }
  // The same folder, opened again: after `killed`, without what was on its way. Nobody uses the tier.
  void restart(bool killed, uint64_t numerics);
  void stand_still(bool still) { still_ = still; }
  bool stands_still() const { return still_; }
  // Unless it stands still: all that was asked for is written and read.
  void settle();

 private:
  void open();
  testing::TemporaryFolder folder_;
  FaultyDisk files_;
  DiskTierOptions options_;
  std::unique_ptr<DiskTier> tier_;
  bool still_ = false;
};

}  // namespace wp::sim
