// What load_model refuses, and how it says so: each case is a copy of a small checkpoint with one thing changed.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/families.h"
#include "testing/seeds.h"

namespace wp {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// A copy of a fixture in a folder of its own, removed at the end.
class LoadModel : public ::testing::Test {
 protected:
  void use(const std::string& fixture) {
    source_ = testing::source_directory() + "/testdata/" + fixture;
    folder_ = fs::temp_directory_path() / cat("warmpath-load-", ::getpid(), "-", count_++);
    fs::create_directories(folder_);
    auto config = parse_json(read_file(source_ / "config.json"));
    ASSERT_TRUE(config.ok());
    config_ = *config;
    weights_ = read_file(source_ / "model.safetensors");
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  // Replaces a name in the header by another of equal length.
  void rename(const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    const size_t at = weights_.find(from);
    ASSERT_NE(at, std::string::npos);
    weights_.replace(at, from.size(), to);
  }
  std::string message() {
    std::ofstream(folder_ / "config.json") << dump_json(config_);
    std::ofstream(folder_ / "model.safetensors", std::ios::binary) << weights_;
    auto device = Device::make(DeviceKind::ref, 1);
    EXPECT_TRUE(device.ok());
    auto model = load_model(folder_.string(), **device);
    if (model.ok()) return "loaded";
    EXPECT_EQ(model.error().message.find('\n'), std::string::npos);
    return model.error().message;
  }
  void expect_refused(const char* key, const Json& value, const std::string& says) {
    const Json before = config_;
    config_[key] = value;
    const std::string found = message();
    EXPECT_NE(found.find(says), std::string::npos) << key << ": expected ..." << says << "..., found " << found;
    config_ = before;
  }

  fs::path source_, folder_;
  Json config_;
  std::string weights_;
  static inline int count_ = 0;
};

TEST_F(LoadModel, TakesItAsItIs) {
  use("qwen4_exp/no-ple-silu");
  EXPECT_EQ(message(), "loaded");
}

TEST_F(LoadModel, TakesTheOtherSpellings) {
  use("qwen4_exp/no-ple-silu");
  for (Json& type : config_["layer_types"])
    if (type != "linear_attention") type = "deepseek_sparse_attention";
  EXPECT_EQ(message(), "loaded");
  config_.erase("layer_types");
  config_["full_attention_interval"] = 4;
  EXPECT_EQ(message(), "loaded");
  Json nested = Json::object();
  nested["model_type"] = "qwen4_exp";
  nested["text_config"] = config_;
  config_ = nested;
  EXPECT_EQ(message(), "loaded");
}

TEST_F(LoadModel, NamesTheValueThatItRefuses) {
  use("qwen4_exp/no-ple-silu");
  expect_refused("model_type", "llama", "model_type: expected one of qwen4_exp, qwen4_exp_text");
  expect_refused("hidden_size", nullptr, "hidden_size: expected an integer in 1..65536, found nothing");
  expect_refused("hidden_size", "64", "hidden_size: expected an integer in 1..65536, found \"64\"");
  expect_refused("hidden_size", 1e30, "hidden_size: expected an integer");
  expect_refused("num_hidden_layers", int64_t{1} << 40, "num_hidden_layers: expected an integer in 1..1024");
  expect_refused("vocab_size", -1, "vocab_size: expected an integer in 1..16777216, found -1");
  expect_refused("num_key_value_heads", 3, "num_key_value_heads: expected a divisor of 4 query heads, found 3");
  expect_refused("hidden_act", "gelu", "hidden_act: expected silu or swish, found gelu");
  expect_refused("attention_bias", true, "attention_bias: expected false, found true");
  expect_refused("hc_method", "other", "hc_method: expected gated_residual_simple, found other");
  expect_refused("output_gate_type", "tanh", "output_gate_type: expected sigmoid or silu or swish, found tanh");
  expect_refused("indexer_compress_ratio", 8, "indexer_compress_ratio: expected 4, found 8");
  expect_refused("indexer_budget", 30, "indexer_budget: expected a multiple of 4, found 30");
  expect_refused("num_experts_per_tok", 99, "num_experts_per_tok: expected an integer in 1..8, found 99");
  expect_refused("rms_norm_eps", "x", "rms_norm_eps: expected a number");
  expect_refused("layer_types", Json::array({"linear_attention"}),
                 "layer_types: expected a list of 4 names, found 1 entries");
  Json rope = config_["rope_parameters"];
  rope["rope_type"] = "yarn";
  expect_refused("rope_parameters", rope, "rope_type: expected default, found yarn");
}

TEST_F(LoadModel, NamesTheTensorThatItRefuses) {
  use("qwen4_exp/no-ple-silu");
  expect_refused("hidden_size", 32, "model.embed_tokens.weight");
  expect_refused("linear_num_value_heads", 8, "linear_attn.in_proj_qkv.weight");
  rename("model.layers.2.linear_attn.A_log", "model.layers.2.linear_attn.B_log");
  EXPECT_NE(message().find("no tensor model.layers.2.linear_attn.A_log"), std::string::npos) << message();
}

TEST_F(LoadModel, NamesTheTensorThatNobodyWants) {
  use("qwen4_exp/no-ple-silu");
  config_["num_hidden_layers"] = 3;
  config_["layer_types"].erase(3);
  EXPECT_NE(message().find("model.layers.3."), std::string::npos) << message();
  EXPECT_NE(message().find("a tensor this family does not have (and "), std::string::npos) << message();
}

TEST_F(LoadModel, ChecksTheHashConstants) {
  use("qwen4_exp/tiny-nvfp4");
  EXPECT_EQ(message(), "loaded");
  expect_refused("seed", 0, "layer_multipliers[0]: expected ");
  expect_refused("ngram_vocab_size_base", 600,
                 "ngram_heads_vocab_sizes[0]: expected 601 by the hash's formula, found ");
  expect_refused("split_ngram_parts", 2, "shard_0.weight");
  expect_refused("ple_layer_ids", Json::array({9}), "ple_layer_ids: expected layer numbers in 1..4, found 9");
}

TEST_F(LoadModel, DoesTheSameForTheRelatives) {
  use("qwen3_next/qwen3-next");
  EXPECT_EQ(message(), "loaded");
  expect_refused("layer_types", Json::array({"linear_attention", "linear_attention", "linear_attention", "sliding"}),
                 "layer_types: expected linear_attention or full_attention, found sliding");
  expect_refused("decoder_sparse_step", 2, "decoder_sparse_step: expected 1, found 2");
  expect_refused("mlp_only_layers", Json::array({1}), "mlp_only_layers: expected an empty list");
  expect_refused("model_type", "qwen3_5_moe_text", "linear_attn.in_proj_qkv");
}

// A head that is the embedding: the tensor is absent, and the outputs are those of the same model with a copy.
TEST_F(LoadModel, TiesTheHead) {
  use("qwen4_exp/no-ple-silu");
  config_["tie_word_embeddings"] = true;
  EXPECT_EQ(message(), "loaded");
  rename("\"lm_head.weight\"", "\"input_ids\"     ");
  EXPECT_EQ(message(), "loaded");
  config_["tie_word_embeddings"] = false;
  EXPECT_NE(message().find("no tensor lm_head.weight"), std::string::npos) << message();
}

TEST(ModelInfo, IsTrueOfTheBundledModel) {
  auto device = Device::make(DeviceKind::ref, 1);
  ASSERT_TRUE(device.ok());
  auto model = load_model(testing::source_directory() + "/models/flash-next-mini", **device);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.description, "6 GDN + 2 QSA layers, 32 experts top-4, nvfp4 experts");
  EXPECT_EQ(info.sparse_bound, 259);
  EXPECT_NEAR(static_cast<double>(info.parameters), 31.2e6, 0.1e6);  // As its README says.
  EXPECT_EQ(info.capture_receipts, 7);
  // All but the embedding [8192, 256] in bf16, the n-gram table, and 28 of 32 nvfp4 experts of 3 x [64, 256] in 8
  // layers.
  const int64_t experts = 8 * 28 * 3 * 64 * 256 * 9 / 16, embedding = 8192 * 256 * 2;
  EXPECT_LT(info.weight_bytes_per_token, info.weight_bytes - experts - embedding - 2 * 8 * 20000 * 16);
  EXPECT_GT(info.weight_bytes_per_token, (info.weight_bytes - experts - embedding) / 2);
  EXPECT_EQ(info.page_bytes, 2 * (2 * 64 * 256 + 16 * 128) * 4);
  // 6 heads of 128 x 128 and 3 convolution rows of 1,280 channels in 6 layers; 9 rows of 1,024 and 2 ids.
  EXPECT_EQ(info.anchor_bytes, 6 * (6 * 128 * 128 + 3 * 1280) * 4 + 9 * 1024 * 4 + 64);
  EXPECT_EQ(info.slot_bytes, info.anchor_bytes + 2 * 3 * 128 * 4);
  EXPECT_EQ(info.multiply_adds_per_token_and_key, 2 * 2 * 6 * 256);
  EXPECT_EQ(info.multiply_adds_per_token_and_block, 2 * 4 * 128);
  EXPECT_EQ(info.multiply_adds_head, 8192 * 256 + 2 * 1024 * 32);
}

}  // namespace
}  // namespace wp
