// Gated DeltaNet: short convolution, delta rule, gated norm (spec/qwen4_exp.md 3.2). Engine thread. Allocates nothing.
// Tolerance against ref: 2e-5 * (1 + |value|) for conv and norm, 1e-4 of the largest value for gdn and its state.
// Bits: a row depends on the rows before it in its sequence, not on where segments begin or on other segments. States
// are read from a segment's state_in, written to its state_out, and to anchors at its captures.
#pragma once

#include "core/tensor.h"
#include "device/device.h"
#include "kernels/gdn.h"

namespace wp::ops {

// y = silu(causal depthwise convolution of u); u, y [T, C], weight [taps, C].
void conv_silu(Stream& stream, const kernels::BatchView& batch, const Tensor& u, const Tensor& weight, int64_t dilation,
               int64_t state_offset, const Tensor& y);

struct GdnHeads {
  int64_t HK = 0, HV = 0, DK = 0, DV = 0;
  int64_t channels() const { return 2 * HK * DK + HV * DV; }
  int64_t state_floats() const { return HV * DK * DV; }
};

// o [T, HV * DV] of the delta rule. qkv [T, channels] behind the convolution, a and b [T, HV]: all three may be
// overwritten. A_log, dt_bias [HV]. `spare` [T, channels]: undefined before and after. On cuda rows of prefill (not of
// decode) are computed in chunks of 64 from position 0 of their sequence where DK is 128: their bits do not depend on
// where segments begin at multiples of 64, nor on the rows behind them; captures lie on that grid.
void gdn(Stream& stream, const kernels::BatchView& batch, const GdnHeads& heads, const Tensor& qkv, const Tensor& a,
         const Tensor& b, const Tensor& A_log, const Tensor& dt_bias, int64_t state_offset, const Tensor& o,
         const Tensor& spare, const kernels::Workspace& workspace);

// y = RMS norm per head of o, times weight [DV], times sigmoid or silu of z; o, z, y [T, HV * DV], y may be o.
void gated_norm(Stream& stream, const Tensor& o, const Tensor& z, const Tensor& weight, float epsilon,
                kernels::Gate gate, const Tensor& y);

}  // namespace wp::ops
