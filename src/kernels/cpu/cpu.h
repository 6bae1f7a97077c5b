// The cpu backend's kernels: Highway, compiled for several instruction sets, one picked at run time. Same arguments and
// meaning as kernels/ref; the same bits on every instruction set, for any number of threads and any other rows of the
// pass. Arguments are checked in ops/.
#pragma once

#include "device/device.h"
#include "kernels/attention.h"
#include "kernels/gdn.h"
#include "kernels/linear.h"
#include "kernels/moe.h"
#include "kernels/ngram.h"
#include "kernels/residual.h"

namespace wp::kernels::cpu {

Packing packing();

// Runs as many multiply-adds as the registers can hold in flight on all threads and returns their number; the caller
// takes the time. For benchmarks.
double multiply_adds(Stream& stream, int64_t rounds);

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

}  // namespace wp::kernels::cpu
