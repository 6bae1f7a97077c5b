// The elementary functions of kernels/cpu/math-inl.h over arrays, for tests: they
// decide the bits of everything above them. Any thread.
#pragma once

#include <cstdint>

namespace wp::kernels::cpu {

enum class Function : uint8_t { exp, sigmoid, silu, softplus, reciprocal_sqrt };

void apply(Function function, const float* x, int64_t count, float* y);

// A sum in chains of the machine's own vector width: what no kernel may do, since the width is not the same everywhere.
// The control of tests that compare instruction sets.
float sum_in_native_width(const float* x, int64_t count);

}  // namespace wp::kernels::cpu
