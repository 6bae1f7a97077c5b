// Rng: a small seeded generator (xoshiro256**, Blackman and Vigna 2018), and splitmix64 for counter-based draws:
// uniform(seed, index) depends on nothing else, so batching cannot shift a sampler. One owner at a time.
#pragma once

#include <cstdint>

namespace wp {

using Seed = uint64_t;

constexpr uint64_t splitmix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// In [0, 1), from a seed and a counter.
constexpr double uniform(Seed seed, uint64_t index) {
  return static_cast<double>(splitmix64(splitmix64(seed) ^ (index * 0xD1342543DE82EF95ull)) >> 11) * 0x1p-53;
}

class Rng {
 public:
  explicit Rng(Seed seed) {
    for (uint64_t& word : state_) word = seed = splitmix64(seed);
  }
  uint64_t next() {
    const uint64_t result = rotate(state_[1] * 5, 7) * 9, t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
  }
  // Uniform in [low, high], both included.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  double real() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // In [0, 1).
  bool percent(int chance) { return between(0, 99) < chance; }
  double normal();  // Mean 0, variance 1.

 private:
  static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  uint64_t state_[4];
};

}  // namespace wp
