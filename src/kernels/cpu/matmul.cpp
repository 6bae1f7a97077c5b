// y [T, N] = x [T, K] W^T, W packed in panels. Work is cut into blocks of rows times groups of panels; never along K.
#include "kernels/cpu/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cpp"
#include "kernels/cpu/targets.h"
// Below: once for each target.
#include "hwy/foreach_target.h"
#include "kernels/cpu/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// Panels of one task: with many rows enough to pay for copying x, with few so many that two tasks of a small matrix
// keep two threads busy.
int64_t panels_per_task(const Matmul& args, int64_t threads) {
  if (args.T > kFewRows) return 16;
  const int64_t share = (panels_of(args.W.N) + threads - 1) / threads;
  return std::clamp<int64_t>((share + 7) / 8 * 8, 8, 64);
}

void matmul_task(const Matmul& args, int64_t row_begin, int64_t panel_begin, int64_t panel_end) {
  GemmScratch scratch;
  const Rows x{args.x, args.x_stride, args.rows};
  const RowsOut y{args.y + panel_begin * kLanes, args.y_stride};
  multiply(x.from(row_begin), std::min(kBlockRows, args.T - row_begin), args.W, panel_begin, panel_end,
           y.from(row_begin), scratch);
}

void matmul(Stream& stream, const Matmul& args) {
  WP_DASSERT(args.W.layout == WeightLayout::panels);
  const int64_t panels = panels_of(args.W.N), group = panels_per_task(args, stream.threads().threads());
  const int64_t groups = (panels + group - 1) / group, blocks = (args.T + kBlockRows - 1) / kBlockRows;
  stream.threads().run(groups * blocks, [&](int64_t task, int) HWY_ATTR {
    const int64_t block = task / groups, panel = task % groups * group;
    matmul_task(args, block * kBlockRows, panel, std::min(panels, panel + group));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace wp::kernels::cpu {
HWY_EXPORT(matmul);
void matmul(Stream& stream, const Matmul& args) { HWY_DYNAMIC_DISPATCH(matmul)(stream, args); }
}  // namespace wp::kernels::cpu
#endif
