// Synthetic checkpoints: numbers in range, alike on every backend, and the same when they come from a folder.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "testing/model_run.h"
#include "testing/op_case.h"
#include "testing/safetensors_writer.h"
#include "testing/seeds.h"
#include "weights/synthetic_writer.h"

namespace wp {
namespace {

using testing::ModelRun;

Json config_of(const std::string& path) {
  std::ifstream stream(testing::source_directory() + "/" + path);
  std::stringstream text;
  text << stream.rdbuf();
  auto json = parse_json(text.str());
  EXPECT_TRUE(json.ok());
  return json.ok() ? *json : Json();
}

// The release with fewer and smaller parts: its head sizes, four layers.
Json small_flagship() {
  Json config = config_of("configs/qwen3.8-flash-next.json");
  Json& text = config["text_config"];
  for (const auto& [key, value] : std::vector<std::pair<const char*, int>>{{"hidden_size", 256},
                                                                           {"num_hidden_layers", 4},
                                                                           {"vocab_size", 4096},
                                                                           {"num_experts", 32},
                                                                           {"num_experts_per_tok", 4},
                                                                           {"moe_intermediate_size", 64},
                                                                           {"shared_expert_intermediate_size", 64},
                                                                           {"num_attention_heads", 4},
                                                                           {"linear_num_value_heads", 6},
                                                                           {"linear_num_key_heads", 2},
                                                                           {"hc_lowrank", 32},
                                                                           {"ple_embed_dim", 256},
                                                                           {"ngram_vocab_size_base", 1000},
                                                                           {"eos_token_id", 5},
                                                                           {"split_ngram_parts", 4},
                                                                           {"max_position_embeddings", 4096}})
    text[key] = value;
  text["layer_types"] = {"linear_attention", "linear_attention", "linear_attention", "full_attention"};
  return config;
}

Json small_dense() {
  Json config = config_of("configs/qwen3.8-27b.json");
  Json& text = config["text_config"];
  for (const auto& [key, value] : std::vector<std::pair<const char*, int>>{{"hidden_size", 256},
                                                                           {"num_hidden_layers", 4},
                                                                           {"vocab_size", 4096},
                                                                           {"intermediate_size", 512},
                                                                           {"num_attention_heads", 4},
                                                                           {"num_key_value_heads", 2},
                                                                           {"linear_num_value_heads", 6},
                                                                           {"linear_num_key_heads", 2},
                                                                           {"max_position_embeddings", 4096}})
    text[key] = value;
  text["layer_types"] = {"linear_attention", "linear_attention", "linear_attention", "full_attention"};
  return config;
}

std::vector<TokenId> prompt() {
  Rng rng(5);
  std::vector<TokenId> tokens;
  for (int i = 0; i < 150; ++i) tokens.push_back(static_cast<TokenId>(rng.between(0, 4095)));
  return tokens;
}

std::vector<float> logits_of(ModelRun& run) {
  auto sequence = run.start(0);
  return run.prefill(sequence, prompt());
}

double worst(const std::vector<float>& found, const std::vector<float>& expected) {
  double difference = found.size() == expected.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i)
    difference = std::max(difference, std::abs(static_cast<double>(found[i]) - expected[i]));
  return difference;
}

void expect_sane(const std::vector<float>& logits) {
  double squares = 0;
  std::set<TokenId> choices;
  for (size_t at = 0; at < logits.size(); at += 4096) choices.insert(testing::argmax(logits.data() + at, 4096));
  for (const float logit : logits) {
    ASSERT_TRUE(std::isfinite(logit));
    squares += static_cast<double>(logit) * logit;
  }
  const double rms = std::sqrt(squares / static_cast<double>(logits.size()));
  EXPECT_GT(rms, 0.3);
  EXPECT_LT(rms, 6);
  EXPECT_GT(choices.size(), 100u) << "150 random tokens should lead to as many continuations";
}

TEST(Synthetic, NumbersAreInRangeAndAlikeOnAllBackends) {
  for (const Json& config : {small_flagship(), small_dense()})
    for (const bool nvfp4 : {true, false}) {
      std::vector<float> expected;
      for (const DeviceKind kind : testing::backends()) {
        auto run = ModelRun::synthesize({.name = "small", .config = config, .nvfp4 = nvfp4}, kind, {});
        ASSERT_TRUE(run.ok()) << run.error().message;
        const auto logits = logits_of(**run);
        expect_sane(logits);
        if (expected.empty()) expected = logits;
        EXPECT_LT(worst(logits, expected), 2e-3) << name(kind);
      }
    }
}

// Written to a folder, in files of a megabyte, it is a checkpoint like any other, with the same numbers; another seed
// has others.
TEST(Synthetic, IsTheSameFromAFolder) {
  const SyntheticOptions options{.name = "small", .config = small_flagship()};
  auto made = ModelRun::synthesize(options, DeviceKind::cpu, {});
  ASSERT_TRUE(made.ok()) << made.error().message;
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/model";
  const auto written = write_synthetic(*(*made)->model().checkpoint(), path, nullptr, 1 << 20);
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_FALSE(write_synthetic(*(*made)->model().checkpoint(), path).ok());
  auto read = ModelRun::make(path, DeviceKind::cpu, 1, {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ((*read)->info().parameters, (*made)->info().parameters);
  EXPECT_EQ((*read)->info().description, (*made)->info().description);
  const auto expected = logits_of(**made);
  EXPECT_EQ(logits_of(**read), expected);
  SyntheticOptions other = options;
  other.seed = 2;
  auto others = ModelRun::synthesize(other, DeviceKind::cpu, {});
  ASSERT_TRUE(others.ok());
  EXPECT_GT(worst(logits_of(**others), expected), 0.1);
}

// The figures of spec/qwen4_exp.md 1.3 and 7.3, from the released configurations alone: nothing is filled.
TEST(Synthetic, ReleasedConfigurationsHaveTheirSizes) {
  const auto device = Device::make(DeviceKind::ref, 1);
  ASSERT_TRUE(device.ok());
  const auto info_of = [&](const char* path) {
    auto checkpoint = Checkpoint::synthesize({.name = path, .config = config_of(path), .fill = false});
    EXPECT_TRUE(checkpoint.ok());
    auto model = load_model(std::move(*checkpoint), **device);
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
    return model.ok() ? (*model)->info() : ModelInfo();
  };
  const ModelInfo flagship = info_of("configs/qwen3.8-flash-next.json");
  EXPECT_EQ(flagship.description, "36 GDN + 12 QSA layers, 512 experts top-10, nvfp4 experts");
  EXPECT_NEAR(static_cast<double>(flagship.parameters), 125.74e9 + 51.20e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(flagship.weight_bytes), 67.95e9 + 51.2e9 + 2 * 4.94e9, 0.1e9);
  EXPECT_EQ(flagship.sparse_bound, 2051);
  const ModelInfo dense = info_of("configs/qwen3.8-27b.json");
  EXPECT_NEAR(static_cast<double>(dense.parameters), 27e9, 0.5e9);
}

}  // namespace
}  // namespace wp
