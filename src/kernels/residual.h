// Arguments of norms, hyper-connections and element-wise kernels. Contracts and tolerances: ops/residual.h.
#pragma once

#include <cstdint>

#include "core/matrix.h"
#include "kernels/segments.h"

namespace wp::kernels {

// y[t, g, :] = x[t, g, :] / sqrt(mean(x[t, g, :]^2) + epsilon) * (weight_offset + weight[g', :]); y may be x.
// weight_offset is 1 for the norms stored as an offset from 1, else 0. g' = weight_per_group ? g : 0.
struct RmsNorm {
  int64_t T = 0, groups = 1, width = 0;
  const float* x = nullptr;  // [T, groups, width]
  const float* weight = nullptr;
  bool weight_per_group = false;
  float weight_offset = 1, epsilon = 0;
  float* y = nullptr;
};

// spec/qwen4_exp.md 3.1, steps 1 to 5. The last mixer has no inject: then `weights` is null.
struct GatedResidual {
  int64_t T = 0, S = 0, M = 0, R = 0;  // R: low rank.
  const float* H = nullptr;            // [T, S * M]
  const float* norm = nullptr;         // [S * M], offset from 1
  float epsilon = 0;
  Matrix down;               // [R, S * M]
  Matrix up;                 // [S * M, R]
  Matrix inject;             // [S, S * M] or empty
  float* x = nullptr;        // [T, M] out
  float* weights = nullptr;  // [T, S] out
  // Scratch, as the kernel likes.
  float* normed = nullptr;  // [T, S * M]
  float* low = nullptr;     // [T, R + S]
  float* gates = nullptr;   // [T, S * M]
  Workspace workspace;
};

// H[t, s, :] += weights[t, s] * y[t, :]
struct Inject {
  int64_t T = 0, S = 0, M = 0;
  float* H = nullptr;
  const float* y = nullptr;
  const float* weights = nullptr;
};

// x[i] += a[i], then + b[i] where b is given.
struct Add {
  int64_t count = 0;
  float* x = nullptr;
  const float* a = nullptr;
  const float* b = nullptr;
};

// gate[t, f] = silu(gate[t, f]) * up[t, f]
struct SiluMul {
  int64_t count = 0;
  float* gate = nullptr;
  const float* up = nullptr;
};

}  // namespace wp::kernels
