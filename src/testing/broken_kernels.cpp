#include "testing/broken_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/tables.h"

namespace wp::testing {
namespace {

using kernels::Attention;
using kernels::Gdn;
using kernels::Matmul;
using kernels::SegmentView;

template <class Args>
StandIn stand_in(const char* op, void (*kernel)(Stream&, const Args&)) {
  return {.op = op, .kernel = reinterpret_cast<void (*)()>(kernel)};
}

// The rows t for which `split(t)`: the sums over the first and the second half of K, added.
template <class Split>
void matmul_in_halves(Stream& stream, const Matmul& p, const Split& split) {
  const auto kernel = ops::matmul_kernels.of(stream.kind());
  kernel(stream, p);
  const int64_t K = p.W.K, N = p.W.N;
  std::vector<float> x(static_cast<size_t>(p.T * K)), low(static_cast<size_t>(p.T * N)), high(low.size());
  for (const bool second : {false, true}) {
    std::fill(x.begin(), x.end(), 0.0f);
    for (int64_t t = 0; t < p.T; ++t) {
      const float* from = p.x + (p.rows ? p.rows[t] : t) * p.x_stride;
      std::copy(from + (second ? K / 2 : 0), from + (second ? K : K / 2), x.begin() + t * K + (second ? K / 2 : 0));
    }
    kernel(stream,
           {.T = p.T, .W = p.W, .x = x.data(), .x_stride = K, .y = (second ? high : low).data(), .y_stride = N});
  }
  for (int64_t t = 0; t < p.T; ++t)
    for (int64_t n = 0; n < N && split(t); ++n)
      p.y[t * p.y_stride + n] = low[static_cast<size_t>(t * N + n)] + high[static_cast<size_t>(t * N + n)];
}

void by_row_count(Stream& stream, const Matmul& p) {
  matmul_in_halves(stream, p, [&](int64_t) { return p.T > 64; });
}
void by_place(Stream& stream, const Matmul& p) {
  matmul_in_halves(stream, p, [](int64_t t) { return t >= 32; });
}
void by_batch(Stream& stream, const Matmul& p) {
  matmul_in_halves(stream, p, [&](int64_t) { return p.T > 1; });
}
void by_threads(Stream& stream, const Matmul& p) {
  matmul_in_halves(stream, p, [&](int64_t) { return stream.threads().threads() > 1; });
}

void round_to_16_bits(std::byte* floats, int64_t count) {
  for (int64_t i = 0; i < count; ++i) std::memset(floats + i * 4, 0, 2);  // Little endian: the low half.
}

// Rows [row, row + rows) of the segment as a pass of their own.
void run_gdn(Stream& stream, const Gdn& p, const SegmentView& segment, int32_t row, int32_t rows,
             const std::vector<kernels::CaptureView>& captures) {
  SegmentView part = segment;
  part.row_begin = 0;
  part.rows = rows;
  part.position += row;
  if (row > 0) part.state_in = segment.state_out;
  part.captures = captures.data();
  part.captures_count = static_cast<int32_t>(captures.size());
  std::vector<int32_t> row_segment(static_cast<size_t>(rows), 0), row_position;
  for (int32_t t = 0; t < rows; ++t) row_position.push_back(part.position + t);
  Gdn q = p;
  const int64_t at = segment.row_begin + row;
  q.batch.rows = rows;
  q.batch.segments_count = 1;
  q.batch.segments = &part;
  q.batch.row_segment = row_segment.data();
  q.batch.row_position = row_position.data();
  q.qkv += at * p.channels();
  q.a += at * p.HV;
  q.b += at * p.HV;
  q.o += at * p.HV * p.DV;
  q.spare += at * p.channels();
  ops::gdn_kernels.of(stream.kind())(stream, q);
}

void gdn_in_chunks_of_the_pass(Stream& stream, const Gdn& p) {
  for (int32_t s = 0; s < p.batch.segments_count; ++s) {
    const SegmentView& segment = p.batch.segments[s];
    for (int32_t row = 0; row < segment.rows; row += 64) {
      const int32_t rows = std::min(64, segment.rows - row);
      std::vector<kernels::CaptureView> captures;
      for (int32_t c = 0; c < segment.captures_count; ++c)
        if (segment.captures[c].rows > row && segment.captures[c].rows <= row + rows)
          captures.push_back({segment.captures[c].rows - row, segment.captures[c].anchor});
      run_gdn(stream, p, segment, row, rows, captures);
      if (row + rows < segment.rows) round_to_16_bits(segment.state_out + p.state_offset, p.HV * p.DK * p.DV);
    }
  }
}

void gdn_with_narrow_anchors(Stream& stream, const Gdn& p) {
  ops::gdn_kernels.of(stream.kind())(stream, p);
  for (int32_t s = 0; s < p.batch.segments_count; ++s)
    for (int32_t c = 0; c < p.batch.segments[s].captures_count; ++c)
      round_to_16_bits(p.batch.segments[s].captures[c].anchor + p.state_offset, p.HV * p.DK * p.DV);
}

// What a softmax over some of the keys leaves: its maximum, its sum, its weighted values.
struct Partial {
  float maximum = -INFINITY, sum = 0;
  std::vector<float> values;
};

Partial attend_to(const Attention& p, const SegmentView& segment, const float* q, int64_t head, int64_t begin,
                  int64_t end) {
  const auto layer = [&](int64_t position) {
    const int32_t page = segment.pages[position / kernels::kPageTokens];
    return reinterpret_cast<const float*>(p.batch.pages + page * p.batch.page_bytes + p.pages.page_offset);
  };
  std::vector<float> scores;
  Partial partial{.values = std::vector<float>(static_cast<size_t>(p.D))};
  for (int64_t j = begin; j < end; ++j) {
    float score = 0;
    for (int64_t d = 0; d < p.D; ++d) score += q[d] * layer(j)[p.pages.layout.k_at(head, j % kernels::kPageTokens, d)];
    scores.push_back(score * p.scale);
    partial.maximum = std::max(partial.maximum, scores.back());
  }
  for (int64_t j = begin; j < end; ++j) {
    const float weight = std::exp(scores[static_cast<size_t>(j - begin)] - partial.maximum);
    partial.sum += weight;
    for (int64_t d = 0; d < p.D; ++d)
      partial.values[static_cast<size_t>(d)] +=
          weight * layer(j)[p.pages.layout.v_at(head, j % kernels::kPageTokens, d)];
  }
  return partial;
}

// Rows that attend to everything; those that select stay as they are.
void attention_in_two_parts(Stream& stream, const Attention& p) {
  ops::attention_kernels.of(stream.kind())(stream, p);
  for (int32_t t = 0; t < p.batch.rows; ++t) {
    const SegmentView& segment = p.batch.segments[p.batch.row_segment[t]];
    const int64_t position = p.batch.row_position[t];
    if (segment.position == 0 || (p.budget > 0 && (position + 1) / kernels::kBlockTokens > p.budget)) continue;
    for (int64_t h = 0; h < p.HQ; ++h) {
      const int64_t row = t * p.HQ + h, key_head = h / (p.HQ / p.HK);
      const Partial cached = attend_to(p, segment, p.q + row * p.D, key_head, 0, segment.position);
      const Partial fresh = attend_to(p, segment, p.q + row * p.D, key_head, segment.position, position + 1);
      const float maximum = std::max(cached.maximum, fresh.maximum);
      const float a = std::exp(cached.maximum - maximum), b = std::exp(fresh.maximum - maximum);
      for (int64_t d = 0; d < p.D; ++d) {
        const auto i = static_cast<size_t>(d);
        const float merged = (a * cached.values[i] + b * fresh.values[i]) / (a * cached.sum + b * fresh.sum);
        p.o[row * p.D + d] = merged / (1 + std::exp(-p.q_gate[(2 * row + 1) * p.D + d]));
      }
    }
  }
}

}  // namespace

StandIn split_by_row_count() { return stand_in("matmul", by_row_count); }
StandIn split_by_place() { return stand_in("matmul", by_place); }
StandIn split_by_batch() { return stand_in("matmul", by_batch); }
StandIn split_by_threads() { return stand_in("matmul", by_threads); }
StandIn chunks_from_pass() { return stand_in("gdn", gdn_in_chunks_of_the_pass); }
StandIn cached_keys_apart() { return stand_in("attention", attention_in_two_parts); }
StandIn anchors_of_half_width() { return stand_in("gdn", gdn_with_narrow_anchors); }

}  // namespace wp::testing
