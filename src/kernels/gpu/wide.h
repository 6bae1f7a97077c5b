// What the files of this folder call of each other: products and experts of many rows on compute capability 9.0
// (*_sm90.cu), whose bits are those of the kernels for fewer rows.
#pragma once

#include "kernels/linear.h"
#include "kernels/moe.h"
#include "kernels/residual.h"

namespace wp {
class Stream;
}

namespace wp::kernels::gpu {

// False where the weight's format or shape, or the memory lent to the stream, is not for it: then nothing was launched.
bool matmul_wide(Stream& stream, const MatmulGroup& p);  // Of one format.
bool gated_residual_wide(Stream& stream, const GatedResidual& p);
bool experts_wide(Stream& stream, const Experts& p);  // Where experts_in_chains.

// By the shape of the weights: each sum of the experts' products is one chain over ascending k, not one for each slice.
bool experts_in_chains(const Experts& p);
void experts_few(Stream& stream, const Experts& p);  // Where they are.

}  // namespace wp::kernels::gpu
