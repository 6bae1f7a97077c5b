// CodeSet: a set of code points as sorted ranges, and its UTF-8 form as sequences of byte ranges. Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace wp {

struct CodeRange {
  uint32_t low, high;  // Both inside.
};

class CodeSet {
 public:
  CodeSet() = default;
  CodeSet(uint32_t low, uint32_t high) { add(low, high); }

  void add(uint32_t low, uint32_t high);
  void add(const CodeSet& other);
  // All code points but these; surrogates belong to neither.
  CodeSet complement() const;
  CodeSet minus(const CodeSet& other) const;
  bool has(uint32_t code) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<CodeRange>& ranges() const { return ranges_; }

 private:
  std::vector<CodeRange> ranges_;  // Ascending, apart from each other.
};

// One to four byte ranges, one after the other.
struct ByteSequence {
  int count = 0;
  std::pair<uint8_t, uint8_t> ranges[4];
};

// The UTF-8 of exactly these code points.
std::vector<ByteSequence> utf8_sequences(const CodeSet& set);

}  // namespace wp
