#include "text/bpe.h"

#include <algorithm>
#include <bit>

#include "core/assert.h"
#include "core/rng.h"

namespace wp {
namespace {

uint64_t pair_of(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

// std heap algorithms keep the largest on top; lowest rank, then leftmost, is "largest" here.
bool merges_later(const MergeScratch::Candidate& a, const MergeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

}  // namespace

MergeTable::MergeTable(size_t merges_count_max)
    : slots_(std::bit_ceil(2 * merges_count_max + 2)), mask_(slots_.size() - 1) {}

size_t MergeTable::slot_of(uint64_t pair) const {
  size_t at = splitmix64(pair) & mask_;
  while (slots_[at].pair != pair && slots_[at].pair != kEmpty) at = (at + 1) & mask_;
  return at;
}

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = pair_of(left, right);
  WP_ASSERT(pair != kEmpty);
  slots_[slot_of(pair)] = {pair, merge};
}

const Merge* MergeTable::find(int32_t left, int32_t right) const {
  const Slot& slot = slots_[slot_of(pair_of(left, right))];
  return slot.pair == kEmpty ? nullptr : &slot.merge;
}

void merge_word(const MergeTable& table, std::span<const int32_t> ids, MergeScratch& scratch,
                std::vector<int32_t>& out) {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto count = static_cast<int32_t>(ids.size());
  WP_ASSERT(ids.size() < (size_t{1} << 31));
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i) symbols.push_back({ids[i], i - 1, i + 1 < count ? i + 1 : -1, false});
  for (int32_t i = 0; i + 1 < count; ++i)
    if (const Merge* merge = table.find(ids[i], ids[i + 1])) heap.push_back({merge->rank, i, merge->id});
  std::make_heap(heap.begin(), heap.end(), merges_later);

  const auto offer = [&](int32_t left, int32_t right) {
    if (const Merge* merge = table.find(symbols[left].id, symbols[right].id)) {
      heap.push_back({merge->rank, left, merge->id});
      std::push_heap(heap.begin(), heap.end(), merges_later);
    }
  };
  while (!heap.empty()) {
    const MergeScratch::Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), merges_later);
    heap.pop_back();
    MergeScratch::Symbol& left = symbols[top.at];
    if (left.merged_away || left.next < 0) continue;
    MergeScratch::Symbol& right = symbols[left.next];
    // A candidate is stale when its pair has changed since. Like the reference, compare what the pair becomes.
    const Merge* merge = table.find(left.id, right.id);
    if (!merge || merge->id != top.id) continue;
    left.id = top.id;
    right.merged_away = true;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = top.at;
    if (left.previous >= 0) offer(left.previous, top.at);
    if (left.next >= 0) offer(top.at, left.next);
  }
  for (int32_t i = 0; i >= 0 && i < count; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace wp
