// The bundled model against its reference folder: logits at the recorded positions and greedy continuations, as
// transformers computes them in float32. On ref the prompts up to 700 tokens, on cpu all six.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "testing/model_run.h"
#include "testing/op_case.h"
#include "testing/seeds.h"

namespace wp {
namespace {

using testing::ModelRun;
using testing::RunningSequence;

const std::string kFolder = testing::source_directory() + "/models/flash-next-mini";

Json read_prompts() {
  std::ifstream stream(kFolder + "/reference/prompts.json");
  std::stringstream text;
  text << stream.rdbuf();
  auto json = parse_json(text.str());
  EXPECT_TRUE(json.ok());
  return json.ok() ? *json : Json::array();
}

class MiniModel : public ::testing::TestWithParam<DeviceKind> {
 protected:
  // Prefills all but what greedy needs and compares; returns the last row's logits.
  void check(const Json& prompt, ModelRun& run, const Checkpoint& reference) {
    const auto name = prompt["name"].get<std::string>();
    SCOPED_TRACE(name);
    const auto ids = prompt["ids"].get<std::vector<TokenId>>();
    const int64_t V = run.info().vocabulary;
    auto positions = reference.bind(name + ".positions", DType::i32, {-1});
    auto top_ids = reference.bind(name + ".top_ids", DType::i32, {-1, -1});
    auto top_values = reference.bind(name + ".top_values", DType::f32, {-1, -1});
    auto last = reference.bind(name + ".last_logits", DType::f32, {V});
    ASSERT_TRUE(positions.ok() && top_ids.ok() && top_values.ok() && last.ok());

    std::vector<int64_t> rows;
    for (int64_t i = 0; i < positions->count(); ++i) {
      int32_t position;
      std::memcpy(&position, positions->data + i * 4, 4);
      rows.push_back(position);
    }
    ASSERT_EQ(rows.back(), static_cast<int64_t>(ids.size()) - 1);
    RunningSequence sequence = run.start(0);
    const std::vector<float> logits = run.prefill_rows(sequence, ids, rows);
    const int64_t columns = top_ids->dim(1);
    double worst = 0;
    const auto compare = [&](int64_t row, int64_t id, const std::byte* expected) {
      float value;
      std::memcpy(&value, expected, 4);
      worst = std::max(worst, std::abs(static_cast<double>(logits[static_cast<size_t>(row * V + id)]) - value));
    };
    for (int64_t i = 0; i < positions->count(); ++i)
      for (int64_t j = 0; j < columns; ++j) {
        int32_t id;
        std::memcpy(&id, top_ids->data + (i * columns + j) * 4, 4);
        compare(i, id, top_values->data + (i * columns + j) * 4);
      }
    for (int64_t v = 0; v < V; ++v) compare(positions->count() - 1, v, last->data + v * 4);
    RecordProperty(name, std::to_string(worst));
    EXPECT_LE(worst, 2e-3);

    // As far as the reference's own choice was not a coin's.
    auto greedy = prompt["greedy_fp32"].get<std::vector<TokenId>>();
    const auto gaps = prompt["greedy_fp32_gap"].get<std::vector<double>>();
    size_t sure = 0;
    while (sure < greedy.size() && gaps[sure] > 4e-3) ++sure;
    greedy.resize(sure);
    EXPECT_EQ(run.greedy(sequence, logits, static_cast<int64_t>(sure)), greedy);
  }
};

TEST_P(MiniModel, AgreesWithItsReference) {
  const bool ref = GetParam() == DeviceKind::ref;
  auto run = ModelRun::make(kFolder, GetParam(), ref ? 1 : 2,
                            {.rows_max = 512, .context_max = ref ? 1024 : 8192, .sequences = 1});
  ASSERT_TRUE(run.ok()) << run.error().message;
  auto reference = Checkpoint::open(kFolder + "/reference/logits.safetensors");
  ASSERT_TRUE(reference.ok()) << reference.error().message;
  int64_t checked = 0;
  for (const Json& prompt : read_prompts()) {
    if (ref && prompt["tokens"].get<int64_t>() > 700) continue;
    check(prompt, **run, *reference);
    ++checked;
  }
  EXPECT_EQ(checked, ref ? 4 : 6);
}

INSTANTIATE_TEST_SUITE_P(Backends, MiniModel, ::testing::ValuesIn(testing::backends()),
                         [](const auto& info) { return std::string(wp::name(info.param)); });

}  // namespace
}  // namespace wp
