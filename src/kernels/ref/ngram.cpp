#include <algorithm>

#include "core/assert.h"
#include "kernels/ref/decode.h"
#include "kernels/ref/ref.h"

namespace wp::kernels::ref {
namespace {

constexpr int64_t kOrderMax = 16;

void hash_segment(const NgramRows& p, const SegmentView& segment) {
  const int64_t history = p.order - 1;
  const int32_t* tokens = p.tokens + segment.row_begin;
  int32_t before[kOrderMax];
  for (int64_t i = 0; i < history; ++i)
    before[i] =
        segment.state_in ? reinterpret_cast<const int32_t*>(segment.state_in + p.state_offset)[i] : p.end_of_text;
  const auto id = [&](int64_t row) { return row >= 0 ? tokens[row] : before[history + row]; };

  for (int64_t t = 0; t < segment.rows; ++t) {
    int64_t* rows = p.rows + (segment.row_begin + t) * history * p.heads;
    uint64_t mix = static_cast<uint64_t>(id(t)) * static_cast<uint64_t>(p.multipliers[0]);
    bool ended = false;
    for (int64_t back = 1; back < p.order; ++back) {
      // An end of text behind the current token hides all that is older.
      ended = ended || id(t - back) == p.end_of_text;
      const int64_t token = ended ? p.end_of_text : id(t - back);
      mix ^= static_cast<uint64_t>(token) * static_cast<uint64_t>(p.multipliers[back]);
      for (int64_t h = (back - 1) * p.heads; h < back * p.heads; ++h)
        rows[h] = static_cast<int64_t>(mix % static_cast<uint64_t>(p.moduli[h])) + p.offsets[h];
    }
  }
  const auto save = [&](std::byte* record, int64_t rows) {
    auto* state = reinterpret_cast<int32_t*>(record + p.state_offset);
    for (int64_t i = 0; i < history; ++i) state[i] = id(rows - history + i);
  };
  for (int32_t i = 0; i < segment.captures_count; ++i) save(segment.captures[i].anchor, segment.captures[i].rows);
  save(segment.state_out, segment.rows);
}

void gate_row(const NgramGate& p, int64_t t) {
  for (int64_t s = 0; s < p.S; ++s) {
    const int64_t at = (t * p.S + s) * p.M;
    const double key_scale = inverse_rms(p.key + at, p.M, p.epsilon);
    const double query_scale = inverse_rms(p.H + at, p.M, p.epsilon);
    double u = 0;
    for (int64_t m = 0; m < p.M; ++m)
      u += p.key[at + m] * key_scale * (1.0 + p.norm_key[s * p.M + m]) * p.H[at + m] * query_scale *
           (1.0 + p.norm_query[s * p.M + m]);
    u /= std::sqrt(static_cast<double>(p.M));
    const double root = std::sqrt(std::max(std::abs(u), 1e-6));
    const double gate = sigmoid(u > 0 ? root : u < 0 ? -root : 0.0);
    for (int64_t m = 0; m < p.M; ++m) p.gated[at + m] = static_cast<float>(gate * p.value[t * p.M + m]);
    const double scale = inverse_rms(p.gated + at, p.M, p.epsilon);
    for (int64_t m = 0; m < p.M; ++m)
      p.normed[at + m] = static_cast<float>(p.gated[at + m] * scale * (1.0 + p.norm_conv[s * p.M + m]));
  }
}

}  // namespace

void ngram_rows(Stream& stream, const NgramRows& p) {
  WP_ASSERT(p.order <= kOrderMax);
  stream.threads().run(p.batch.segments_count, [&](int64_t s, int) { hash_segment(p, p.batch.segments[s]); });
}

void ngram_gate(Stream& stream, const NgramGate& p) {
  stream.threads().run(p.T, [&](int64_t t, int) { gate_row(p, t); });
}

}  // namespace wp::kernels::ref
