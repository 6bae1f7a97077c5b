// The elementary functions of kernels/cpu/math-inl.h over arrays, for tests and for the hash in the numerics id: they
// decide the bits of everything above them. Any thread.
#pragma once

#include <cstdint>

namespace wp::kernels::cpu {

enum class Function : uint8_t { exp, sigmoid, silu, softplus, reciprocal_sqrt };

void apply(Function function, const float* x, int64_t count, float* y);

}  // namespace wp::kernels::cpu
