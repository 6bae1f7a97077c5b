// Every fixture of testdata/ and, where it exists, of the oracle's folder, on every backend that this program has:
// every logit of every row, whole and in pieces, and the greedy continuation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "testing/model_run.h"
#include "testing/op_case.h"
#include "testing/seeds.h"

namespace wp {
namespace {

namespace fs = std::filesystem;
using testing::ModelRun;
using testing::RunningSequence;

struct Reference {
  std::vector<TokenId> ids, greedy;
  std::vector<float> logits;
  std::vector<int64_t> pieces;
};

std::vector<TokenId> ids_of(const Checkpoint& file, const char* name) {
  auto found = file.bind(name, DType::i64, {-1});
  if (!found.ok()) return {};
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < found->count(); ++i) {
    int64_t id;
    std::memcpy(&id, found->data + i * 8, 8);
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

Reference read_reference(const fs::path& folder) {
  Reference reference;
  auto file = Checkpoint::open((folder / "reference.safetensors").string());
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
  if (!file.ok()) return reference;
  reference.ids = ids_of(*file, "input_ids");
  reference.greedy = ids_of(*file, "greedy");
  auto logits = file->bind("logits", DType::f32, {-1, -1});
  EXPECT_TRUE(logits.ok());
  reference.logits.resize(static_cast<size_t>(logits->count()));
  std::memcpy(reference.logits.data(), logits->data, static_cast<size_t>(logits->size_bytes()));
  if (std::ifstream stream(folder / "reference.json"); stream) {
    std::stringstream text;
    text << stream.rdbuf();
    auto json = parse_json(text.str());
    EXPECT_TRUE(json.ok());
    for (const Json& piece : (*json)["pieces"]) reference.pieces.push_back(piece.get<int64_t>());
  }
  return reference;
}

std::vector<fs::path> fixtures() {
  std::vector<fs::path> found;
  for (const std::string& root : {testing::source_directory() + "/testdata", testing::oracle_directory()}) {
    if (root.empty() || !fs::exists(root)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root))
      if (entry.path().filename() == "reference.safetensors" && fs::exists(entry.path().parent_path() / "config.json"))
        found.push_back(entry.path().parent_path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

double worst(const std::vector<float>& found, const std::vector<float>& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double difference = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!std::isfinite(found[i])) return INFINITY;
    difference = std::max(difference, std::abs(static_cast<double>(found[i]) - expected[i]));
  }
  return difference;
}

// Twice the distance of transformers' own bf16 pass from its float32 one: what bf16 operands may cost.
double bf16_tolerance(const std::string& fixture) {
  std::ifstream file(testing::source_directory() + "/testdata/bf16_distance.txt");
  std::string line, name;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    double distance = 0;
    if (words >> name >> distance && name == fixture) return 2 * distance;
  }
  return 0;
}

// f32 weights are multiplied in f32 on every backend; others, on tensor cores, with activations rounded to bf16.
bool rounds_to_bf16(DeviceKind kind, const fs::path& folder) {
  if (kind != DeviceKind::cuda) return false;
  auto checkpoint = Checkpoint::open(folder.string());
  WP_ASSERT(checkpoint.ok());
  return std::any_of(checkpoint->tensors().begin(), checkpoint->tensors().end(), [](const TensorInfo& tensor) {
    return tensor.name.find("_proj") != std::string::npos && tensor.dtype != DType::f32;
  });
}

TEST(Bf16Tolerance, IsKnownOfEveryFixture) {
  for (const fs::path& folder : fixtures()) EXPECT_GT(bf16_tolerance(folder.filename().string()), 0) << folder;
  EXPECT_EQ(bf16_tolerance("tiny"), 0);  // Whole names alone.
}

class Fixture : public ::testing::TestWithParam<std::tuple<fs::path, DeviceKind>> {
 protected:
  void SetUp() override {
    const auto& [folder, kind] = GetParam();
    reference_ = read_reference(folder);
    auto run = ModelRun::make(folder.string(), kind, 1, {});
    ASSERT_TRUE(run.ok()) << run.error().message;
    run_ = std::move(*run);
    // The relatives of qwen4_exp with larger residuals agree with transformers to 7e-4 in double, too.
    tolerance_ = kind != DeviceKind::ref ? 2e-3 : run_->info().family.starts_with("qwen3_5") ? 1e-3 : 2e-4;
    if (rounds_to_bf16(kind, folder)) tolerance_ = bf16_tolerance(folder.filename().string());
  }
  Reference reference_;
  std::unique_ptr<ModelRun> run_;
  double tolerance_ = 0;
};

TEST_P(Fixture, WholePromptAndGreedy) {
  RunningSequence sequence = run_->start(0);
  const auto logits = run_->prefill(sequence, reference_.ids);
  EXPECT_LE(worst(logits, reference_.logits), tolerance_);
  RecordProperty("worst", std::to_string(worst(logits, reference_.logits)));
  EXPECT_EQ(run_->greedy(sequence, logits, static_cast<int64_t>(reference_.greedy.size())), reference_.greedy);
}

TEST_P(Fixture, ReferencePieces) {
  RunningSequence sequence = run_->start(1);
  EXPECT_LE(worst(run_->prefill(sequence, reference_.ids, reference_.pieces), reference_.logits), tolerance_);
}

// Inside index blocks (4), the short convolution (3), the n-gram layer's (9) and pages (64).
TEST_P(Fixture, HostilePieces) {
  for (const std::vector<int64_t>& pieces : std::vector<std::vector<int64_t>>{
           {1, 1, 1, 1, 1, 2, 3, 1, 5, 7, 9, 4, 8, 2, 2}, {63, 1, 1, 62, 2}, {2, 61, 2, 3}, {64, 64}, {3, 3, 3, 55}}) {
    RunningSequence sequence = run_->start(2);
    EXPECT_LE(worst(run_->prefill(sequence, reference_.ids, pieces), reference_.logits), tolerance_);
  }
}

// Token by token as decode steps, beside another sequence.
TEST_P(Fixture, DecodeInABatch) {
  RunningSequence one = run_->start(0), other = run_->start(3);
  std::vector<float> rows;
  for (size_t t = 0; t < reference_.ids.size(); ++t) {
    std::vector<ModelRun::Part> parts{{&one, {reference_.ids[t]}}};
    if (t % 3 != 1) parts.insert(parts.begin(), {&other, {reference_.ids[(7 * t) % reference_.ids.size()]}});
    const auto logits = run_->pass(Phase::decode, parts);
    rows.insert(rows.end(), logits.end() - run_->info().vocabulary, logits.end());
  }
  EXPECT_LE(worst(rows, reference_.logits), tolerance_);
}

// From the anchors that a pass captured, in another slot.
TEST_P(Fixture, ResumesFromAnchors) {
  RunningSequence first = run_->start(0);
  std::vector<ModelRun::Part> parts{{&first, reference_.ids}};
  const auto T = static_cast<int64_t>(reference_.ids.size());
  for (int64_t position = kPageRows; position <= T; position += kPageRows)
    parts[0].captures.push_back({position, static_cast<int32_t>(position / kPageRows)});
  run_->pass(Phase::prefill, parts);
  for (const Capture& capture : parts[0].captures) {
    EXPECT_EQ(run_->pools().receipts(capture.anchor), run_->info().capture_receipts);
    if (capture.position == T) continue;
    RunningSequence second = run_->start(1);
    for (int64_t page = 0; page < capture.position / kPageRows; ++page)
      second.pages[static_cast<size_t>(page)] = first.pages[static_cast<size_t>(page)];
    second.position = capture.position;
    second.resume_anchor = capture.anchor;
    const std::vector<TokenId> rest(reference_.ids.begin() + capture.position, reference_.ids.end());
    const std::vector<float> expected(reference_.logits.begin() + capture.position * run_->info().vocabulary,
                                      reference_.logits.end());
    EXPECT_LE(worst(run_->prefill(second, rest, {1, 70}), expected), tolerance_);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fixture,
                         ::testing::Combine(::testing::ValuesIn(fixtures()), ::testing::ValuesIn(testing::backends())),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param).filename().string();
                           const std::string parent = std::get<0>(info.param).parent_path().filename().string();
                           name = parent + "_" + name + "_" + wp::name(std::get<1>(info.param));
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace wp
