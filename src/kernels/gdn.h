// Arguments of the Gated DeltaNet kernels. Contracts and tolerances: ops/gdn.h.
#pragma once

#include <cstdint>

#include "kernels/segments.h"

namespace wp::kernels {

// Depthwise causal convolution, then silu: y[t, c] = silu(sum over i of weight[i, c] * u[t - (taps - 1 - i) * dilation,
// c]) with rows before the segment from state_in (zeros where null). The state is the last (taps - 1) * dilation rows
// of u in order of position, [history, C] f32 at state_offset; written to state_out and, at captures, to anchors.
struct ConvSilu {
  BatchView batch;
  int64_t C = 0, taps = 0, dilation = 1;
  const float* u = nullptr;       // [T, C]
  const float* weight = nullptr;  // [taps, C]; the last tap meets the current row
  int64_t state_offset = 0;       // Bytes, from the start of a state record.
  float* y = nullptr;             // [T, C], not u
  constexpr int64_t history() const { return (taps - 1) * dilation; }
};

// spec/qwen4_exp.md 3.2, steps 3 to 6, S is a head's [DK, DV] state:
//   q <- q / sqrt(sum q^2 + 1e-6) / sqrt(DK);  k <- k / sqrt(sum k^2 + 1e-6)
//   beta = sigmoid(b);  g = exp(-exp(A_log) * softplus(a + dt_bias))
//   S <- g S;  S <- S + k (beta (v - S^T k))^T;  o <- S^T q
// Value head h uses key head h / (HV / HK). State [HV, DK, DV] f32 at state_offset. Rows of a segment in order;
// a row's bits depend on the rows before it alone, not on where segments begin at multiples of 64 (in decode:
// anywhere).
struct Gdn {
  BatchView batch;
  int64_t HK = 0, HV = 0, DK = 0, DV = 0;
  float* qkv = nullptr;            // [T, 2 HK DK + HV DV]: q, k, v. May be overwritten
  float* a = nullptr;              // [T, HV]. May be overwritten
  float* b = nullptr;              // [T, HV]. May be overwritten
  const float* A_log = nullptr;    // [HV]
  const float* dt_bias = nullptr;  // [HV]
  int64_t state_offset = 0;
  float* o = nullptr;      // [T, HV, DV]
  float* spare = nullptr;  // [T, 2 HK DK + HV DV], for what a kernel keeps between its launches
  Workspace workspace;
  constexpr int64_t channels() const { return 2 * HK * DK + HV * DV; }
};

enum class Gate : uint8_t { sigmoid, silu };

// y = o / sqrt(mean(o^2) + epsilon) * weight * gate(z), per head; weight is used as it is. y may be o.
struct GatedNorm {
  int64_t T = 0, HV = 0, DV = 0;
  const float* o = nullptr;       // [T, HV, DV]
  const float* z = nullptr;       // [T, HV, DV]
  const float* weight = nullptr;  // [DV]
  float epsilon = 0;
  Gate gate = Gate::sigmoid;
  float* y = nullptr;
};

}  // namespace wp::kernels
