// N-gram embedding, spec/qwen4_exp.md 3.5: the table rows of each token (integers) and the gates of each stream.
#include <algorithm>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/regions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/ngram.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// normed = (1 + weight) RMS norm of x, in both cases over one stream.
void gate_row(const NgramGate& p, int64_t t, float* key, float* query) {
  for (int64_t s = 0; s < p.S; ++s) {
    const int64_t at = (t * p.S + s) * p.M;
    scale_by_weight(p.key + at, inverse_rms(p.key + at, p.M, p.epsilon), p.norm_key + s * p.M, 1.0f, p.M, key);
    scale_by_weight(p.H + at, inverse_rms(p.H + at, p.M, p.epsilon), p.norm_query + s * p.M, 1.0f, p.M, query);
    const V16 u = div(set(dot(key, query, p.M)), sqrt(set(static_cast<float>(p.M))));
    const V16 root = sqrt(max(abs(u), set(1e-6f)));
    const V16 signed_root = select(less(u, zero()), neg(root), keep(less(zero(), u), root));
    const V16 gate = sigmoid(signed_root);
    for (int64_t m = 0; m < p.M; m += kLanes) {
      const int64_t rest = p.M - m;
      store_some(mul(gate, load_some(p.value + t * p.M + m, rest)), p.gated + at + m, rest);
    }
    const V16 scale = inverse_rms(p.gated + at, p.M, p.epsilon);
    scale_by_weight(p.gated + at, scale, p.norm_conv + s * p.M, 1.0f, p.M, p.normed + at);
  }
}

constexpr int64_t kWidthMax = 8192;

void ngram_gate(Stream& stream, const NgramGate& p) {
  WP_ASSERT(p.M <= kWidthMax);
  for_ranges(stream, p.T, 16, p.T * p.S * p.M, [&](int64_t begin, int64_t end, int) HWY_ATTR {
    HWY_ALIGN float key[kWidthMax], query[kWidthMax];
    for (int64_t t = begin; t < end; ++t) gate_row(p, t, key, query);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
namespace {

constexpr int64_t kOrderMax = 16;

// Token ids of a segment; negative rows come from the state.
class Ids {
 public:
  Ids(const NgramRows& p, const SegmentView& segment) : tokens_(p.tokens + segment.row_begin), history_(p.order - 1) {
    const auto* state =
        segment.state_in ? reinterpret_cast<const int32_t*>(segment.state_in + p.state_offset) : nullptr;
    for (int64_t i = 0; i < history_; ++i) before_[i] = state ? state[i] : p.end_of_text;
  }
  int32_t operator[](int64_t row) const { return row >= 0 ? tokens_[row] : before_[history_ + row]; }

 private:
  const int32_t* tokens_;
  int64_t history_;
  int32_t before_[kOrderMax];
};

void hash_row(const NgramRows& p, const Ids& ids, int64_t t, int64_t* rows) {
  uint64_t mix = static_cast<uint64_t>(ids[t]) * static_cast<uint64_t>(p.multipliers[0]);
  bool ended = false;  // An end of text behind the current token hides all that is older.
  for (int64_t back = 1; back < p.order; ++back) {
    ended = ended || ids[t - back] == p.end_of_text;
    const int32_t id = ended ? p.end_of_text : ids[t - back];
    mix ^= static_cast<uint64_t>(id) * static_cast<uint64_t>(p.multipliers[back]);
    for (int64_t h = (back - 1) * p.heads; h < back * p.heads; ++h)
      rows[h] = static_cast<int64_t>(mix % static_cast<uint64_t>(p.moduli[h])) + p.offsets[h];
  }
}

void save_ids(const NgramRows& p, const Ids& ids, int64_t rows, std::byte* record) {
  auto* state = reinterpret_cast<int32_t*>(record + p.state_offset);
  for (int64_t i = 0; i < p.order - 1; ++i) state[i] = ids[rows - (p.order - 1) + i];
}

}  // namespace

void ngram_rows(Stream& stream, const NgramRows& p) {
  WP_ASSERT(p.order <= kOrderMax);
  const int64_t heads = p.heads * (p.order - 1);
  for_ranges(stream, p.batch.segments_count, 1, p.batch.rows * heads * 12, [&](int64_t s, int64_t, int) {
    const SegmentView& segment = p.batch.segments[s];
    const Ids ids(p, segment);
    for (int64_t t = 0; t < segment.rows; ++t) hash_row(p, ids, t, p.rows + (segment.row_begin + t) * heads);
    for (int32_t i = 0; i < segment.captures_count; ++i)
      save_ids(p, ids, segment.captures[i].rows, segment.captures[i].anchor);
    save_ids(p, ids, segment.rows, segment.state_out);
  });
}

HWY_EXPORT(ngram_gate);
void ngram_gate(Stream& stream, const NgramGate& p) { HWY_DYNAMIC_DISPATCH(ngram_gate)(stream, p); }

}  // namespace wp::kernels::cpu
#endif
