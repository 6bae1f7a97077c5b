// Mixture of experts (spec/qwen4_exp.md 3.4). Engine thread. Allocates nothing.
// Tolerance against ref: 1e-5 for weights, 1e-4 of the largest value for experts; choices are equal unless two
// probabilities at the cut are closer than 1e-6.
// Bits: row by row; choices are added by ascending expert.
#pragma once

#include <span>

#include "core/tensor.h"
#include "device/device.h"
#include "kernels/moe.h"

namespace wp::ops {

struct Routing {
  Tensor experts;  // [T, A] i32, ascending in a row
  Tensor weights;  // [T, A] f32
  Tensor offsets;  // [E + 1] i32
  Tensor order;    // [T * A] i32: choices by expert
};

// Chooses A of E experts for each row of logits [T, E] and groups the choices.
void router(Stream& stream, const Tensor& logits, bool normalise, const Routing& routing);

struct ExpertsScratch {
  Tensor hidden;   // [T * A, 2 * F]
  Tensor outputs;  // [T * A, M]
  kernels::Workspace workspace;
};

// `matrices` lie where kernels read them; `first` is the first of them in host memory, of whose shapes and formats all
// are.
// y [T, M]: the chosen experts' outputs for x [T, M], weighted, plus sigmoid(shared_gate [T, 1]) * shared [T, M].
void experts(Stream& stream, std::span<const kernels::ExpertWeights> matrices, const kernels::ExpertWeights& first,
             const Tensor& x, const Routing& routing, const Tensor& shared, const Tensor& shared_gate, const Tensor& y,
             const ExpertsScratch& scratch);

}  // namespace wp::ops
