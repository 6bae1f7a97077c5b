// RamTier: pages and anchors in host memory behind the device's pools, whole and under a checksum each. Takes all of
// its memory at start: blocks of a page's size; an anchor lies in several. What it holds is a path from its first token
// to each anchor; where room is short, what is worth least goes (KeptIndex). One thread. Knows bytes and token ids.
//
// A part that does not have the checksum, the tokens or the position that were asked for is counted, dropped, missed.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/clock.h"
#include "device/device.h"
#include "store/kept_index.h"

namespace wp {

struct RamTierOptions {
  int64_t size_bytes = 0;
  int64_t page_bytes = 0, anchor_bytes = 0;
};

struct RamTierStats {
  int64_t parts = 0, bytes = 0, size_bytes = 0;
  int64_t anchors = 0;                           // Of the parts.
  int64_t stored = 0, evicted = 0, refused = 0;  // Parts; refused: paths for which there was no room.
  int64_t loads = 0, loaded_bytes = 0;           // Paths.
  int64_t corrupt = 0;
};

class RamTier {
 public:
  // Moves `count` bytes of a part from `offset` on, into or out of the tier. The part is that of the node ending there.
  using Move = std::function<void(PartKind kind, int64_t end, std::byte* bytes, int64_t offset, int64_t count)>;
  struct Anchor {
    int64_t end = 0;  // 0: none.
    CaptureClass capture_class = CaptureClass::tail;
  };
  // The device's shared memory: the host's own on ref and cpu.
  static Result<std::unique_ptr<RamTier>> make(Device& device, const RamTierOptions& options, Clock& clock);

  // Keeps an anchor at the end of these tokens and all pages below it, as far as they are not there. Room is made
  // first; where it cannot be, nothing is kept.
  void put_path(std::span<const TokenId> covered, uint64_t domain, CaptureClass capture_class, const Move& out);
  // The deepest anchor at a position in (above, below) with all pages from `above` to it.
  Anchor deepest(std::span<const TokenId> tokens, uint64_t domain, int64_t above, int64_t below) const;
  // The anchor at `end` and the pages in [begin, end). False: something was damaged; what was moved is to be forgotten.
  bool get_path(std::span<const TokenId> tokens, uint64_t domain, int64_t begin, int64_t end, const Move& in);
  void use(std::span<const TokenId> covered, uint64_t domain);  // A request resumed at the end of these tokens.
  RamTierStats stats() const;

 private:
  friend struct RamTierPeer;  // Tests damage its innards through it.
  struct Name {
    PartKind kind;
    uint64_t domain, parent, key;
    int64_t end;
    std::span<const TokenId> tokens;
  };
  RamTier(Buffer arena, const RamTierOptions& options, Clock& clock);
  int64_t bytes_of(PartKind kind) const { return kind == PartKind::page ? options_.page_bytes : options_.anchor_bytes; }
  int64_t blocks_of(PartKind kind) const;
  int64_t blocks_missing(std::span<const TokenId> covered, uint64_t domain) const;
  bool make_room(std::span<const TokenId> covered, uint64_t domain);
  void put(const Name& name, CaptureClass capture_class, const Move& out);
  bool get(const Name& name, const Move& in);
  void free_blocks(Place place);
  template <class Visit>
  void each_block(int32_t first, int64_t size_bytes, Visit visit) const;

  const RamTierOptions options_;
  Clock& clock_;
  Buffer arena_;
  int64_t block_bytes_;
  KeptIndex index_;
  std::vector<RecordHeader> headers_;  // Of a part, at its first block.
  std::vector<int32_t> next_, free_;   // Block behind a block of the same part; -1: none.
  RamTierStats stats_;
};

}  // namespace wp
