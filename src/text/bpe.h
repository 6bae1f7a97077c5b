// Byte-pair merging over token ids. MergeTable is const once filled; any thread. MergeScratch belongs to one call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace wp {

struct Merge {
  uint32_t rank;  // Lower merges first.
  int32_t id;     // What the pair becomes.
};

class MergeTable {
 public:
  explicit MergeTable(size_t merges_count_max);
  // A pair given twice: the last one counts.
  void add(int32_t left, int32_t right, Merge merge);
  const Merge* find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    Merge merge{};
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  size_t slot_of(uint64_t pair) const;

  std::vector<Slot> slots_;
  size_t mask_;
};

// Buffers that one encode call reuses from word to word.
struct MergeScratch {
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // -1: none.
    bool merged_away;
  };
  struct Candidate {
    uint32_t rank;
    int32_t at;  // Index of the left symbol.
    int32_t id;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

// Merges the word `ids` (one per byte) and appends the result: always the applicable pair of lowest rank, the leftmost
// of equals. O(n log n).
void merge_word(const MergeTable& table, std::span<const int32_t> ids, MergeScratch& scratch,
                std::vector<int32_t>& out);

}  // namespace wp
