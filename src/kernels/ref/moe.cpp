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

// Calls body(rows, choices, count) for the choices of expert e, some at a time; rows are theirs of `x` of this width.
template <class Body>
void for_choices(const Experts& p, int64_t e, const float* x, int64_t width, int64_t choices_per_row,
                 const Body& body) {
  const float* rows[kTileRows];
  for (int64_t begin = p.offsets[e]; begin < p.offsets[e + 1]; begin += kTileRows) {
    const int64_t count = std::min<int64_t>(kTileRows, p.offsets[e + 1] - begin);
    for (int64_t i = 0; i < count; ++i) rows[i] = x + p.order[begin + i] / choices_per_row * width;
    body(rows, p.order + begin, count);
  }
}

}  // namespace

void router(Stream& stream, const Router& p) {
  stream.threads().run(p.T, [&](int64_t t, int) { choose(p, t); });
  group(p);
}

void experts(Stream& stream, const Experts& p) {
  stream.threads().run(p.E * p.F, [&](int64_t unit, int) {
    const int64_t e = unit / p.F, f = unit % p.F;
    for_choices(p, e, p.x, p.M, p.A, [&](const float* const* rows, const int32_t* choices, int64_t count) {
      double gate[kTileRows], up[kTileRows];
      dots(p.matrices[e].gate, f, rows, count, gate);
      dots(p.matrices[e].up, f, rows, count, up);
      for (int64_t i = 0; i < count; ++i)
        p.hidden[choices[i] * 2 * p.F + f] = static_cast<float>(silu(gate[i]) * up[i]);
    });
  });
  stream.threads().run(p.E * p.M, [&](int64_t unit, int) {
    const int64_t e = unit / p.M, m = unit % p.M;
    for_choices(p, e, p.hidden, 2 * p.F, 1, [&](const float* const* rows, const int32_t* choices, int64_t count) {
      double out[kTileRows];
      dots(p.matrices[e].down, m, rows, count, out);
      for (int64_t i = 0; i < count; ++i) p.outputs[choices[i] * p.M + m] = static_cast<float>(out[i]);
    });
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
