// Which instruction sets the cpu kernels are compiled for: AVX2 (the baseline) and AVX-512 on x86-64, NEON on aarch64.
// Stands before any Highway header in every file of this folder.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
