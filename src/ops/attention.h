// Attention over pages, dense and QSA (spec/qwen4_exp.md 3.3). Engine thread. Allocates nothing.
// Tolerance against ref: 2e-5 * (1 + |value|) for inputs and index keys, 1e-4 of the largest value for attention; the
// selection is equal unless scores at the cut are closer than 1e-5.
// Bits: a row depends on the tokens before it in its sequence, not on where segments begin or on other segments.
#pragma once

#include "core/tensor.h"
#include "device/device.h"
#include "kernels/attention.h"

namespace wp::ops {

struct AttentionHeads {
  int64_t HQ = 0, HK = 0, D = 0;
};

// Norms and rotates; q [T, HQ * D] out, keys and values into the pages. q_gate [T, HQ * 2 * D] (a head's query, then
// its gate), k and v [T, HK * D].
void attention_inputs(Stream& stream, const kernels::BatchView& batch, const kernels::LayerPages& pages,
                      const kernels::Rope& rope, const AttentionHeads& heads, const Tensor& q_gate, const Tensor& k,
                      const Tensor& v, const Tensor& q_norm, const Tensor& k_norm, float epsilon, const Tensor& q);

// Index queries [T, HI * DI] out and the pooled keys of blocks that end here into the pages. z [T, (HI + 1) * DI].
void index_keys(Stream& stream, const kernels::BatchView& batch, const kernels::LayerPages& pages,
                const kernels::Rope& rope, const Tensor& z, const Tensor& q_norm, const Tensor& k_norm, float epsilon,
                int64_t state_offset, const Tensor& queries);

// selected [T, budget] i32: for rows that see more than `budget` complete blocks, the blocks they attend to.
void select_blocks(Stream& stream, const kernels::BatchView& batch, const kernels::LayerPages& pages,
                   const Tensor& queries, const Tensor& selected, const kernels::Workspace& workspace);

// o [T, HQ * D]: attention times sigmoid of the gate. Without `selected` every row sees all tokens up to itself.
void attention(Stream& stream, const kernels::BatchView& batch, const kernels::LayerPages& pages,
               const AttentionHeads& heads, const Tensor& q, const Tensor& q_gate, const Tensor& selected,
               const Tensor& o, const kernels::Workspace& workspace);

// cos and sin [positions, rotary / 2] for theta, angles rounded to f32 as the reference does.
void fill_rope(const Tensor& cosine, const Tensor& sine, double theta);

}  // namespace wp::ops
