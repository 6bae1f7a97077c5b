// Arguments of the n-gram embedding kernels (PLE). Contracts and tolerances: ops/ngram.h.
#pragma once

#include <cstdint>

#include "kernels/segments.h"

namespace wp::kernels {

// Table rows of each token, spec/qwen4_exp.md 3.5. The state is the last `order` - 1 token ids, oldest first, i32 at
// state_offset; before the sequence all are `end_of_text`. Written to state_out and to captures. Integers: exact.
struct NgramRows {
  BatchView batch;
  int64_t order = 0, heads = 0;          // heads: of one order; heads * (order - 1) in all.
  const int64_t* multipliers = nullptr;  // [order]
  const int64_t* moduli = nullptr;       // [(order - 1) * heads]
  const int64_t* offsets = nullptr;      // [(order - 1) * heads]
  int32_t end_of_text = 0;
  int64_t state_offset = 0;
  const int32_t* tokens = nullptr;  // [T]
  int64_t* rows = nullptr;          // [T, (order - 1) * heads] out
};

// Steps 1 to 3 behind the projections; RMS norms per stream with (1 + weight):
//   u[s] = <norm(key[s]), norm(H[s])> / sqrt(M);  u <- sign(u) sqrt(max(|u|, 1e-6))
//   gated[s] = sigmoid(u[s]) * value;  normed[s] = norm(gated[s])
struct NgramGate {
  int64_t T = 0, S = 0, M = 0;
  const float* H = nullptr;           // [T, S, M]
  const float* key = nullptr;         // [T, S, M]
  const float* value = nullptr;       // [T, M]
  const float* norm_key = nullptr;    // [S, M]
  const float* norm_query = nullptr;  // [S, M]
  const float* norm_conv = nullptr;   // [S, M]
  float epsilon = 0;
  float* gated = nullptr;   // [T, S, M] out
  float* normed = nullptr;  // [T, S, M] out
};

}  // namespace wp::kernels
