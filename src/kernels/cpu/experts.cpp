// Mixture of experts: choices grouped by expert, so that an expert's weights are decoded once for up to kBlockRows of
// its rows; gate, up, silu and down of a block run in one task. Each choice writes its own row; a second region adds a
// token's rows in ascending order of expert. Work: 3 M F multiply-adds for each choice.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/regions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/experts.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/gemm-inl.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// Choices order[begin .. end) of one expert.
void expert_block(const Experts& p, int64_t expert, int64_t begin, int64_t end) {
  GemmScratch scratch;
  const ExpertWeights& weights = p.matrices[expert];
  const int32_t* choices = p.order + begin;
  const int64_t rows = end - begin;
  int32_t tokens[kBlockRows];
  for (int64_t r = 0; r < rows; ++r) tokens[r] = choices[r] / static_cast<int32_t>(p.A);
  // Hidden rows lie by place in the order: consecutive here.
  float* hidden = p.hidden + begin * 2 * p.F;
  const int64_t panels = panels_of(p.F);
  const Rows x{p.x, p.M, tokens};
  multiply(x, rows, weights.gate, 0, panels, {hidden, 2 * p.F}, scratch);
  multiply(x, rows, weights.up, 0, panels, {hidden + p.F, 2 * p.F}, scratch);
  for (int64_t r = 0; r < rows; ++r) {
    float* gate = hidden + r * 2 * p.F;
    for (int64_t f = 0; f < p.F; f += kLanes) {
      const int64_t rest = p.F - f;
      store_some(mul(silu(load_some(gate + f, rest)), load_some(gate + p.F + f, rest)), gate + f, rest);
    }
  }
  multiply({hidden, 2 * p.F}, rows, weights.down, 0, panels_of(p.M), {p.outputs, p.M, choices}, scratch);
}

void combine_row(const Experts& p, int64_t t) {
  const V16 share = sigmoid(set(p.shared_gate[t]));
  for (int64_t m = 0; m < p.M; m += kLanes) {
    const int64_t rest = p.M - m;
    V16 sums = zero();
    for (int64_t i = t * p.A; i < (t + 1) * p.A; ++i)
      sums = fma(set(p.weights[i]), load_some(p.outputs + i * p.M + m, rest), sums);
    sums = fma(share, load_some(p.shared + t * p.M + m, rest), sums);
    store_some(sums, p.y + t * p.M + m, rest);
  }
}

void experts(Stream& stream, const Experts& p) {
  // Task numbers run over blocks of all experts. With few choices each is a task and most experts have none.
  const int64_t choices = p.T * p.A;
  const auto blocks_of = [&](int64_t expert) {
    return (p.offsets[expert + 1] - p.offsets[expert] + kBlockRows - 1) / kBlockRows;
  };
  int64_t tasks = 0;
  for (int64_t e = 0; e < p.E; ++e) tasks += blocks_of(e);
  stream.threads().run(tasks, [&](int64_t task, int) HWY_ATTR {
    int64_t expert = 0;
    for (; task >= blocks_of(expert); ++expert) task -= blocks_of(expert);
    const int64_t begin = p.offsets[expert] + task * kBlockRows;
    expert_block(p, expert, begin, std::min<int64_t>(p.offsets[expert + 1], begin + kBlockRows));
  });
  for_ranges(stream, p.T, 16, choices * p.M / 6, [&](int64_t begin, int64_t end, int) HWY_ATTR {
    for (int64_t t = begin; t < end; ++t) combine_row(p, t);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
HWY_EXPORT(experts);
void experts(Stream& stream, const Experts& p) { HWY_DYNAMIC_DISPATCH(experts)(stream, p); }
}  // namespace wp::kernels::cpu
#endif
