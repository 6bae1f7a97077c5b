// Arguments of the mixture-of-experts kernels. Contracts and tolerances: ops/moe.h.
#pragma once

#include <cstdint>

#include "core/matrix.h"
#include "kernels/segments.h"

namespace wp::kernels {

// Softmax over E logits, the A best (higher first, then lower expert), their probabilities divided by their sum where
// `normalise`; listed by ascending expert. Then all T * A choices grouped: order[offsets[e] .. offsets[e + 1]) are the
// flat indices t * A + i whose expert is e, ascending.
struct Router {
  int64_t T = 0, E = 0, A = 0;
  const float* logits = nullptr;  // [T, E]
  bool normalise = true;
  int32_t* experts = nullptr;  // [T, A] out
  float* weights = nullptr;    // [T, A] out
  int32_t* offsets = nullptr;  // [E + 1] out
  int32_t* order = nullptr;    // [T * A] out
};

struct ExpertWeights {
  Matrix gate, up;  // [F, M]
  Matrix down;      // [M, F]
};

// y[t] = sum over a row's choices by ascending expert of weight * down(silu(gate x) * up x), then
//        + sigmoid(shared_gate[t]) * shared[t].
struct Experts {
  int64_t T = 0, M = 0, F = 0, E = 0, A = 0;
  const float* x = nullptr;                 // [T, M]
  const int32_t* experts = nullptr;         // [T, A] ascending
  const float* weights = nullptr;           // [T, A]
  const int32_t* offsets = nullptr;         // [E + 1]
  const int32_t* order = nullptr;           // [T * A]
  const ExpertWeights* matrices = nullptr;  // [E], where kernels read them
  ExpertWeights first;                      // The first, for the host: all are of its shapes and formats.
  const float* shared = nullptr;            // [T, M]
  const float* shared_gate = nullptr;       // [T], before the sigmoid
  float* y = nullptr;                       // [T, M] out
  // Scratch, as the kernel likes.
  float* hidden = nullptr;   // [T * A, 2 F]
  float* outputs = nullptr;  // [T * A, M]
  Workspace workspace;
};

}  // namespace wp::kernels
