// Gated delta rule, token by token (equation and shapes: kernels/gdn.h). A value column of the state depends on no
// other, so a task takes some columns of one head through the whole segment with that part of the state in L1,
// [DK, columns]. The pass over it that writes the state of token t also reads it for the recall of token t + 1:
//   s = g_t S + k_t delta_t;   o_t += s q_t;   recalled_{t+1} += s k_{t+1}
// one load, one store, one product and three multiply-adds for each element and token. As tokens are taken one by one,
// neither pieces nor phases show in the bits. Four chains over the DK rows, row i in chain i mod 4.
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/regions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gdn.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// Vectors of columns in one task.
#if HWY_TARGET == HWY_AVX3
constexpr int kColumnVectors = 2;
#else
constexpr int kColumnVectors = 1;
#endif
constexpr int kColumnSlices = 2;  // Of that many vectors, in one task.
constexpr int kColumnChains = 4;

// x <- x / sqrt(sum x^2 + 1e-6) * factor
HWY_INLINE void unit_length(float* x, int64_t width, V16 factor) {
  const V16 scale = mul(reciprocal_sqrt(add(set(dot(x, x, width)), set(1e-6f))), factor);
  for (int64_t i = 0; i < width; i += kLanes) {
    const int64_t rest = width - i;
    store_some(mul(load_some(x + i, rest), scale), x + i, rest);
  }
}

// In place: q and k of unit length, q scaled; a becomes the decay, b the write strength.
void prepare_rows(const Gdn& p, int64_t begin, int64_t end) {
  const V16 one = set(1.0f), q_factor = reciprocal_sqrt(set(static_cast<float>(p.DK)));
  for (int64_t t = begin; t < end; ++t) {
    float* q = p.qkv + t * p.channels();
    for (int64_t h = 0; h < 2 * p.HK; ++h) unit_length(q + h * p.DK, p.DK, h < p.HK ? q_factor : one);
    for (int64_t h = 0; h < p.HV; h += kLanes) {
      const int64_t rest = p.HV - h;
      float *a = p.a + t * p.HV + h, *b = p.b + t * p.HV + h;
      const V16 rate = softplus(add(load_some(a, rest), load_some(p.dt_bias + h, rest)));
      const V16 decay = exp(neg(mul(exp(load_some(p.A_log + h, rest)), rate)));
      store_some(decay, a, rest);
      store_some(sigmoid(load_some(b, rest)), b, rest);
    }
  }
}

template <int kVectors>
struct Columns {
  V16 v[kVectors];
};

template <int kVectors>
HWY_INLINE Columns<kVectors> join(const V16 (&chains)[kColumnChains][kVectors]) {
  Columns<kVectors> r;
  for (int c = 0; c < kVectors; ++c) r.v[c] = add(add(chains[0][c], chains[1][c]), add(chains[2][c], chains[3][c]));
  return r;
}

// S^T k, in the order in which the pass below sums.
template <int kVectors>
HWY_NOINLINE Columns<kVectors> recall(const float* S, const float* k, int64_t DK) {
  V16 sums[kColumnChains][kVectors];
  for (int n = 0; n < kColumnChains; ++n)
    for (int c = 0; c < kVectors; ++c) sums[n][c] = zero();
  for (int64_t i = 0; i < DK; i += kColumnChains)
    for (int n = 0; n < kColumnChains; ++n) {
      if (i + n >= DK) break;
      const V16 key = set(k[i + n]);
      for (int c = 0; c < kVectors; ++c) sums[n][c] = fma(load(S + ((i + n) * kVectors + c) * kLanes), key, sums[n][c]);
    }
  return join<kVectors>(sums);
}

// One row of the pass. kNext: there is a next token to recall for.
template <int kVectors, bool kNext>
HWY_INLINE void state_row(float* HWY_RESTRICT S, V16 decay, const Columns<kVectors>& delta, float k, float q,
                          float k_next, V16 (&o)[kVectors], V16 (&recalled)[kVectors]) {
  const V16 key = set(k), query = set(q), key_next = set(k_next);
  for (int c = 0; c < kVectors; ++c) {
    const V16 s = fma(key, delta.v[c], mul(decay, load(S + c * kLanes)));
    store(s, S + c * kLanes);
    o[c] = fma(s, query, o[c]);
    if constexpr (kNext) recalled[c] = fma(s, key_next, recalled[c]);
  }
}

// S <- g S + k delta; o = S^T q; returns S^T k_next.
template <int kVectors, bool kNext>
HWY_NOINLINE Columns<kVectors> pass(float* HWY_RESTRICT S, int64_t DK, float g, const Columns<kVectors>& written,
                                    const float* HWY_RESTRICT k, const float* HWY_RESTRICT q,
                                    const float* HWY_RESTRICT k_next, Columns<kVectors>& out) {
  V16 o[kColumnChains][kVectors], recalled[kColumnChains][kVectors];
  for (int n = 0; n < kColumnChains; ++n)
    for (int c = 0; c < kVectors; ++c) o[n][c] = recalled[n][c] = zero();
  const V16 decay = set(g);
  const Columns<kVectors> delta = written;  // In registers: stores to S might change what lies in memory.
  int64_t i = 0;
  for (; i + kColumnChains <= DK; i += kColumnChains)
    for (int n = 0; n < kColumnChains; ++n)
      state_row<kVectors, kNext>(S + (i + n) * kVectors * kLanes, decay, delta, k[i + n], q[i + n],
                                 kNext ? k_next[i + n] : 0.0f, o[n], recalled[n]);
  for (int n = 0; n < kColumnChains; ++n, ++i)
    if (i < DK)
      state_row<kVectors, kNext>(S + i * kVectors * kLanes, decay, delta, k[i], q[i], kNext ? k_next[i] : 0.0f, o[n],
                                 recalled[n]);
  out = join<kVectors>(o);
  return join<kVectors>(recalled);
}

// A task's columns between a record and its own memory; those past DV are 0.
template <int kVectors>
struct ColumnSlice {
  const Gdn& p;
  int64_t head, column;

  int64_t count(int c) const { return p.DV - column - c * kLanes; }
  HWY_INLINE void read(const std::byte* record, float* S) const {
    if (!record) {
      std::memset(S, 0, static_cast<size_t>(p.DK * kVectors * kLanes) * sizeof(float));
      return;
    }
    const float* from = reinterpret_cast<const float*>(record + p.state_offset) + head * p.DK * p.DV + column;
    for (int64_t i = 0; i < p.DK; ++i)
      for (int c = 0; c < kVectors; ++c)
        store(load_some(from + i * p.DV + c * kLanes, count(c)), S + (i * kVectors + c) * kLanes);
  }
  HWY_INLINE void write(const float* S, std::byte* record) const {
    float* to = reinterpret_cast<float*>(record + p.state_offset) + head * p.DK * p.DV + column;
    for (int64_t i = 0; i < p.DK; ++i)
      for (int c = 0; c < kVectors; ++c)
        store_some(load(S + (i * kVectors + c) * kLanes), to + i * p.DV + c * kLanes, count(c));
  }
};

// Rows [begin, end) of a segment, for kSlices neighbouring slices of kVectors vectors of columns. A slice's next token
// has to wait for its recall; meanwhile the other slice computes.
template <int kVectors, int kSlices>
class Walk {
 public:
  HWY_INLINE Walk(const Gdn& p, const SegmentView& segment, int64_t head, int64_t column, float* S)
      : p_(p), segment_(segment), head_(head), column_(column), S_(S) {
    const float* row = p.qkv + segment.row_begin * p.channels();
    q_ = row + head / (p.HV / p.HK) * p.DK;
    k_ = q_ + p.HK * p.DK;
    v_ = row + 2 * p.HK * p.DK + head * p.DV + column;
  }

  void run(int64_t begin, int64_t end) {
    int32_t capture = 0;
    while (capture < segment_.captures_count && segment_.captures[capture].rows <= begin) ++capture;
    for (int n = 0; n < kSlices; ++n) {
      slice(n).read(begin == 0 ? segment_.state_in : segment_.state_out, state(n));
      recalled_[n] = recall<kVectors>(state(n), k_ + begin * p_.channels(), p_.DK);
    }
    for (int64_t t = begin; t < end; ++t) {
      if (t + 2 < end) prefetch(t + 2);
      for (int n = 0; n < kSlices; ++n) token(t, n, t + 1 < end);
      if (capture < segment_.captures_count && segment_.captures[capture].rows == t + 1)
        write(segment_.captures[capture++].anchor);
    }
    write(segment_.state_out);
  }

 private:
  HWY_INLINE float* state(int n) const { return S_ + n * p_.DK * kVectors * kLanes; }
  HWY_INLINE ColumnSlice<kVectors> slice(int n) const { return {p_, head_, column_ + n * kVectors * kLanes}; }
  void write(std::byte* record) const {
    for (int n = 0; n < kSlices; ++n) slice(n).write(state(n), record);
  }

  // A token's k, q and v lie too far from those of the one before for the machine to guess.
  HWY_INLINE void prefetch(int64_t t) const {
    constexpr int64_t kLine = 16;
    const int64_t at = t * p_.channels();
    for (int64_t i = 0; i < p_.DK; i += kLine) {
      hwy::Prefetch(k_ + at + i);
      hwy::Prefetch(q_ + at + i);
    }
    for (int64_t i = 0; i < kSlices * kVectors * kLanes; i += kLine) hwy::Prefetch(v_ + at + i);
  }

  HWY_INLINE void token(int64_t t, int n, bool more) {
    const ColumnSlice<kVectors> columns = slice(n);
    const int64_t at = (segment_.row_begin + t) * p_.HV + head_, step = t * p_.channels();
    const float *k = k_ + step, *q = q_ + step, *v = v_ + step + n * kVectors * kLanes;
    const V16 decay = set(p_.a[at]), beta = set(p_.b[at]);
    Columns<kVectors> delta, o;
    for (int c = 0; c < kVectors; ++c)
      delta.v[c] = mul(beta, nfma(decay, recalled_[n].v[c], load_some(v + c * kLanes, columns.count(c))));
    if (more) recalled_[n] = pass<kVectors, true>(state(n), p_.DK, p_.a[at], delta, k, q, k + p_.channels(), o);
    else pass<kVectors, false>(state(n), p_.DK, p_.a[at], delta, k, q, nullptr, o);
    for (int c = 0; c < kVectors; ++c)
      store_some(o.v[c], p_.o + at * p_.DV + columns.column + c * kLanes, columns.count(c));
  }

  const Gdn& p_;
  const SegmentView& segment_;
  const int64_t head_, column_;
  float* S_;
  const float *q_, *k_, *v_;
  Columns<kVectors> recalled_[kSlices];
};

// All tasks take the same rows before any takes the next ones: q, k and v of a round stay in L2, where each of the
// HV DV / columns tasks reads them.
constexpr int64_t kRoundBytes = 1 << 20;
constexpr int64_t kPrepareRows = 16;

void gdn(Stream& stream, const Gdn& p) {
  constexpr int64_t kWidth = kColumnSlices * kColumnVectors * kLanes;
  WP_ASSERT(p.DK * kWidth * 4 <= p.workspace.bytes_per_thread);
  const int64_t slices = (p.DV + kWidth - 1) / kWidth, segments = p.batch.segments_count;
  const int64_t row_bytes = (p.channels() + p.HV * p.DV) * 4;
  const int64_t round = std::max<int64_t>(kPrepareRows, kRoundBytes / row_bytes / kPrepareRows * kPrepareRows);
  int64_t longest = 0;
  for (int64_t s = 0; s < segments; ++s) longest = std::max<int64_t>(longest, p.batch.segments[s].rows);
  for (int64_t begin = 0; begin < longest; begin += round) {
    const int64_t ranges = (std::min(round, longest - begin) + kPrepareRows - 1) / kPrepareRows;
    for_ranges(stream, segments * ranges, 1, p.batch.rows * (p.HK * p.DK / 2 + p.HV * 8),
               [&](int64_t i, int64_t, int) HWY_ATTR {
                 const SegmentView& segment = p.batch.segments[i / ranges];
                 const int64_t from = begin + i % ranges * kPrepareRows;
                 const int64_t to = std::min<int64_t>({segment.rows, begin + round, from + kPrepareRows});
                 prepare_rows(p, segment.row_begin + from, segment.row_begin + to);
               });
    stream.threads().run(segments * p.HV * slices, [&](int64_t task, int thread) HWY_ATTR {
      const SegmentView& segment = p.batch.segments[task / (p.HV * slices)];
      const int64_t head = task / slices % p.HV, column = task % slices * kWidth;
      const int64_t end = std::min<int64_t>(segment.rows, begin + round);
      if (begin >= end) return;
      float* S = p.workspace.of<float>(thread);
      const int64_t rest = p.DV - column;
      if (rest > kColumnVectors * kLanes)
        Walk<kColumnVectors, kColumnSlices>(p, segment, head, column, S).run(begin, end);
      else if (rest > kLanes) Walk<kColumnVectors, 1>(p, segment, head, column, S).run(begin, end);
      else Walk<1, 1>(p, segment, head, column, S).run(begin, end);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
HWY_EXPORT(gdn);
void gdn(Stream& stream, const Gdn& p) { HWY_DYNAMIC_DISPATCH(gdn)(stream, p); }
}  // namespace wp::kernels::cpu
#endif
