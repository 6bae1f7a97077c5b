// Short causal convolution with silu, and the gated norm behind the delta rule. Rows are independent; the state is
// written when all rows have been read, since it may lie where they read.
#include <cstring>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/regions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kTapsMax = 8;

// Row `row` of a segment, negative: from the state. Null stands for zeros.
const float* conv_row(const ConvSilu& p, const SegmentView& segment, int64_t row) {
  if (row >= 0) return p.u + (segment.row_begin + row) * p.C;
  if (!segment.state_in) return nullptr;
  return reinterpret_cast<const float*>(segment.state_in + p.state_offset) + (p.history() + row) * p.C;
}

void conv_rows(const ConvSilu& p, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const SegmentView& segment = p.batch.segments[p.batch.row_segment[t]];
    const float* taps[kTapsMax];
    for (int64_t i = 0; i < p.taps; ++i)
      taps[i] = conv_row(p, segment, t - segment.row_begin - (p.taps - 1 - i) * p.dilation);
    for (int64_t c = 0; c < p.C; c += kLanes) {
      const int64_t rest = p.C - c;
      V16 sums = zero();
      for (int64_t i = 0; i < p.taps; ++i) {
        const V16 u = taps[i] ? load_some(taps[i] + c, rest) : zero();
        sums = fma(load_some(p.weight + i * p.C + c, rest), u, sums);
      }
      store_some(silu(sums), p.y + t * p.C + c, rest);
    }
  }
}

// The last rows of u before row `rows` of the segment. Ascending: where state_in and the record are one, row i of the
// new state is row i + rows of the old, not yet written.
void save_rows(const ConvSilu& p, const SegmentView& segment, int64_t rows, std::byte* record) {
  float* state = reinterpret_cast<float*>(record + p.state_offset);
  const size_t bytes = static_cast<size_t>(p.C) * sizeof(float);
  for (int64_t i = 0; i < p.history(); ++i) {
    const float* from = conv_row(p, segment, rows - p.history() + i);
    if (from) std::memmove(state + i * p.C, from, bytes);
    else std::memset(state + i * p.C, 0, bytes);
  }
}

void conv_silu(Stream& stream, const ConvSilu& p) {
  WP_ASSERT(p.taps <= kTapsMax);
  for_ranges(stream, p.batch.rows, 16, p.batch.rows * p.C * 2,
             [&](int64_t begin, int64_t end, int) HWY_ATTR { conv_rows(p, begin, end); });
  for (int32_t s = 0; s < p.batch.segments_count; ++s) {
    const SegmentView& segment = p.batch.segments[s];
    for (int32_t i = 0; i < segment.captures_count; ++i)
      save_rows(p, segment, segment.captures[i].rows, segment.captures[i].anchor);
    save_rows(p, segment, segment.rows, segment.state_out);
  }
}

void gated_norm(Stream& stream, const GatedNorm& p) {
  const int64_t rows = p.T * p.HV;
  for_ranges(stream, rows, 64, rows * p.DV, [&](int64_t begin, int64_t end, int) HWY_ATTR {
    for (int64_t i = begin; i < end; ++i) {
      const float *o = p.o + i * p.DV, *z = p.z + i * p.DV;
      const V16 scale = inverse_rms(o, p.DV, p.epsilon);
      for (int64_t j = 0; j < p.DV; j += kLanes) {
        const int64_t rest = p.DV - j;
        const V16 gate_in = load_some(z + j, rest);
        const V16 gate = p.gate == Gate::sigmoid ? sigmoid(gate_in) : silu(gate_in);
        const V16 normed = mul(mul(load_some(o + j, rest), scale), load_some(p.weight + j, rest));
        store_some(mul(normed, gate), p.y + i * p.DV + j, rest);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
HWY_EXPORT(conv_silu);
HWY_EXPORT(gated_norm);
void conv_silu(Stream& stream, const ConvSilu& p) { HWY_DYNAMIC_DISPATCH(conv_silu)(stream, p); }
void gated_norm(Stream& stream, const GatedNorm& p) { HWY_DYNAMIC_DISPATCH(gated_norm)(stream, p); }
}  // namespace wp::kernels::cpu
#endif
