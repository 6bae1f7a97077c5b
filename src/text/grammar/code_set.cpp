#include "text/grammar/code_set.h"

#include <algorithm>
#include <string>

#include "text/utf8.h"

namespace wp {
namespace {

constexpr uint32_t kLast = 0x10FFFF, kSurrogateLow = 0xD800, kSurrogateHigh = 0xDFFF;

// Cuts [low, high] until each part's bytes run through their ranges independently of each other.
void add_sequences(uint32_t low, uint32_t high, std::vector<ByteSequence>* out) {
  for (const uint32_t last : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (low <= last && last < high) {
      add_sequences(low, last, out);
      add_sequences(last + 1, high, out);
      return;
    }
  }
  std::string first, second;
  append_utf8(first, low);
  append_utf8(second, high);
  const int count = static_cast<int>(first.size());
  for (int tail = 1; tail < count; ++tail) {
    const uint32_t block = (1u << (6 * tail)) - 1;
    if ((low & ~block) == (high & ~block)) continue;
    if ((low & block) != 0) {
      add_sequences(low, low | block, out);
      add_sequences((low | block) + 1, high, out);
      return;
    }
    if ((high & block) != block) {
      add_sequences(low, (high & ~block) - 1, out);
      add_sequences(high & ~block, high, out);
      return;
    }
  }
  ByteSequence sequence;
  sequence.count = count;
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    sequence.ranges[i] = {static_cast<uint8_t>(first[at]), static_cast<uint8_t>(second[at])};
  }
  out->push_back(sequence);
}

}  // namespace

void CodeSet::add(uint32_t low, uint32_t high) {
  if (low > high) return;
  std::vector<CodeRange> merged;
  for (const CodeRange& range : ranges_) {
    const bool apart = range.high + 1 < low || high + 1 < range.low;
    if (apart) {
      merged.push_back(range);
    } else {
      low = std::min(low, range.low);
      high = std::max(high, range.high);
    }
  }
  merged.push_back({low, high});
  std::sort(merged.begin(), merged.end(), [](const CodeRange& a, const CodeRange& b) { return a.low < b.low; });
  ranges_ = std::move(merged);
}

void CodeSet::add(const CodeSet& other) {
  for (const CodeRange& range : other.ranges_) add(range.low, range.high);
}

CodeSet CodeSet::complement() const {
  CodeSet blocked = *this;
  blocked.add(kSurrogateLow, kSurrogateHigh);
  CodeSet out;
  uint32_t next = 0;
  for (const CodeRange& range : blocked.ranges_) {
    if (range.low > next) out.ranges_.push_back({next, range.low - 1});
    next = range.high + 1;
  }
  if (next <= kLast) out.ranges_.push_back({next, kLast});
  return out;
}

CodeSet CodeSet::minus(const CodeSet& other) const {
  CodeSet blocked = complement();
  blocked.add(other);
  return blocked.complement();
}

bool CodeSet::has(uint32_t code) const {
  for (const CodeRange& range : ranges_)
    if (range.low <= code && code <= range.high) return true;
  return false;
}

std::vector<ByteSequence> utf8_sequences(const CodeSet& set) {
  std::vector<ByteSequence> out;
  for (const CodeRange& range : set.ranges()) {
    const uint32_t high = std::min(range.high, kLast);
    if (range.low < kSurrogateLow && high >= kSurrogateLow) {
      add_sequences(range.low, kSurrogateLow - 1, &out);
      if (high > kSurrogateHigh) add_sequences(kSurrogateHigh + 1, high, &out);
    } else if (range.low >= kSurrogateLow && range.low <= kSurrogateHigh) {
      if (high > kSurrogateHigh) add_sequences(kSurrogateHigh + 1, high, &out);
    } else if (range.low <= high) {
      add_sequences(range.low, high, &out);
    }
  }
  return out;
}

}  // namespace wp
