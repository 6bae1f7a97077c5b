// y [T, N] = x [T, K] W^T, W packed in panels. Work is cut into blocks of rows times groups of panels; never along K.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/regions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// How a product is cut into tasks; no bit depends on it.
struct Cut {
  int64_t rows, panels;  // Of one task.
};

Cut cut_of(const Matmul& p, int64_t threads) {
  const int64_t panels = panels_of(p.W.N);
  // Few rows: each thread has some panels, in whole groups of chains.
  if (p.T <= kFewRows) return {p.T, std::clamp<int64_t>(((panels + threads - 1) / threads + 7) / 8 * 8, 8, 64)};
  // Many: blocks of rows as large as leave several tasks for each thread, and all panels if those do, so that a block
  // of x is copied once.
  constexpr int64_t kPanels = 16, kRowsLeast = 4 * kTileRows;
  const int64_t wanted = 4 * threads, groups = (panels + kPanels - 1) / kPanels;
  if (p.T >= wanted * kBlockRows) return {kBlockRows, panels};
  const int64_t blocks = std::max<int64_t>(1, wanted / groups), rows = (p.T + blocks - 1) / blocks + kTileRows - 1;
  return {std::clamp<int64_t>(rows / kTileRows * kTileRows, kRowsLeast, kBlockRows), kPanels};
}

void matmul_task(const Matmul& p, const Cut& cut, int64_t row, int64_t panel) {
  GemmScratch scratch;
  const Rows x{p.x, p.x_stride, p.rows};
  const RowsOut y{p.y + panel * kLanes, p.y_stride};
  multiply(x.from(row), std::min(cut.rows, p.T - row), p.W, panel, std::min(panels_of(p.W.N), panel + cut.panels),
           y.from(row), scratch);
}

// So little that the other threads would come too late.
bool is_small(const Matmul& p) { return p.T * p.W.N * p.W.K < 16 * kSmallWork; }

void matmul(Stream& stream, const Matmul& p) {
  WP_DASSERT(p.W.layout == WeightLayout::panels);
  const Cut cut = cut_of(p, is_small(p) ? 1 : stream.threads().threads());
  const int64_t groups = (panels_of(p.W.N) + cut.panels - 1) / cut.panels, blocks = (p.T + cut.rows - 1) / cut.rows;
  for_ranges(stream, groups * blocks, 1, p.T * p.W.N * p.W.K / 16, [&](int64_t task, int64_t, int) HWY_ATTR {
    matmul_task(p, cut, task / groups * cut.rows, task % groups * cut.panels);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
HWY_EXPORT(matmul);
void matmul(Stream& stream, const Matmul& args) { HWY_DYNAMIC_DISPATCH(matmul)(stream, args); }

void matmul_group(Stream& stream, const MatmulGroup& p) {
  for (int i = 0; i < p.count; ++i) matmul(stream, p.at(i));
}
}  // namespace wp::kernels::cpu
#endif
