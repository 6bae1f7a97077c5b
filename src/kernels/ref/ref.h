// The ref backend: plain loops in double over f32 activations, on any CPU. Slow on purpose; what other backends are
// compared with. Threads share rows or heads; no result depends on how.
#pragma once

#include "device/device.h"
#include "kernels/attention.h"
#include "kernels/gdn.h"
#include "kernels/linear.h"
#include "kernels/moe.h"
#include "kernels/ngram.h"
#include "kernels/random_fill.h"
#include "kernels/residual.h"

namespace wp::kernels::ref {

void matmul(Stream& stream, const Matmul& p);
void matmul_group(Stream& stream, const MatmulGroup& p);
void embed(Stream& stream, const Embed& p);
void table_rows(Stream& stream, const TableRows& p);
void gather_rows(Stream& stream, const GatherRows& p);
void gather_columns(Stream& stream, const GatherColumns& p);

void rms_norm(Stream& stream, const RmsNorm& p);
void gated_residual(Stream& stream, const GatedResidual& p);
void inject(Stream& stream, const Inject& p);
void add(Stream& stream, const Add& p);
void silu_mul(Stream& stream, const SiluMul& p);

void conv_silu(Stream& stream, const ConvSilu& p);
void gdn(Stream& stream, const Gdn& p);
void gated_norm(Stream& stream, const GatedNorm& p);

void attention_inputs(Stream& stream, const AttentionInputs& p);
void index_keys(Stream& stream, const IndexKeys& p);
void select_blocks(Stream& stream, const SelectBlocks& p);
void attention(Stream& stream, const Attention& p);

void router(Stream& stream, const Router& p);
void experts(Stream& stream, const Experts& p);

void ngram_rows(Stream& stream, const NgramRows& p);
void ngram_gate(Stream& stream, const NgramGate& p);

void random_fill(Stream& stream, const RandomBytes& p);

Packing packing();  // Weights are read where they lie.

}  // namespace wp::kernels::ref
