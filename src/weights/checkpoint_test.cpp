#include "weights/checkpoint.h"

#include <gtest/gtest.h>

#include "testing/seeds.h"

namespace wp {
namespace {

std::string mini() { return testing::source_directory() + "/models/flash-next-mini"; }

TEST(Checkpoint, OpensTheBundledModel) {
  auto opened = Checkpoint::open(mini());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Checkpoint& checkpoint = *opened;
  EXPECT_EQ(checkpoint.config()["model_type"], "qwen4_exp_text");
  EXPECT_GT(checkpoint.size_bytes(), 40 << 20);
  EXPECT_EQ(checkpoint.unbound().size(), checkpoint.tensors().size());
  EXPECT_EQ(checkpoint.fingerprint(), Checkpoint::open(mini())->fingerprint());
}

TEST(Checkpoint, NamesTheClosestTensor) {
  auto opened = Checkpoint::open(mini());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  auto bound = opened->bind("lm_head.weights", DType::bf16, {-1, -1});
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.error().message, mini() + ": no tensor lm_head.weights (closest: lm_head.weight)");
}

TEST(Checkpoint, BindsEveryExpertOfTheBundledModel) {
  auto opened = Checkpoint::open(mini());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  int64_t bound = 0;
  for (const TensorInfo& tensor : opened->tensors()) {
    const size_t suffix = tensor.name.rfind(".weight");
    if (tensor.dtype != DType::u8 || suffix == std::string::npos) continue;
    auto matrix = opened->bind_matrix(tensor.name.substr(0, suffix), tensor.shape[0], tensor.shape[1] * 2);
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    EXPECT_EQ(matrix->format, WeightFormat::nvfp4);
    EXPECT_GT(matrix->scale_2, 0.0f);
    opened->discard(*matrix);
    ++bound;
  }
  EXPECT_GT(bound, 0);
}

TEST(Checkpoint, OpensEveryFixture) {
  if (testing::oracle_directory().empty()) return;
  for (const char* name : {"qwen3-next", "qwen35-dense", "qwen35-moe", "qwen4-tiny", "qwen4-tiny-nvfp4",
                           "qwen4-tiny-bf16", "qwen4-real-heads-nvfp4"}) {
    const std::string folder = testing::oracle_directory() + "/" + name;
    auto opened = Checkpoint::open(folder);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    auto reference = Checkpoint::open(folder + "/reference.safetensors");
    EXPECT_TRUE(reference.ok()) << reference.error().message;
  }
}

}  // namespace
}  // namespace wp
