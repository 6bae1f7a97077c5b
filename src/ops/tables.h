// Op x backend: every operation's kernels, in one list. A kernel is one file and one row here. Const; any thread.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/attention.h"
#include "kernels/gdn.h"
#include "kernels/linear.h"
#include "kernels/moe.h"
#include "kernels/ngram.h"
#include "kernels/random_fill.h"
#include "kernels/residual.h"
#include "kernels/table.h"

namespace wp::ops {

template <class Args>
using Table = kernels::KernelTable<Args>;

extern const Table<kernels::Matmul> matmul_kernels;
extern const Table<kernels::MatmulGroup> matmul_group_kernels;
extern const Table<kernels::Embed> embed_kernels;
extern const Table<kernels::TableRows> table_rows_kernels;
extern const Table<kernels::GatherRows> gather_rows_kernels;
extern const Table<kernels::GatherColumns> gather_columns_kernels;
extern const Table<kernels::RmsNorm> rms_norm_kernels;
extern const Table<kernels::GatedResidual> gated_residual_kernels;
extern const Table<kernels::Inject> inject_kernels;
extern const Table<kernels::Add> add_kernels;
extern const Table<kernels::SiluMul> silu_mul_kernels;
extern const Table<kernels::ConvSilu> conv_silu_kernels;
extern const Table<kernels::Gdn> gdn_kernels;
extern const Table<kernels::GatedNorm> gated_norm_kernels;
extern const Table<kernels::AttentionInputs> attention_inputs_kernels;
extern const Table<kernels::IndexKeys> index_keys_kernels;
extern const Table<kernels::SelectBlocks> select_blocks_kernels;
extern const Table<kernels::Attention> attention_kernels;
extern const Table<kernels::Router> router_kernels;
extern const Table<kernels::Experts> experts_kernels;
extern const Table<kernels::NgramRows> ngram_rows_kernels;
extern const Table<kernels::NgramGate> ngram_gate_kernels;
extern const Table<kernels::RandomBytes> random_fill_kernels;

// How the backend packs weights; both functions null where it has none.
kernels::Packing packing(DeviceKind kind);

struct TableRow {
  const char* op;
  bool ref, cpu, gpu;
};
std::vector<TableRow> table_rows_list();  // For docs/ops.md and tests.

// An error that names every operation for which the backend has no kernel.
Result<void> check_backend(DeviceKind kind);

}  // namespace wp::ops
