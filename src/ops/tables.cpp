#include "ops/tables.h"

#include "kernels/cpu/cpu.h"
#include "kernels/gpu/gpu.h"
#include "kernels/ref/ref.h"

namespace wp::ops {

namespace ref = kernels::ref;
namespace cpu = kernels::cpu;
namespace gpu = kernels::gpu;

// name, ref, cpu, gpu
const Table<kernels::Matmul> matmul_kernels{"matmul", ref::matmul, cpu::matmul, gpu::matmul};
const Table<kernels::MatmulGroup> matmul_group_kernels{"matmul_group", ref::matmul_group, cpu::matmul_group,
                                                       gpu::matmul_group};
const Table<kernels::Embed> embed_kernels{"embed", ref::embed, cpu::embed, gpu::embed};
const Table<kernels::TableRows> table_rows_kernels{"table_rows", ref::table_rows, cpu::table_rows, gpu::table_rows};
const Table<kernels::GatherRows> gather_rows_kernels{"gather_rows", ref::gather_rows, cpu::gather_rows,
                                                     gpu::gather_rows};
const Table<kernels::GatherColumns> gather_columns_kernels{"gather_columns", ref::gather_columns, cpu::gather_columns,
                                                           gpu::gather_columns};
const Table<kernels::RmsNorm> rms_norm_kernels{"rms_norm", ref::rms_norm, cpu::rms_norm, gpu::rms_norm};
const Table<kernels::GatedResidual> gated_residual_kernels{"gated_residual", ref::gated_residual, cpu::gated_residual,
                                                           gpu::gated_residual};
const Table<kernels::Inject> inject_kernels{"inject", ref::inject, cpu::inject, gpu::inject};
const Table<kernels::Add> add_kernels{"add", ref::add, cpu::add, gpu::add};
const Table<kernels::SiluMul> silu_mul_kernels{"silu_mul", ref::silu_mul, cpu::silu_mul, gpu::silu_mul};
const Table<kernels::ConvSilu> conv_silu_kernels{"conv_silu", ref::conv_silu, cpu::conv_silu, gpu::conv_silu};
const Table<kernels::Gdn> gdn_kernels{"gdn", ref::gdn, cpu::gdn, gpu::gdn};
const Table<kernels::GatedNorm> gated_norm_kernels{"gated_norm", ref::gated_norm, cpu::gated_norm, gpu::gated_norm};
const Table<kernels::AttentionInputs> attention_inputs_kernels{"attention_inputs", ref::attention_inputs,
                                                               cpu::attention_inputs, gpu::attention_inputs};
const Table<kernels::IndexKeys> index_keys_kernels{"index_keys", ref::index_keys, cpu::index_keys, gpu::index_keys};
const Table<kernels::SelectBlocks> select_blocks_kernels{"select_blocks", ref::select_blocks, cpu::select_blocks,
                                                         gpu::select_blocks};
const Table<kernels::Attention> attention_kernels{"attention", ref::attention, cpu::attention, gpu::attention};
const Table<kernels::Router> router_kernels{"router", ref::router, cpu::router, gpu::router};
const Table<kernels::Experts> experts_kernels{"experts", ref::experts, cpu::experts, gpu::experts};
const Table<kernels::NgramRows> ngram_rows_kernels{"ngram_rows", ref::ngram_rows, cpu::ngram_rows, gpu::ngram_rows};
const Table<kernels::NgramGate> ngram_gate_kernels{"ngram_gate", ref::ngram_gate, cpu::ngram_gate, gpu::ngram_gate};
// Made once, at load, and of integers: plain loops serve cpu too.
const Table<kernels::RandomBytes> random_fill_kernels{"random_fill", ref::random_fill, ref::random_fill,
                                                      gpu::random_fill};

kernels::Packing packing(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::ref: return ref::packing();
    case DeviceKind::cpu: return cpu::packing();
    case DeviceKind::cuda: return gpu::packing();
    default: return {};
  }
}

namespace {

template <class... Args>
std::vector<TableRow> rows_of(const Table<Args>&... tables) {
  return {TableRow{tables.name, tables.ref != nullptr, tables.cpu != nullptr, tables.gpu != nullptr}...};
}

}  // namespace

std::vector<TableRow> table_rows_list() {
  return rows_of(matmul_kernels, matmul_group_kernels, embed_kernels, table_rows_kernels, gather_rows_kernels,
                 gather_columns_kernels, rms_norm_kernels, gated_residual_kernels, inject_kernels, add_kernels,
                 silu_mul_kernels, conv_silu_kernels, gdn_kernels, gated_norm_kernels, attention_inputs_kernels,
                 index_keys_kernels, select_blocks_kernels, attention_kernels, router_kernels, experts_kernels,
                 ngram_rows_kernels, ngram_gate_kernels, random_fill_kernels);
}

Result<void> check_backend(DeviceKind kind) {
  std::string missing;
  if (!packing(kind).pack) missing = "packing";
  for (const TableRow& row : table_rows_list()) {
    const bool present = kind == DeviceKind::ref    ? row.ref
                         : kind == DeviceKind::cpu  ? row.cpu
                         : kind == DeviceKind::cuda ? row.gpu
                                                    : false;
    if (!present) missing += (missing.empty() ? "" : ", ") + std::string(row.op);
  }
  if (missing.empty()) return {};
  return Error{ErrorCode::unsupported,
               cat("device ", name(kind), ": expected a kernel for every operation, none for ", missing)};
}

}  // namespace wp::ops
