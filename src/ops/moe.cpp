#include "ops/moe.h"

#include "ops/tables.h"

namespace wp::ops {

void router(Stream& stream, const Tensor& logits, bool normalise, const Routing& routing) {
  Dim T{"T"}, E{"E"}, A{"A"};
  expect("router logits", logits, DType::f32, {T, E});
  expect("router experts", routing.experts, DType::i32, {T, A});
  expect("router weights", routing.weights, DType::f32, {T, A});
  expect("router offsets", routing.offsets, DType::i32, {E + 1});
  expect("router order", routing.order, DType::i32, {T * A});
  WP_ASSERT(A >= 1 && A <= E && logits.dense() && routing.experts.dense() && routing.weights.dense());
  if (T == 0) return;
  router_kernels.run(stream, {.T = T,
                              .E = E,
                              .A = A,
                              .logits = logits.f32(),
                              .normalise = normalise,
                              .experts = routing.experts.i32(),
                              .weights = routing.weights.f32(),
                              .offsets = routing.offsets.i32(),
                              .order = routing.order.i32()});
}

void experts(Stream& stream, std::span<const kernels::ExpertWeights> matrices, const kernels::ExpertWeights& first,
             const Tensor& x, const Routing& routing, const Tensor& shared, const Tensor& shared_gate, const Tensor& y,
             const ExpertsScratch& scratch) {
  Dim T{"T"}, M{"M"}, A{"A"};
  const int64_t E = static_cast<int64_t>(matrices.size());
  WP_ASSERT(E > 0);
  const int64_t F = first.gate.N;
  expect("experts x", x, DType::f32, {T, M});
  expect("experts shared", shared, DType::f32, {T, M});
  expect("experts shared_gate", shared_gate, DType::f32, {T, 1});
  expect("experts y", y, DType::f32, {T, M});
  expect("experts routing", routing.experts, DType::i32, {T, A});
  expect("experts offsets", routing.offsets, DType::i32, {E + 1});
  expect("experts hidden", scratch.hidden, DType::f32, {T * A, 2 * F});
  expect("experts outputs", scratch.outputs, DType::f32, {T * A, M});
  WP_ASSERT(x.dense() && shared.dense() && y.dense());
  WP_DASSERT(first.gate.K == M && first.down.N == M && first.down.K == F);
  if (T == 0) return;
  experts_kernels.run(stream, {.T = T,
                               .M = M,
                               .F = F,
                               .E = E,
                               .A = A,
                               .x = x.f32(),
                               .experts = routing.experts.i32(),
                               .weights = routing.weights.f32(),
                               .offsets = routing.offsets.i32(),
                               .order = routing.order.i32(),
                               .matrices = matrices.data(),
                               .first = first,
                               .shared = shared.f32(),
                               .shared_gate = shared_gate.f32(),
                               .y = y.f32(),
                               .hidden = scratch.hidden.f32(),
                               .outputs = scratch.outputs.f32(),
                               .workspace = scratch.workspace});
}

}  // namespace wp::ops
