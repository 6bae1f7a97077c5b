#include "disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace wp::sim {
namespace {

constexpr int64_t kCallsPerFault = 50;

constexpr std::string_view kRoot = "the root";  // A folder's own is random; here the keys of a run repeat.
static_assert(kRoot.size() == sizeof(uint64_t));

}  // namespace

FaultyDisk::Fault FaultyDisk::next(bool is_write) {
  std::unique_lock lock(mutex_);
  const std::thread::id me = std::this_thread::get_id();
  if (me != owner_) {
    if (is_write) writer_ = me;
    goes_on_.wait(lock, [&] { return me == writer_ ? may_write_ : may_read_; });
  }
  if (dead_) return !is_write ? Fault::none : std::exchange(hit_, true) ? Fault::end : Fault::short_count;
  if (one_in_ == 0 || rng_.between(1, one_in_) > 1) return Fault::none;
  return static_cast<Fault>(rng_.between(1, 4));
}

int64_t FaultyDisk::read(int file, void* to, int64_t size_bytes, int64_t offset) {
  const Fault fault = next(false);
  if (fault == Fault::end) return 0;
  if (fault == Fault::fail) {
    errno = EIO;
    return -1;
  }
  if (fault == Fault::short_count) size_bytes = std::max<int64_t>(1, size_bytes / 2);
  const int64_t count = FileLayer::read(file, to, size_bytes, offset);
  if (fault == Fault::flipped_bit && count > 0) static_cast<uint8_t*>(to)[count / 2] ^= 4;
  return count;
}

int64_t FaultyDisk::write(int file, const void* from, int64_t size_bytes, int64_t offset) {
  const Fault fault = next(true);
  if (fault == Fault::fail || fault == Fault::end) {
    errno = ENOSPC;
    return fault == Fault::fail ? -1 : 0;
  }
  if (lies_) return lie(file, from, size_bytes, offset);
  if (fault == Fault::short_count) size_bytes = std::max<int64_t>(1, size_bytes / 2);
  if (fault != Fault::flipped_bit) return FileLayer::write(file, from, size_bytes, offset);
  std::vector<uint8_t> bytes(static_cast<const uint8_t*>(from), static_cast<const uint8_t*>(from) + size_bytes);
  bytes[bytes.size() / 2] ^= 4;
  return FileLayer::write(file, bytes.data(), size_bytes, offset);
}

// A payload comes before its header, which is sealed anew over what was written in its place.
int64_t FaultyDisk::lie(int file, const void* from, int64_t size_bytes, int64_t offset) {
  const auto* bytes = static_cast<const std::byte*>(from);
  if (size_bytes == static_cast<int64_t>(sizeof(RecordHeader))) {
    RecordHeader header;
    std::memcpy(&header, from, sizeof header);
    seal(header, last_payload_);
    return FileLayer::write(file, &header, size_bytes, offset);
  }
  last_payload_.assign(bytes, bytes + size_bytes);
  last_payload_[last_payload_.size() / 2] ^= std::byte{4};
  return FileLayer::write(file, last_payload_.data(), size_bytes, offset);
}

void FaultyDisk::let(bool write, bool read) {
  const std::lock_guard lock(mutex_);
  may_write_ = write;
  may_read_ = read;
  goes_on_.notify_all();
}

void FaultyDisk::die(bool dead) {
  const std::lock_guard lock(mutex_);
  dead_ = dead;
  hit_ = false;
}

void FaultyDisk::restarted() {
  const std::lock_guard lock(mutex_);
  writer_ = {};
}

SimulatedDisk::SimulatedDisk(Seed seed, const ModelInfo& model, Clock& clock, const SimulatedDiskOptions& options)
    : files_(seed, options.faulty ? kCallsPerFault : 0, options.lies) {
  folder_.write("root", kRoot);
  options_ = {.folder = folder_.path(),
              .limit_bytes = options.limit_bytes,
              .origin = {model.fingerprint, 1},
              .page_bytes = model.page_bytes,
              .anchor_bytes = model.anchor_bytes,
              .pending_bytes_max = int64_t{64} << 10,
              .files = &files_,
              .clock = &clock};
  open();
}

SimulatedDisk::~SimulatedDisk() { files_.let(true, true); }

void SimulatedDisk::open() {
  files_.restarted();
  tier_ = std::move(DiskTier::open(options_)).value();
}

void SimulatedDisk::restart(bool killed, uint64_t numerics) {
  if (!killed) {
    still_ = false;
    settle();
  }
  files_.die(killed);
  files_.let(true, true);
  tier_.reset();
  files_.die(false);
  files_.let(false, false);
  still_ = false;
  options_.origin.numerics = numerics;
  open();
}

void SimulatedDisk::settle() {
  if (still_) return;
  const DiskTierStats before = tier_->stats();
  if (before.pending_bytes == 0 && before.reading == 0) return;
  files_.let(true, false);
  tier_->flush();
  files_.let(false, true);
  while (tier_->stats().reading > 0) std::this_thread::yield();
  files_.let(false, false);
}

}  // namespace wp::sim
