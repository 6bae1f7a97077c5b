// Opening and binding: the bundled model and the golden fixtures, then every way in which files can be wrong, with its
// message in full.
#include "weights/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "core/numbers.h"
#include "testing/safetensors_writer.h"
#include "testing/seeds.h"

namespace wp {
namespace {

namespace fs = std::filesystem;

using testing::bytes_of;
using testing::safetensors_file;
using testing::TemporaryFolder;

std::string mini() { return testing::source_directory() + "/models/flash-next-mini"; }

Checkpoint opened(const std::string& path) {
  auto result = Checkpoint::open(path);
  if (!result.ok()) ADD_FAILURE() << result.error().message;
  return std::move(result).value();
}

// The message of opening `path`; "opened" if it succeeds.
std::string open_fault(const std::string& path, ErrorCode code = ErrorCode::bad_file) {
  auto result = Checkpoint::open(path);
  if (result.ok()) return "opened";
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  return result.error().message;
}

std::string small_file(const std::string& name) { return safetensors_file({{name, "U8", {4}, "abcd"}}); }

// ---- Sound checkpoints

TEST(Checkpoint, OpensTheBundledModel) {
  const Checkpoint checkpoint = opened(mini());
  EXPECT_EQ(checkpoint.config()["model_type"], "qwen4_exp_text");
  EXPECT_FALSE(checkpoint.generation_config().is_null());
  EXPECT_GT(checkpoint.size_bytes(), 40 << 20);
  EXPECT_EQ(checkpoint.unbound().size(), checkpoint.tensors().size());
}

TEST(Checkpoint, BindsEveryExpertOfTheBundledModel) {
  const Checkpoint checkpoint = opened(mini());
  int64_t bound = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const size_t suffix = tensor.name.rfind(".weight");
    if (tensor.dtype != DType::u8 || suffix == std::string::npos) continue;
    auto matrix = checkpoint.bind_matrix(tensor.name.substr(0, suffix), tensor.shape[0], tensor.shape[1] * 2);
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    EXPECT_EQ(matrix->format, WeightFormat::nvfp4);
    EXPECT_GT(matrix->scale_2, 0.0f);
    ++bound;
  }
  EXPECT_GT(bound, 100);
  for (const std::string& name : checkpoint.unbound()) EXPECT_EQ(name.find("model.layers.0.mlp.experts."), name.npos);
}

TEST(Checkpoint, OpensEveryGoldenModel) {
  std::vector<std::string> folders{testing::source_directory() + "/testdata/qwen4_exp/tiny-nvfp4",
                                   testing::source_directory() + "/testdata/qwen4_exp/no-ple-silu",
                                   testing::source_directory() + "/testdata/qwen3_next/qwen3-next"};
  if (!testing::oracle_directory().empty())
    for (const auto& entry : fs::directory_iterator(testing::oracle_directory()))
      folders.push_back(entry.path().string());
  for (const std::string& folder : folders) {
    const Checkpoint model = opened(folder);
    EXPECT_TRUE(model.config().contains("hidden_size"));
    const Checkpoint reference = opened(folder + "/reference.safetensors");
    EXPECT_FALSE(reference.config().is_null());  // Lies beside it.
    auto logits = reference.bind("logits", DType::f32, {-1, -1});
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    EXPECT_EQ(logits->dim(1), model.config()["vocab_size"].get<int64_t>());
  }
}

TEST(Checkpoint, ReadsShardsByTheirIndex) {
  TemporaryFolder folder;
  folder.write("config.json", R"({"model_type":"x"})");
  folder.write("one.safetensors", safetensors_file({{"b", "U8", {2}, "bb"}, {"d", "I32", {1}, "dddd"}}));
  folder.write("two.safetensors", safetensors_file({{"a", "U8", {1}, "a"}, {"c", "I64", {1}, "cccccccc"}}));
  folder.write(
      "model.safetensors.index.json",
      testing::safetensors_index(
          {{"d", "one.safetensors"}, {"b", "one.safetensors"}, {"c", "two.safetensors"}, {"a", "two.safetensors"}}));
  const Checkpoint checkpoint = opened(folder.path());
  EXPECT_TRUE(checkpoint.generation_config().is_null());
  ASSERT_EQ(checkpoint.tensors().size(), 4u);
  EXPECT_EQ(checkpoint.tensors()[2].name, "c");
  EXPECT_EQ(checkpoint.tensors()[2].file, "two.safetensors");
  EXPECT_EQ(checkpoint.size_bytes(), 15);
  auto d = checkpoint.bind("d", DType::i32, {1});
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(std::memcmp(d->data, "dddd", 4), 0);
  EXPECT_EQ(checkpoint.unbound(), (std::vector<std::string>{"a", "b", "c"}));
  checkpoint.mark_known("a");
  EXPECT_EQ(checkpoint.unbound(), (std::vector<std::string>{"b", "c"}));
  checkpoint.mark_known("");
  EXPECT_TRUE(checkpoint.unbound().empty());
  EXPECT_TRUE(checkpoint.has("a"));
  EXPECT_FALSE(checkpoint.has("e"));
}

TEST(Checkpoint, MarksKnownNamesByPrefixOnly) {
  TemporaryFolder folder;
  const Checkpoint checkpoint = opened(folder.write(
      "w.safetensors",
      safetensors_file(
          {{"mt", "U8", {1}, "x"}, {"mtp.a", "U8", {1}, "x"}, {"mtp.b.c", "U8", {1}, "x"}, {"mtq", "U8", {1}, "x"}})));
  checkpoint.mark_known("mtp.");
  EXPECT_EQ(checkpoint.unbound(), (std::vector<std::string>{"mt", "mtq"}));
}

// Every dtype at every alignment of the data: what is handed out is aligned and holds the file's values.
TEST(Checkpoint, HandsOutAlignedTensors) {
  const std::vector<float> floats{1.5f, -2.0f, 0.25f};
  const std::vector<uint16_t> halves{0x3E00, 0xC000, 0x3400}, bf16{0x3FC0, 0xC000, 0x3E80};
  const std::vector<int64_t> wide{1, -2, int64_t{1} << 62};
  for (int padding = 0; padding < 8; ++padding) {
    TemporaryFolder folder;
    const Checkpoint checkpoint =
        opened(folder.write("w.safetensors", safetensors_file({{"i64", "I64", {3}, bytes_of(wide)},
                                                               {"f32", "F32", {3}, bytes_of(floats)},
                                                               {"f16", "F16", {3}, bytes_of(halves)},
                                                               {"bf16", "BF16", {3}, bytes_of(bf16)},
                                                               {"none", "F64", {0}, ""}},
                                                              padding)));
    auto i64 = checkpoint.bind("i64", DType::i64, {3});
    ASSERT_TRUE(i64.ok());
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(i64->i64()[i], wide[i]);
    EXPECT_TRUE(checkpoint.bind_any("none", {-1}).ok());
    for (const char* name : {"f32", "f16", "bf16"}) {
      auto any = checkpoint.bind_any(name, {-1});
      ASSERT_TRUE(any.ok());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(any->data) % static_cast<uintptr_t>(size_bytes(any->dtype)), 0u);
      auto f32 = checkpoint.bind_f32(name, {3});
      ASSERT_TRUE(f32.ok());
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(f32->f32()[i], floats[i]) << name;
      EXPECT_EQ(checkpoint.bind_f32(name, {3})->data, f32->data);  // Converted once.
    }
  }
}

TEST(Checkpoint, BindNamesWhatWasExpectedAndFound) {
  TemporaryFolder folder;
  const std::string path =
      folder.write("w.safetensors", safetensors_file({{"layers.7.gdn.beta", "BF16", {2, 3}, std::string(12, 'x')},
                                                      {"layers.7.gdn.flags", "BOOL", {2}, "xx"},
                                                      {"ids", "I64", {1}, "12345678"}}));
  const Checkpoint checkpoint = opened(path);
  const auto fault = [](const Result<Tensor>& bound) {
    if (bound.ok()) return std::string("bound");
    EXPECT_EQ(bound.error().code, ErrorCode::bad_file);
    return bound.error().message;
  };
  EXPECT_EQ(fault(checkpoint.bind("layers.7.gdn.beta", DType::f32, {32})),
            "w.safetensors: layers.7.gdn.beta: expected f32 [32], found bf16 [2, 3]");
  EXPECT_EQ(fault(checkpoint.bind("layers.7.gdn.beta", DType::bf16, {-1, 4})),
            "w.safetensors: layers.7.gdn.beta: expected bf16 [any, 4], found bf16 [2, 3]");
  EXPECT_EQ(fault(checkpoint.bind_any("layers.7.gdn.beta", {2})),
            "w.safetensors: layers.7.gdn.beta: expected [2], found bf16 [2, 3]");
  EXPECT_EQ(fault(checkpoint.bind("layers.7.gdn.flags", DType::u8, {2})),
            "w.safetensors: layers.7.gdn.flags: expected u8 [2], found BOOL [2]");
  EXPECT_EQ(fault(checkpoint.bind_any("layers.7.gdn.flags", {2})),
            "w.safetensors: layers.7.gdn.flags: expected a dtype that is supported, found BOOL [2]");
  EXPECT_EQ(fault(checkpoint.bind_f32("ids", {1})), "w.safetensors: ids: expected f32, f16 or bf16, found i64 [1]");
  EXPECT_EQ(fault(checkpoint.bind("layers.7.gdn.bta", DType::bf16, {2, 3})),
            path + ": no tensor layers.7.gdn.bta (closest: layers.7.gdn.beta)");
  EXPECT_EQ(fault(checkpoint.bind_any("model.language_model.layers.7.gdn.flags", {2})),
            path + ": no tensor model.language_model.layers.7.gdn.flags (closest: layers.7.gdn.flags)");
  EXPECT_EQ(fault(checkpoint.bind("layers.7.gdn.beta", DType::bf16, {-1, 3})), "bound");
}

TEST(Checkpoint, FingerprintFollowsHeadersDataAndConfig) {
  TemporaryFolder folder;
  const auto fingerprint = [&](const std::string& name, const std::string& bytes, const char* config) {
    folder.write("config.json", config);
    folder.write("model.safetensors", safetensors_file({{name, "U8", {4}, bytes}}));
    return opened(folder.path()).fingerprint();
  };
  const uint64_t first = fingerprint("w", "abcd", "{\"a\":1}");
  EXPECT_EQ(fingerprint("w", "abcd", "{ \"a\" : 1 }"), first);
  EXPECT_NE(fingerprint("v", "abcd", "{\"a\":1}"), first);
  EXPECT_NE(fingerprint("w", "abce", "{\"a\":1}"), first);
  EXPECT_NE(fingerprint("w", "abcd", "{\"a\":2}"), first);
  EXPECT_EQ(opened(mini()).fingerprint(), opened(mini()).fingerprint());
}

TEST(Checkpoint, ReportsProgress) {
  std::vector<std::string> phases;
  int64_t bytes_done = 0;
  auto checkpoint = Checkpoint::open(mini(), [&](const LoadProgress& progress) {
    if (phases.empty() || phases.back() != progress.phase) phases.emplace_back(progress.phase);
    EXPECT_LE(progress.files_done, progress.files_total);
    EXPECT_GE(progress.bytes_done, bytes_done);
    EXPECT_FALSE(progress.file.empty());
    bytes_done = progress.bytes_done;
  });
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(phases, std::vector<std::string>{"open"});
  checkpoint->mark_known("");
  EXPECT_EQ(phases, (std::vector<std::string>{"open", "weights"}));
  EXPECT_GT(bytes_done, checkpoint->size_bytes() * 9 / 10);
  EXPECT_LE(bytes_done, checkpoint->size_bytes());
}

TEST(Checkpoint, DiscardedWeightsReadTheSameAgain) {
  TemporaryFolder folder;
  const std::string weight(64 * 4096, 'w');
  for (const int padding : {0, 1}) {
    const Checkpoint checkpoint =
        opened(folder.write("w.safetensors", safetensors_file({{"a.weight", "BF16", {32, 4096}, weight}}, padding)));
    auto matrix = checkpoint.bind_matrix("a", 32, 4096);
    ASSERT_TRUE(matrix.ok());
    checkpoint.discard(*matrix);
    EXPECT_EQ(std::memcmp(matrix->data, weight.data(), weight.size()), 0);
  }
}

TEST(Checkpoint, MovesWithItsTensors) {
  TemporaryFolder folder;
  Checkpoint first = opened(folder.write("w.safetensors", small_file("w")));
  auto w = first.bind("w", DType::u8, {4});
  const Checkpoint second = std::move(first);
  EXPECT_EQ(second.bind("w", DType::u8, {4})->data, w->data);
  EXPECT_EQ(std::memcmp(w->data, "abcd", 4), 0);
}

// ---- Paths

TEST(CheckpointPaths, MissingOnesNameWhatIsThere) {
  TemporaryFolder folder;
  fs::create_directory(folder.path() + "/flash-next-mini");
  EXPECT_EQ(open_fault(folder.path() + "/flash-next-mni", ErrorCode::not_found),
            folder.path() + "/flash-next-mni: expected a model folder or .safetensors file, found nothing (closest: " +
                folder.path() + "/flash-next-mini)");
  EXPECT_EQ(open_fault(folder.path() + "/zzz", ErrorCode::not_found),
            folder.path() + "/zzz: expected a model folder or .safetensors file, found nothing");
  EXPECT_EQ(open_fault(folder.path() + "/no/such/model/", ErrorCode::not_found),
            folder.path() + "/no/such/model/: expected a model folder or .safetensors file, found nothing (exists: " +
                folder.path() + ")");
}

TEST(CheckpointPaths, FoldersThatAreNoModels) {
  TemporaryFolder folder;
  const std::string& path = folder.path();
  EXPECT_EQ(open_fault(path, ErrorCode::not_found),
            path + ": expected model.safetensors or model.safetensors.index.json, found neither");
  folder.write("model.safetensors", small_file("w"));
  EXPECT_EQ(open_fault(path, ErrorCode::not_found), path + ": expected config.json beside the weights, found none");
  folder.write("config.json", "[]");
  EXPECT_EQ(open_fault(path), path + "/config.json: expected a JSON object, found array");
  folder.write("config.json", "{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}");
  EXPECT_EQ(open_fault(path), path + "/config.json: JSON: expected at most 64 levels of nesting, found more");
  folder.write("config.json", "");
  EXPECT_EQ(open_fault(path), path + "/config.json: JSON: expected a value, found an empty text");
  folder.write("config.json", "{}");
  EXPECT_EQ(open_fault(path), "opened");
  const std::string text = folder.write("model.gguf", "GGUF");
  EXPECT_EQ(open_fault(text), text + ": expected a folder or a .safetensors file, found another file");
}

TEST(CheckpointPaths, FilesThatAreNoRegularFiles) {
  TemporaryFolder folder;
  const std::string pipe = folder.path() + "/p.safetensors", inside = folder.path() + "/d";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(open_fault(pipe, ErrorCode::io), pipe + ": expected a regular file, found a device, pipe or socket");
  fs::create_directories(inside + "/model.safetensors");
  EXPECT_EQ(open_fault(inside, ErrorCode::not_found), inside + ": expected config.json beside the weights, found none");
  testing::write_file(inside + "/config.json", "{}");
  EXPECT_EQ(open_fault(inside, ErrorCode::io), inside + "/model.safetensors: expected a regular file, found a folder");
  const std::string secret = folder.write("s.safetensors", small_file("w"));
  ASSERT_EQ(::chmod(secret.c_str(), 0), 0);
  const std::string refused = ::geteuid() == 0 ? "opened" : secret + ": cannot open: Permission denied";
  EXPECT_EQ(open_fault(secret, ErrorCode::io), refused);  // Root may read everything.
}

TEST(CheckpointPaths, ConfigsOfAbsurdSizeAreNotRead) {
  TemporaryFolder folder;
  folder.write("model.safetensors", small_file("w"));
  const std::string config = folder.write("config.json", "{}");
  fs::resize_file(config, int64_t{1} << 40);  // Sparse.
  EXPECT_EQ(open_fault(folder.path()), config + ": expected at most 16777216 bytes, found 1099511627776");
}

// ---- Files against one another

struct Shards {
  TemporaryFolder folder;
  Shards() {
    folder.write("config.json", "{}");
    folder.write("1.safetensors", small_file("a"));
    folder.write("2.safetensors", small_file("b"));
  }
  std::string fault(const std::vector<std::pair<std::string, std::string>>& index,
                    ErrorCode code = ErrorCode::bad_file) {
    folder.write("model.safetensors.index.json", testing::safetensors_index(index));
    return open_fault(folder.path(), code);
  }
};

TEST(CheckpointIndex, MustAgreeWithTheFiles) {
  Shards s;
  EXPECT_EQ(s.fault({{"a", "1.safetensors"}, {"b", "2.safetensors"}}), "opened");
  EXPECT_EQ(s.fault({{"a", "1.safetensors"}, {"b", "2.safetensors"}, {"c", "2.safetensors"}}),
            "2.safetensors: c: expected this tensor as the index says, found none");
  EXPECT_EQ(s.fault({{"Z", "1.safetensors"}, {"a", "1.safetensors"}, {"b", "2.safetensors"}}),
            "1.safetensors: Z: expected this tensor as the index says, found none");
  EXPECT_EQ(s.fault({{"a", "2.safetensors"}, {"b", "1.safetensors"}}),
            "1.safetensors: a: expected this tensor in 2.safetensors as the index says, found it here");
  s.folder.write("2.safetensors", safetensors_file({{"b", "U8", {1}, "b"}, {"b2", "U8", {1}, "b"}}));
  EXPECT_EQ(s.fault({{"a", "1.safetensors"}, {"b", "2.safetensors"}}),
            "2.safetensors: b2: expected only tensors of the index, found one that it lacks");
  s.folder.write("2.safetensors", safetensors_file({{"a", "U8", {1}, "b"}, {"b", "U8", {1}, "b"}}));
  EXPECT_EQ(s.fault({{"a", "1.safetensors"}, {"b", "2.safetensors"}}),
            "2.safetensors: a: expected every tensor in one file, found it in 1.safetensors too");
}

TEST(CheckpointIndex, NamesTheFileThatIsMissingOrDamaged) {
  Shards s;
  const std::string& path = s.folder.path();
  EXPECT_EQ(s.fault({{"a", "1.safetensors"}, {"b", "3.safetensors"}}, ErrorCode::not_found),
            path + "/3.safetensors: cannot open: No such file or directory");
  EXPECT_EQ(s.fault({{"a", "../1.safetensors"}}),
            path +
                "/model.safetensors.index.json: a: expected the base name of a file in the folder, found a path "
                "(\"../1.safetensors\")");
  const std::string whole = small_file("b");
  s.folder.write("2.safetensors", whole.substr(0, whole.size() - 1));
  EXPECT_EQ(s.fault({{"a", "1.safetensors"}, {"b", "2.safetensors"}}),
            path + "/2.safetensors: b: data_offsets: expected a span inside the file's 3 bytes of data, found [0, 4]");
  s.folder.write("2.safetensors", "");
  EXPECT_EQ(s.fault({{"a", "1.safetensors"}, {"b", "2.safetensors"}}),
            path + "/2.safetensors: header: expected a length of 8 bytes, found a file of 0");
  s.folder.write("2.safetensors", "version https://git-lfs.github.com/spec/v1");
  EXPECT_EQ(
      s.fault({{"a", "1.safetensors"}, {"b", "2.safetensors"}}),
      path + "/2.safetensors: header: expected a safetensors file, found a Git LFS pointer (git lfs pull fetches it)");
}

TEST(CheckpointIndex, FilesThatChangeWhileTheyAreOpenedAreRefused) {
  Shards s;
  s.folder.write("model.safetensors.index.json",
                 testing::safetensors_index({{"a", "1.safetensors"}, {"b", "2.safetensors"}}));
  const std::string first = s.folder.path() + "/1.safetensors";
  const auto size = static_cast<int64_t>(fs::file_size(first));
  auto result = Checkpoint::open(s.folder.path(), [&](const LoadProgress& progress) {
    if (progress.files_done == 1) fs::resize_file(first, 10);
  });
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, cat(first, ": expected ", size, " bytes as when it was opened, found 10"));
}

}  // namespace
}  // namespace wp
