// Norms, hyper-connections and what is done element by element. Engine thread. Allocates nothing.
// Tolerance against ref: 2e-5 * (1 + |value|) (gated_residual: 1e-4 of the largest value).
// Bits: row by row.
#pragma once

#include "core/matrix.h"
#include "core/tensor.h"
#include "device/device.h"
#include "kernels/segments.h"

namespace wp::ops {

struct Norm {
  Tensor weight;  // [width] or [groups * width]
  float offset = 1;
  float epsilon = 1e-6f;
};

// y = RMS norm of each of `groups` equal parts of a row; x and y [T, groups * width], y may be x. The weight is one
// part wide (all parts share it) or a row wide.
void rms_norm(Stream& stream, const Norm& norm, int64_t groups, const Tensor& x, const Tensor& y);

// A hyper-connection (spec/qwen4_exp.md 3.1). `inject` is empty in the last one.
struct GatedResidual {
  Tensor norm;    // [S * M], offset from 1
  Matrix down;    // [R, S * M]
  Matrix up;      // [S * M, R]
  Matrix inject;  // [S, S * M]
  float epsilon = 1e-6f;
};
struct GatedResidualScratch {
  Tensor normed;  // [T, S * M]
  Tensor low;     // [T, R + S]
  Tensor gates;   // [T, S * M]
  kernels::Workspace workspace;
};

// From H [T, S * M] the input x [T, M] of a sub-block and its injection weights [T, S]; steps 1 to 5. Without
// `inject` pass no weights. S = width of H over width of x.
void gated_residual(Stream& stream, const GatedResidual& mixer, const Tensor& H, const Tensor& x, const Tensor& weights,
                    const GatedResidualScratch& scratch);

// H [T, S * M] += weights [T, S] times y [T, M], stream by stream; step 6.
void inject(Stream& stream, const Tensor& H, const Tensor& y, const Tensor& weights);

// x += a, then += b where given; all [T, M] and dense.
void add(Stream& stream, const Tensor& x, const Tensor& a, const Tensor& b = {});

// gate [T, F] <- silu(gate) * up.
void silu_mul(Stream& stream, const Tensor& gate, const Tensor& up);

}  // namespace wp::ops
