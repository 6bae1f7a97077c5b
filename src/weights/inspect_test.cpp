#include "weights/inspect.h"

#include <gtest/gtest.h>

#include "testing/safetensors_writer.h"
#include "testing/seeds.h"

namespace wp {
namespace {

using testing::StoredBytes;

void add_nvfp4(std::vector<StoredBytes>& out, const std::string& prefix) {
  out.push_back({prefix + ".weight", "U8", {2, 16}, std::string(32, 'w')});
  out.push_back({prefix + ".weight_scale", "F8_E4M3", {2, 2}, "ssss"});
  out.push_back({prefix + ".weight_scale_2", "F32", {}, "gggg"});
  out.push_back({prefix + ".input_scale", "F32", {}, "iiii"});
}

const ModuleSummary* module(const CheckpointSummary& summary, std::string_view name) {
  for (const ModuleSummary& module : summary.modules)
    if (module.name == name) return &module;
  return nullptr;
}

TEST(Inspect, GroupsByModuleAndFormat) {
  std::vector<StoredBytes> tensors{
      {"lm_head.weight", "BF16", {4, 8}, std::string(64, 'x')},
      {"logits", "F32", {1}, "llll"},
      {"model.layers.10.block.weight", "F8_E4M3", {256, 4}, std::string(1024, 'q')},
      {"model.layers.10.block.weight_scale_inv", "BF16", {2, 1}, "aabb"},
      {"model.layers.10.row.weight", "F8_E4M3", {3, 4}, std::string(12, 'q')},
      {"model.layers.10.row.weight_scale", "BF16", {3}, "aabbcc"},
      {"model.layers.10.tensor.weight", "F8_E4M3", {3, 4}, std::string(12, 'q')},
      {"model.layers.10.tensor.weight_scale", "BF16", {1}, "aa"},
      {"model.layers.2.table.shard_0.weight", "F8_E4M3", {2, 2}, "tttt"},
      {"model.layers.2.table.shard_1.weight", "F8_E4M3", {2, 2}, "tttt"},
      {"model.layers.2.table.weight_scale", "BF16", {1}, "ss"},
      {"model.layers.2.flags", "BOOL", {2}, "ff"},
  };
  for (const char* expert : {"0", "1", "2"}) add_nvfp4(tensors, cat("model.layers.2.mlp.experts.", expert, ".up_proj"));
  testing::TemporaryFolder folder;
  auto checkpoint = Checkpoint::open(folder.write("m.safetensors", testing::safetensors_file(tensors)));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const CheckpointSummary summary = summarize(*checkpoint);

  EXPECT_EQ(summary.tensors_count, static_cast<int64_t>(tensors.size()));
  EXPECT_EQ(summary.files_count, 1);
  EXPECT_EQ(summary.size_bytes, checkpoint->size_bytes());
  ASSERT_EQ(summary.modules.size(), 4u);
  EXPECT_EQ(summary.modules[0].name, "");
  EXPECT_EQ(summary.modules[1].name, "lm_head");
  EXPECT_EQ(summary.modules[2].name, "model.layers.2");  // By number, not by letter.
  EXPECT_EQ(summary.modules[3].name, "model.layers.10");

  const auto& experts = module(summary, "model.layers.2")->weights;
  ASSERT_EQ(experts.size(), 4u);
  EXPECT_EQ(experts[0].name, "flags");
  EXPECT_EQ(experts[0].format, "BOOL");
  EXPECT_EQ(experts[1].name, "mlp.experts.*.up_proj.weight");
  EXPECT_EQ(experts[1].format, "nvfp4");
  EXPECT_EQ(experts[1].shape, (Shape{2, 32}));
  EXPECT_EQ(experts[1].size_bytes, 3 * (32 + 4 + 4 + 4));
  EXPECT_EQ(experts[1].tensors_count, 12);
  EXPECT_EQ(experts[2].name, "table.shard_*.weight");
  EXPECT_EQ(experts[3].name, "table.weight_scale");

  const auto& quantised = module(summary, "model.layers.10")->weights;
  ASSERT_EQ(quantised.size(), 3u);
  EXPECT_EQ(quantised[0].format, "fp8-block128");
  EXPECT_EQ(quantised[0].size_bytes, 1024 + 4);
  EXPECT_EQ(quantised[1].format, "fp8-row");
  EXPECT_EQ(quantised[2].format, "fp8");

  int64_t bytes = 0, values = 0;
  for (const FormatTotal& total : summary.formats) {
    bytes += total.size_bytes;
    values += total.values_count;
    if (total.format == "nvfp4") {
      EXPECT_EQ(total.weights_count, 3);
      EXPECT_EQ(total.values_count, 3 * 64);
    }
  }
  EXPECT_EQ(bytes, summary.size_bytes);
  EXPECT_EQ(values, summary.values_count);
  EXPECT_EQ(summary.formats[0].format, "fp8-block128");
  EXPECT_EQ(checkpoint->unbound().size(), tensors.size());  // Looking marks nothing.
}

TEST(Inspect, AddsUpOnTheBundledModel) {
  auto checkpoint = Checkpoint::open(testing::source_directory() + "/models/flash-next-mini");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const CheckpointSummary summary = summarize(*checkpoint);
  EXPECT_EQ(summary.files_count, 4);
  int64_t by_module = 0, by_format = 0, tensors = 0;
  for (const ModuleSummary& module : summary.modules) {
    by_module += module.size_bytes;
    for (const WeightSummary& weight : module.weights) tensors += weight.tensors_count;
  }
  bool nvfp4 = false;
  for (const FormatTotal& total : summary.formats) {
    by_format += total.size_bytes;
    nvfp4 = nvfp4 || total.format == "nvfp4";
  }
  EXPECT_TRUE(nvfp4);
  EXPECT_EQ(by_module, summary.size_bytes);
  EXPECT_EQ(by_format, summary.size_bytes);
  EXPECT_EQ(tensors, summary.tensors_count);
}

}  // namespace
}  // namespace wp
