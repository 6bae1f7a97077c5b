// How one attention layer's part of a page lies in memory: 64 tokens, all f32, the same on every CPU backend. The
// order suits lanes over keys (scores) and lanes over values (sums). Opaque to all but kernels.
#pragma once

#include <cstdint>

namespace wp::kernels {

constexpr int64_t kPageTokens = 64;  // P
constexpr int64_t kBlockTokens = 4;  // Tokens of an index block.
constexpr int64_t kPageBlocks = kPageTokens / kBlockTokens;

//   K     [HK, P/4, D, 4]  element (head, block, d, key of block)
//   V     [HK, P, D]       element (head, token, d)
//   index [DI, P/4]        element (d, block): pooled index keys, normed and rotated. Absent where DI is 0
struct PageLayout {
  int64_t HK = 0, D = 0, DI = 0;

  constexpr int64_t k_floats() const { return HK * kPageTokens * D; }
  constexpr int64_t v_offset() const { return k_floats(); }          // In floats, from the layer's part.
  constexpr int64_t index_offset() const { return 2 * k_floats(); }  // In floats.
  constexpr int64_t layer_floats() const { return 2 * k_floats() + DI * kPageBlocks; }
  constexpr int64_t layer_bytes() const { return layer_floats() * 4; }  // A multiple of 64.

  constexpr int64_t k_at(int64_t head, int64_t token, int64_t d) const {
    return ((head * kPageBlocks + token / kBlockTokens) * D + d) * kBlockTokens + token % kBlockTokens;
  }
  constexpr int64_t v_at(int64_t head, int64_t token, int64_t d) const {
    return v_offset() + (head * kPageTokens + token) * D + d;
  }
  constexpr int64_t index_at(int64_t block, int64_t d) const { return index_offset() + d * kPageBlocks + block; }
};

}  // namespace wp::kernels
