// The gpu backend: one source for CUDA and HIP. Launches in order on the device's stream and returns at once; every
// argument and all that it points to must be memory that the device can read (Memory, device/device.h). Where the
// program was built without it, every kernel is null and ops::check_backend says so.
// Bits: sums run in one order for each shape of weights, whatever the number of rows; no float atomics.
#pragma once

#include <cstddef>

#include "kernels/attention.h"
#include "kernels/gdn.h"
#include "kernels/linear.h"
#include "kernels/moe.h"
#include "kernels/ngram.h"
#include "kernels/random_fill.h"
#include "kernels/residual.h"

namespace wp {
class Stream;
}

namespace wp::kernels::gpu {

#ifdef WP_CUDA
#define WP_GPU_KERNEL(name, Args) void name(Stream& stream, const Args& p)
Packing packing();  // Rows as the checkpoint has them, copied to the device.
#else
#define WP_GPU_KERNEL(name, Args) inline constexpr std::nullptr_t name = nullptr
inline Packing packing() { return {}; }
#endif

WP_GPU_KERNEL(matmul, Matmul);
WP_GPU_KERNEL(matmul_group, MatmulGroup);
WP_GPU_KERNEL(embed, Embed);
WP_GPU_KERNEL(table_rows, TableRows);
WP_GPU_KERNEL(gather_rows, GatherRows);
WP_GPU_KERNEL(gather_columns, GatherColumns);
WP_GPU_KERNEL(rms_norm, RmsNorm);
WP_GPU_KERNEL(gated_residual, GatedResidual);
WP_GPU_KERNEL(inject, Inject);
WP_GPU_KERNEL(add, Add);
WP_GPU_KERNEL(silu_mul, SiluMul);
WP_GPU_KERNEL(conv_silu, ConvSilu);
WP_GPU_KERNEL(gdn, Gdn);
WP_GPU_KERNEL(gated_norm, GatedNorm);
WP_GPU_KERNEL(attention_inputs, AttentionInputs);
WP_GPU_KERNEL(index_keys, IndexKeys);
WP_GPU_KERNEL(select_blocks, SelectBlocks);
WP_GPU_KERNEL(attention, Attention);
WP_GPU_KERNEL(router, Router);
WP_GPU_KERNEL(experts, Experts);
WP_GPU_KERNEL(ngram_rows, NgramRows);
WP_GPU_KERNEL(ngram_gate, NgramGate);
WP_GPU_KERNEL(random_fill, RandomBytes);

#undef WP_GPU_KERNEL

}  // namespace wp::kernels::gpu
