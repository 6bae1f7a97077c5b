// Every op test compares the instruction sets of the cpu backend by equal bits (testing/op_case.h). Here: that this
// comparison sees two sets where there are two, and that it catches a kernel which sums in the machine's vector width.
#include <gtest/gtest.h>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/test_targets.h"
#include "testing/op_case.h"

namespace wp {
namespace {

using testing::equal_on_all_instruction_sets;
using testing::OpCase;

TEST(InstructionSets, AKernelOfNativeWidthIsCaught) {
  const bool nothing_to_compare = kernels::cpu::runnable_targets().size() < 2;
  EXPECT_EQ(nothing_to_compare, equal_on_all_instruction_sets(1, [](OpCase& op) {
              const Tensor x = op.filled({1000}), y = op.blank({1});
              y.f32()[0] = kernels::cpu::sum_in_native_width(x.f32(), x.count());
              op.give(y);
            }));
}

TEST(InstructionSets, FunctionsAgree) {
  EXPECT_TRUE(equal_on_all_instruction_sets(2, [](OpCase& op) {
    const Tensor x = op.filled({1001}, 30), y = op.blank({1001});
    for (const auto function : {kernels::cpu::Function::exp, kernels::cpu::Function::sigmoid,
                                kernels::cpu::Function::silu, kernels::cpu::Function::softplus}) {
      kernels::cpu::apply(function, x.f32(), x.count(), y.f32());
      op.give(y);
    }
  }));
}

}  // namespace
}  // namespace wp
