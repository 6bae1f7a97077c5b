// 64-bit content hashes (XXH3). Not cryptographic. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace wp {

uint64_t hash_bytes(const void* data, size_t size_bytes, uint64_t seed = 0);
inline uint64_t hash_text(std::string_view text, uint64_t seed = 0) {
  return hash_bytes(text.data(), text.size(), seed);
}

// The same hash, seed 0, of bytes that come in pieces.
class PiecewiseHash {
 public:
  PiecewiseHash();
  ~PiecewiseHash();
  void add(const void* data, size_t size_bytes);
  uint64_t value() const;  // Of all added so far.

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hex(uint64_t value);  // 16 digits.

}  // namespace wp
