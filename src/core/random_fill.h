// RandomFill: the numbers of a synthetic tensor, from a seed and a counter alone: a host and a GPU make the same bytes,
// in any order and in parallel (spec/cli.md, synth). Any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/rng.h"

namespace wp {

enum class RandomKind : uint8_t {
  bf16,    // center + spread * u for u uniform in (-1, 1), rounded.
  f32,     // The constant `center`.
  fp4,     // Every pair of e2m1 codes alike: root mean square 2.93.
  scales,  // E4M3 in 0.75..1.375: scales of fp4 blocks, root mean square 1.07.
  e4m3,    // Of either sign, magnitudes 0.5..1.875: root mean square 1.15.
};

struct RandomFill {
  RandomKind kind = RandomKind::bf16;
  Seed seed = 0;  // Of the tensor.
  int64_t size_bytes = 0;
  float center = 0, spread = 0;
};

constexpr uint64_t random_bf16(const RandomFill& fill, uint32_t bits16) {
  const float uniform_value = (static_cast<float>(bits16) - 32767.5f) * 0x1p-15f;
  const float value = fill.center + fill.spread * uniform_value;
  const auto bits = std::bit_cast<uint32_t>(value);
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;  // To nearest, ties to even; never near infinity.
}

// Bytes [8 index, 8 index + 8) of the tensor, the first one lowest.
constexpr uint64_t random_word(const RandomFill& fill, int64_t index) {
  const uint64_t draw = splitmix64(fill.seed + static_cast<uint64_t>(index) * 0xD1342543DE82EF95ull);
  switch (fill.kind) {
    case RandomKind::bf16: {
      uint64_t word = 0;
      for (int lane = 0; lane < 4; ++lane)
        word |= random_bf16(fill, static_cast<uint32_t>(draw >> 16 * lane) & 0xFFFF) << 16 * lane;
      return word;
    }
    case RandomKind::f32: return std::bit_cast<uint32_t>(fill.center) * 0x100000001ull;
    case RandomKind::fp4: return draw;
    case RandomKind::scales: return (draw & 0x0707070707070707ull) + 0x3434343434343434ull;
    case RandomKind::e4m3: return (draw & 0x8F8F8F8F8F8F8F8Full) + 0x3030303030303030ull;
  }
  return 0;
}

// The bytes from `begin`, a multiple of 8, up to `end` at most size_bytes.
void fill_random(const RandomFill& fill, int64_t begin, int64_t end, std::byte* to);

}  // namespace wp
