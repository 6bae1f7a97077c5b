// Lets tests run the kernels on each instruction set that this machine has. Test programs only.
#pragma once

#include <vector>

#include "kernels/cpu/targets.h"
// Above: which sets exist.
#include "hwy/targets.h"

namespace wp::kernels::cpu {

// The compiled sets that run here, best first; one at least.
inline std::vector<int64_t> runnable_targets() {
  std::vector<int64_t> found;
#if HWY_ARCH_X86
  for (const int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}})
    if (hwy::SupportedTargets() & target) found.push_back(target);
#else
  found.push_back(HWY_NEON);
#endif
  return found;
}

// Kernels run on `target` while this lives, and on the best one after. One at a time; no kernel may be running.
class ForcedTarget {
 public:
  explicit ForcedTarget(int64_t target) { hwy::GetChosenTarget().Update(target); }
  ~ForcedTarget() { hwy::GetChosenTarget().DeInit(); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

}  // namespace wp::kernels::cpu
