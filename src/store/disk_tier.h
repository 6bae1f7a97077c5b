// DiskTier: pages and anchors in append-only segment files of one folder, kept over restarts. Owns the folder's lock,
// the index of what may be read, and two threads: one writes behind, one reads ahead. Every call from any thread; none
// waits for the disk but open() and flush(). Knows bytes and token ids, no device.
//
// What cannot be written, read or believed is counted and missed; it never fails a request. The index is rebuilt from
// headers at start: a half-written record ends its segment. Near the limit what is worth least is given up (KeptIndex),
// and the segment with the most of that goes: what is still wanted of it is written again, behind the rest.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/kept_index.h"

namespace wp {

// How bytes reach a file; tests put faults in between. Both as pread and pwrite: -1, or bytes moved, maybe fewer.
class FileLayer {
 public:
  virtual ~FileLayer() = default;
  virtual int64_t read(int file, void* to, int64_t size_bytes, int64_t offset);
  virtual int64_t write(int file, const void* from, int64_t size_bytes, int64_t offset);
};

struct DiskTierOptions {
  std::string folder;
  int64_t limit_bytes = 0;  // Of all segments; 0: no limit.
  Origin origin;
  int64_t page_bytes = 0, anchor_bytes = 0;
  int64_t segment_bytes = int64_t{256} << 20;      // A segment is closed above this; at most an eighth of the limit.
  int64_t pending_bytes_max = int64_t{256} << 20;  // Copied and not written yet; what comes above is dropped.
  FileLayer* files = nullptr;                      // Not owned; null: the operating system's.
  Clock* clock = nullptr;                          // Of uses, as above.
};

struct DiskTierStats {
  int64_t records = 0, bytes = 0, segments = 0, pending_bytes = 0;
  int64_t anchors = 0, anchors_pending = 0;  // Of the records; of these, not written yet.
  int64_t written = 0, written_bytes = 0, dropped = 0;
  int64_t evicted = 0, segments_evicted = 0, moved = 0;    // Records given up, segments gone, records written again.
  int64_t loads = 0, loaded_bytes = 0, reading = 0;        // Paths; under way.
  int64_t foreign = 0;                                     // Records of another model or numerics, found at start.
  int64_t torn = 0;                                        // Segments that ended in what is no record.
  int64_t write_errors = 0, read_errors = 0, corrupt = 0;  // By kind of fault.
};

// A path on its way from the disk. The reader fills it, then sets `done`; nobody else touches it before.
struct DiskLoad {
  int64_t begin = 0, end = 0;  // Tokens that the pages cover; the anchor stands at `end`.
  CaptureClass capture_class = CaptureClass::tail;
  std::vector<std::vector<std::byte>> pages;
  std::vector<std::byte> anchor;
  bool good = false;
  std::atomic<bool> done{false};
};

class DiskTier {
 public:
  // Makes the folder if it is not there. Fails where it cannot be written, or another process has it.
  static Result<std::unique_ptr<DiskTier>> open(const DiskTierOptions& options);
  ~DiskTier();  // Writes what is pending.

  uint64_t root() const;                        // The key above the first node of any path.
  bool has(PartKind kind, uint64_t key) const;  // Written, or on its way there.
  // Takes the bytes; written later. `tokens` are all of the path's; the part is that of its last node.
  void put(PartKind kind, uint64_t domain, uint64_t parent, int64_t end, std::span<const TokenId> page_tokens,
           CaptureClass capture_class, std::vector<std::byte> bytes);
  // Begins to read the deepest anchor at a position in (above, below) of this path, and its pages from `above`; then
  // rings. Null: there is none, or the disk has stopped answering.
  std::shared_ptr<DiskLoad> load(std::span<const TokenId> tokens, uint64_t domain, int64_t above, int64_t below,
                                 std::function<void()> ring);
  // The one who asked has waited long enough: nothing is read any more until that read has come back.
  void give_up(const DiskLoad& load);
  void use(std::span<const TokenId> covered, uint64_t domain);  // A request resumed at the end of these tokens.
  void flush();                                                 // Waits until all that was put is written.
  DiskTierStats stats() const;

 private:
  struct Impl;
  explicit DiskTier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace wp
