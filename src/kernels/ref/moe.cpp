#include <algorithm>

#include "core/assert.h"
#include "kernels/ref/decode.h"
#include "kernels/ref/ref.h"

namespace wp::kernels::ref {
namespace {

// Chooses for one row by A passes over the logits; the softmax runs over all E.
void choose(const Router& p, int64_t t) {
  const float* logits = p.logits + t * p.E;
  int32_t* chosen = p.experts + t * p.A;
  for (int64_t i = 0; i < p.A; ++i) {
    int32_t best = -1;
    for (int32_t e = 0; e < p.E; ++e) {
      if (std::find(chosen, chosen + i, e) != chosen + i) continue;
      if (best < 0 || logits[e] > logits[best]) best = e;  // Ties stay with the lower expert.
    }
    chosen[i] = best;
  }
  const double maximum = logits[chosen[0]];
  std::sort(chosen, chosen + p.A);
  double all = 0, some = 0;
  for (int64_t e = 0; e < p.E; ++e) all += std::exp(logits[e] - maximum);
  for (int64_t i = 0; i < p.A; ++i) some += std::exp(logits[chosen[i]] - maximum);
  for (int64_t i = 0; i < p.A; ++i)
    p.weights[t * p.A + i] = static_cast<float>(std::exp(logits[chosen[i]] - maximum) / (p.normalise ? some : all));
}

void group(const Router& p) {
  std::fill_n(p.offsets, p.E + 1, 0);
  for (int64_t i = 0; i < p.T * p.A; ++i) ++p.offsets[p.experts[i] + 1];
  for (int64_t e = 0; e < p.E; ++e) p.offsets[e + 1] += p.offsets[e];
  // Fills each group from its end, so that the offsets of the ends become those of the begins.
  for (int64_t i = p.T * p.A - 1; i >= 0; --i) p.order[--p.offsets[p.experts[i] + 1]] = static_cast<int32_t>(i);
  std::copy_n(p.offsets + 1, p.E, p.offsets);
  p.offsets[p.E] = static_cast<int32_t>(p.T * p.A);
}

double dot(const Matrix& W, int64_t n, const float* x) {
  double sum = 0;
  for (int64_t k = 0; k < W.K; ++k) sum += element(W, n, k) * x[k];
  return sum;
}

}  // namespace

void router(Stream& stream, const Router& p) {
  stream.threads().run(p.T, [&](int64_t t, int) { choose(p, t); });
  group(p);
}

void experts(Stream& stream, const Experts& p) {
  stream.threads().run(p.T * p.A, [&](int64_t position, int) {
    const int64_t choice = p.order[position];
    const ExpertWeights& expert = p.matrices[p.experts[choice]];
    const float* x = p.x + choice / p.A * p.M;
    float* hidden = p.hidden + choice * 2 * p.F;
    for (int64_t f = 0; f < p.F; ++f)
      hidden[f] = static_cast<float>(silu(dot(expert.gate, f, x)) * dot(expert.up, f, x));
    for (int64_t m = 0; m < p.M; ++m) p.outputs[choice * p.M + m] = static_cast<float>(dot(expert.down, m, hidden));
  });
  stream.threads().run(p.T, [&](int64_t t, int) {
    const double shared = sigmoid(p.shared_gate[t]);
    for (int64_t m = 0; m < p.M; ++m) {
      double sum = 0;
      for (int64_t i = 0; i < p.A; ++i)
        sum += static_cast<double>(p.weights[t * p.A + i]) * p.outputs[(t * p.A + i) * p.M + m];
      p.y[t * p.M + m] = static_cast<float>(sum + shared * p.shared[t * p.M + m]);
    }
  });
}

}  // namespace wp::kernels::ref
