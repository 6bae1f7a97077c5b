#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "kernels/ref/decode.h"
#include "kernels/ref/ref.h"

namespace wp::kernels::ref {
namespace {

const float* floats(const std::byte* record, int64_t offset) {
  return record ? reinterpret_cast<const float*>(record + offset) : nullptr;
}
float* floats(std::byte* record, int64_t offset) { return reinterpret_cast<float*>(record + offset); }

// Channel c of one segment, and its part of the state. What state_in holds is read before state_out is written: they
// may be one record.
void conv_channel(const ConvSilu& p, const SegmentView& segment, int64_t c) {
  const int64_t history = p.history();
  const float* before = floats(segment.state_in, p.state_offset);
  const float* u = p.u + static_cast<int64_t>(segment.row_begin) * p.C + c;
  const auto at = [&](int64_t row) -> float {  // Row of the segment; negative: before it.
    if (row >= 0) return u[row * p.C];
    return before ? before[(history + row) * p.C + c] : 0.0f;
  };
  for (int64_t t = 0; t < segment.rows; ++t) {
    double sum = 0;
    for (int64_t i = 0; i < p.taps; ++i)
      sum += static_cast<double>(p.weight[i * p.C + c]) * at(t - (p.taps - 1 - i) * p.dilation);
    p.y[(segment.row_begin + t) * p.C + c] = static_cast<float>(silu(sum));
  }
  const auto save = [&](std::byte* record, int64_t rows) {
    float* state = floats(record, p.state_offset) + c;
    // Ascending: row i of the new state is row i + rows of the old one, never written yet.
    for (int64_t i = 0; i < history; ++i) state[i * p.C] = at(rows - history + i);
  };
  for (int32_t i = 0; i < segment.captures_count; ++i) save(segment.captures[i].anchor, segment.captures[i].rows);
  save(segment.state_out, segment.rows);
}

constexpr int64_t kHeadMax = 1024;  // Widest head.

// One token of one value head. The state is rounded to f32 after each token, so that a segment may begin anywhere.
void gdn_token(const Gdn& p, int64_t t, int64_t head, float* S) {
  const int64_t DK = p.DK, DV = p.DV, key_head = head / (p.HV / p.HK);
  const float* q = p.qkv + t * p.channels() + key_head * DK;
  const float* k = q + p.HK * DK;
  const float* v = p.qkv + t * p.channels() + 2 * p.HK * DK + head * DV;
  double q_squares = 0, k_squares = 0;
  for (int64_t i = 0; i < DK; ++i) {
    q_squares += static_cast<double>(q[i]) * q[i];
    k_squares += static_cast<double>(k[i]) * k[i];
  }
  const double q_scale = 1.0 / std::sqrt(q_squares + 1e-6) / std::sqrt(static_cast<double>(DK));
  const double k_scale = 1.0 / std::sqrt(k_squares + 1e-6);
  const double beta = sigmoid(p.b[t * p.HV + head]);
  const double rate = softplus(static_cast<double>(p.a[t * p.HV + head]) + p.dt_bias[head]);
  const double decay = std::exp(-std::exp(static_cast<double>(p.A_log[head])) * rate);

  double recalled[kHeadMax] = {}, write[kHeadMax], o[kHeadMax] = {};
  for (int64_t i = 0; i < DK; ++i) {
    const double k_i = k[i] * k_scale * decay;
    for (int64_t j = 0; j < DV; ++j) recalled[j] += S[i * DV + j] * k_i;
  }
  for (int64_t j = 0; j < DV; ++j) write[j] = beta * (v[j] - recalled[j]);
  for (int64_t i = 0; i < DK; ++i) {
    const double k_i = k[i] * k_scale, q_i = q[i] * q_scale;
    for (int64_t j = 0; j < DV; ++j) {
      const double s = decay * S[i * DV + j] + k_i * write[j];
      S[i * DV + j] = static_cast<float>(s);
      o[j] += s * q_i;
    }
  }
  for (int64_t j = 0; j < DV; ++j) p.o[(t * p.HV + head) * DV + j] = static_cast<float>(o[j]);
}

// One head over one segment. The state lives in state_out while it runs.
void gdn_head(const Gdn& p, const SegmentView& segment, int64_t head) {
  const int64_t count = p.DK * p.DV, at = head * count;
  float* S = floats(segment.state_out, p.state_offset) + at;
  if (!segment.state_in) {
    std::fill_n(S, count, 0.0f);
  } else if (segment.state_in != segment.state_out) {
    std::copy_n(floats(segment.state_in, p.state_offset) + at, count, S);
  }
  int32_t capture = 0;
  for (int32_t t = 0; t < segment.rows; ++t) {
    gdn_token(p, segment.row_begin + t, head, S);
    if (capture < segment.captures_count && segment.captures[capture].rows == t + 1)
      std::copy_n(S, count, floats(segment.captures[capture++].anchor, p.state_offset) + at);
  }
}

}  // namespace

void conv_silu(Stream& stream, const ConvSilu& p) {
  stream.threads().run(p.batch.segments_count * p.C,
                       [&](int64_t i, int) { conv_channel(p, p.batch.segments[i / p.C], i % p.C); });
}

void gdn(Stream& stream, const Gdn& p) {
  WP_ASSERT(p.DV <= kHeadMax);
  stream.threads().run(p.batch.segments_count * p.HV,
                       [&](int64_t i, int) { gdn_head(p, p.batch.segments[i / p.HV], i % p.HV); });
}

void gated_norm(Stream& stream, const GatedNorm& p) {
  stream.threads().run(p.T * p.HV, [&](int64_t i, int) {
    const float *o = p.o + i * p.DV, *z = p.z + i * p.DV;
    float* y = p.y + i * p.DV;
    const double scale = inverse_rms(o, p.DV, p.epsilon);
    for (int64_t j = 0; j < p.DV; ++j) {
      const double gate = p.gate == Gate::sigmoid ? sigmoid(z[j]) : silu(z[j]);
      y[j] = static_cast<float>(o[j] * scale * p.weight[j] * gate);
    }
  });
}

}  // namespace wp::kernels::ref
