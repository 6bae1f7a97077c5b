// Work of an operation, from its shapes: floating-point operations (two for a multiply-add) and bytes that have to move
// through the device's memory once: weights, states, activations in and out. What depends on data (the keys that a row
// sees) is left at 0.
#pragma once

#include <cmath>

#include "device/recorder.h"
#include "kernels/attention.h"
#include "kernels/gdn.h"
#include "kernels/linear.h"
#include "kernels/moe.h"
#include "kernels/ngram.h"
#include "kernels/residual.h"

namespace wp::kernels {

template <class Args>
Cost cost_of(const Args&) {
  return {};
}

inline double weight_bytes(const Matrix& W) { return static_cast<double>(W.data_bytes() + W.scale_bytes()); }

inline Cost cost_of(const Matmul& p) {
  const auto T = static_cast<double>(p.T), N = static_cast<double>(p.W.N), K = static_cast<double>(p.W.K);
  return {2 * T * N * K, weight_bytes(p.W) + 4 * T * (N + K)};
}

inline Cost cost_of(const MatmulGroup& p) {
  Cost all{0, 4 * static_cast<double>(p.T) * static_cast<double>(p.products[0].W.K)};
  for (int i = 0; i < p.count; ++i) {
    const Cost one = cost_of(p.at(i));
    all.flops += one.flops;
    all.bytes += one.bytes - 4 * static_cast<double>(p.T) * static_cast<double>(p.products[i].W.K);
  }
  return all;
}

// Of E experts those that T rows with A choices each are expected to meet.
inline Cost cost_of(const Experts& p) {
  const auto T = static_cast<double>(p.T), M = static_cast<double>(p.M), F = static_cast<double>(p.F);
  const auto E = static_cast<double>(p.E), A = static_cast<double>(p.A);
  const double met = E * (1 - std::pow(1 - A / E, T));
  const ExpertWeights& one = p.first;  // `matrices` may lie where the host cannot read.
  return {6 * T * A * M * F,
          met * (weight_bytes(one.gate) + weight_bytes(one.up) + weight_bytes(one.down)) + 4 * T * M * (2 + A)};
}

inline Cost cost_of(const GatedResidual& p) {
  const auto T = static_cast<double>(p.T), W = static_cast<double>(p.S * p.M), R = static_cast<double>(p.R);
  const auto S = p.weights ? static_cast<double>(p.S) : 0;
  return {2 * T * W * (2 * R + S), weight_bytes(p.down) + weight_bytes(p.up) +
                                       (p.weights ? weight_bytes(p.inject) : 0) +
                                       4 * T * (W + static_cast<double>(p.M))};
}

inline Cost cost_of(const Inject& p) {
  return {2 * static_cast<double>(p.T * p.S * p.M), 4 * static_cast<double>(p.T * p.M * (2 * p.S + 1))};
}

// Each segment's state is read and written once.
inline Cost cost_of(const Gdn& p) {
  const auto rows = static_cast<double>(p.batch.rows), segments = static_cast<double>(p.batch.segments_count);
  const auto state = static_cast<double>(p.HV * p.DK * p.DV);
  return {7 * rows * state, 8 * segments * state + 4 * rows * static_cast<double>(p.channels() + p.HV * (p.DV + 2))};
}

inline Cost cost_of(const ConvSilu& p) {
  const auto values = static_cast<double>(p.batch.rows * p.C);
  return {2 * values * static_cast<double>(p.taps), 8 * values};
}

inline Cost cost_of(const GatedNorm& p) { return {0, 12 * static_cast<double>(p.T * p.HV * p.DV)}; }

inline Cost cost_of(const RmsNorm& p) { return {0, 8 * static_cast<double>(p.T * p.groups * p.width)}; }

inline Cost cost_of(const Add& p) { return {0, 4 * static_cast<double>(p.count) * (p.b ? 4 : 3)}; }
inline Cost cost_of(const SiluMul& p) { return {0, 12 * static_cast<double>(p.count)}; }

}  // namespace wp::kernels
