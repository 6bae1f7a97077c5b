// The program's own promises: exit codes, last lines, and that the cache changes no answer.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "process.h"
#include "testing/seeds.h"

namespace wp::e2e {
namespace {

bool sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

TEST(Cli, UnknownFlagEndsBeforeAnythingIsLoaded) {
  const Finished run = run_warmpath({"serve", bundled_model(), "--prot", "1"});
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(run.last_error_line(),
            "warmpath: unknown flag --prot; the nearest is --port; see warmpath serve --help-all");
  double best = run.seconds;  // Of several: other programs share the machine.
  for (int i = 0; i < 4; ++i) best = std::min(best, run_warmpath({"serve", "nowhere", "--prot", "1"}).seconds);
  if (!sanitized()) {
    EXPECT_LT(best, 0.05);
  }
}

TEST(Cli, UnknownCommandNamesTheNearest) {
  const Finished run = run_warmpath({"srve"});
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.last_error_line().find("the nearest is serve"), std::string::npos) << run.err;
  EXPECT_EQ(run_warmpath({}).code, 2);
}

TEST(Cli, VersionAndHelp) {
  const Finished version = run_warmpath({"version", "--json"});
  EXPECT_EQ(version.code, 0);
  EXPECT_NE(version.out.find("\"model_types\""), std::string::npos);
  EXPECT_EQ(run_warmpath({"help"}).code, 0);
  EXPECT_NE(run_warmpath({"serve", "--help"}).out.find("--context-tokens"), std::string::npos);
  EXPECT_EQ(run_warmpath({"help", "nothing"}).code, 2);
}

TEST(Cli, MissingAndHostileModelsAreInvalid) {
  const Finished missing = run_warmpath({"kl", "/nowhere/model", "--reference", "x"});
  EXPECT_NE(missing.code, 0);
  const Finished serve = run_warmpath({"serve", "/nowhere/model", "--port", "0"});
  EXPECT_EQ(serve.code, 3);
  EXPECT_NE(serve.last_error_line().find("expected a model folder"), std::string::npos) << serve.err;

  // The bundled model's texts beside a header that is longer than its file.
  const std::string folder = temporary_folder(".model");
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    std::filesystem::copy(bundled_model() + "/" + name, folder + "/" + name);
  std::ofstream(folder + "/model.safetensors", std::ios::binary) << std::string("\xFF\xFF\xFF\xFF\0\0\0\0{}", 10);
  const Finished hostile = run_warmpath({"serve", folder, "--port", "0"});
  EXPECT_EQ(hostile.code, 3) << hostile.err;
  EXPECT_NE(hostile.last_error_line().find("model.safetensors"), std::string::npos) << hostile.err;
  std::filesystem::remove_all(folder);
}

TEST(Cli, PortInUse) {
  RunningServer server({});
  ASSERT_FALSE(server.url().empty());
  const Finished second = run_warmpath({"serve", bundled_model(), "--port", server.port()});
  EXPECT_EQ(second.code, 8);
  EXPECT_NE(second.last_error_line().find(server.port()), std::string::npos) << second.err;
  EXPECT_EQ(server.stop(), 0);  // An idle server drains at once.
}

TEST(Cli, KlPassesAndItsNegativeControlFails) {
  const std::string model = bundled_model(), reference = model + "/reference/logits.safetensors";
  const std::vector<std::string> args = {"kl", model, "--reference", reference, "--tokens-max", "400"};
  const Finished good = run_warmpath(args);
  EXPECT_EQ(good.code, 0) << good.err << good.out;
  std::vector<std::string> strict = args;
  strict.insert(strict.end(), {"--tolerance", "1e-9"});
  const Finished bad = run_warmpath(strict);
  EXPECT_EQ(bad.code, 1);
  EXPECT_NE(bad.last_error_line().find("expected logits within 1.0e-09"), std::string::npos) << bad.err;
}

TEST(Eval, TheCacheChangesNoBit) {
  const std::string cases = sanitized() ? "2" : "9";
  const Finished run = run_warmpath(
      {"eval", "equality", bundled_model(), "--cases", cases, "--prompt-max", "700", "--seed", "3", "--json"}, 600);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("\"differences\":0"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("\"cases\":" + cases), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("\"warm_requests\":0,"), std::string::npos) << "nothing was restored";
  EXPECT_EQ(run_warmpath({"eval", "likeness", bundled_model()}).code, 2);
}

TEST(Replay, CacheOnEqualsCacheOff) {
  const std::string model = bundled_model(), trace = model + "/replay/agentic-200.jsonl";
  const std::string on = temporary_folder(".run") + "/on.json", off = temporary_folder(".run") + "/off.json";
  const std::string count = sanitized() ? "1" : "3";
  const Finished warm = run_warmpath({"replay", model, trace, "--conversations", count, "--json", on}, 1200);
  ASSERT_EQ(warm.code, 0) << warm.err;
  EXPECT_NE(warm.out.find("faults                             0"), std::string::npos) << warm.out;
  EXPECT_EQ(warm.out.find("warm turns restored                0 of"), std::string::npos) << "nothing was restored";
  const Finished cold =
      run_warmpath({"replay", model, trace, "--conversations", count, "--no-cache", "--json", off}, 1200);
  ASSERT_EQ(cold.code, 0) << cold.err;
  const Finished compared = run_warmpath({"replay", "--compare", on, off});
  EXPECT_EQ(compared.code, 0) << compared.out;
  EXPECT_NE(compared.out.find("turns identical"), std::string::npos) << compared.out;
}

TEST(Inspect, WhyNeedsNoWeights) {
  const std::string folder = temporary_folder(".why"), model = bundled_model();
  for (const char* file : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy(model + "/" + file, folder + "/" + file);
  const std::string trace = model + "/replay/agentic-200.jsonl";
  const Finished why = run_warmpath({"inspect", "why", folder, trace, "--parallel", "4", "--anchors", "16"}, 300);
  EXPECT_EQ(why.code, 0) << why.err;
  EXPECT_NE(why.out.find("miss=none"), std::string::npos) << why.out;
  EXPECT_NE(why.out.find("nothing of it was known"), std::string::npos) << why.out;
  EXPECT_EQ(run_warmpath({"inspect", "why", folder}).code, 2);
  std::filesystem::remove_all(folder);
}

TEST(Inspect, ListsACacheFolderAndNamesWhatIsDamaged) {
  const std::string model = bundled_model(), folder = temporary_folder(".cache");
  const Finished foreign = run_warmpath({"inspect", folder, "--verify"});
  EXPECT_EQ(foreign.code, 3);
  EXPECT_NE(foreign.last_error_line().find("expected a folder of --cache-disk"), std::string::npos) << foreign.err;
  const std::string trace = model + "/needles/needles-1k.jsonl";
  const Finished filled =
      run_warmpath({"replay", model, trace, "--conversations", "1", "--no-turns", "--cache-disk", folder});
  ASSERT_EQ(filled.code, 0) << filled.err;
  const Finished good = run_warmpath({"inspect", folder, "--verify"});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_NE(good.out.find("anchors    "), std::string::npos) << good.out;
  EXPECT_NE(good.out.find(" good\n"), std::string::npos) << good.out;
  std::fstream(folder + "/1.segment", std::ios::in | std::ios::out | std::ios::binary).seekp(1000).put('!');
  const Finished bad = run_warmpath({"inspect", folder, "--verify", "--json"});
  EXPECT_EQ(bad.code, 1) << bad.err;
  EXPECT_NE(bad.out.find("\"damaged\":1"), std::string::npos) << bad.out;
  EXPECT_NE(bad.last_error_line().find("1.segment offset 0 ("), std::string::npos) << bad.err;
  EXPECT_EQ(run_warmpath({"inspect", folder}).code, 0);  // Only --verify reads the bytes.
  std::filesystem::remove_all(folder);
}

TEST(Ctl, AsksARunningServerAboutItsCache) {
  EXPECT_EQ(run_warmpath({"ctl", "nowhere", "cache", "stats"}).code, 2);
  const std::string folder = temporary_folder(".cache");
  RunningServer plain({}), with_disk({"--cache-disk", folder});
  ASSERT_FALSE(plain.url().empty() || with_disk.url().empty());
  const Finished none = run_warmpath({"ctl", plain.url(), "cache", "save"});
  EXPECT_NE(none.code, 0);
  EXPECT_NE(none.last_error_line().find("expected a server with --cache-disk DIR"), std::string::npos) << none.err;
  EXPECT_EQ(run_warmpath({"ctl", plain.url(), "cache", "restore"}).code, 2);
  EXPECT_EQ(run_warmpath({"ctl", plain.url(), "status", "now"}).code, 2);
  EXPECT_NE(run_warmpath({"ctl", plain.url(), "status"}).out.find("requests.slots               4\n"),
            std::string::npos);
  EXPECT_NE(run_warmpath({"ctl", plain.url(), "slots"}).out.find("3.state                      idle\n"),
            std::string::npos);
  const std::string trace = bundled_model() + "/needles/needles-1k.jsonl";
  ASSERT_EQ(run_warmpath({"replay", with_disk.url(), trace, "--conversations", "1", "--no-turns"}).code, 0);
  const Finished save = run_warmpath({"ctl", with_disk.url(), "cache", "save", "--json"});
  EXPECT_EQ(save.code, 0) << save.err;
  EXPECT_EQ(save.out.find("\"records\":0,"), std::string::npos) << save.out;
  EXPECT_EQ(run_warmpath({"ctl", with_disk.url(), "cache", "flush"}).code, 0);
  const std::string empty = "device.anchors.published     0\n";
  Finished stats;
  for (int i = 0; i < 100 && stats.out.find(empty) == std::string::npos; ++i)  // The engine obeys a little later.
    stats = run_warmpath({"ctl", with_disk.url(), "cache", "stats"});
  EXPECT_EQ(stats.code, 0) << stats.err;
  EXPECT_NE(stats.out.find(empty), std::string::npos) << stats.out;
  EXPECT_NE(stats.out.find("disk.pending_bytes           0\n"), std::string::npos) << stats.out;
  std::filesystem::remove_all(folder);
}

TEST(Replay, Needles) {
  const std::string model = bundled_model();
  const Finished run =
      run_warmpath({"replay", model, model + "/needles/needles-1k.jsonl", "--conversations", "4", "--no-turns"}, 600);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("4 of 4 (100.0 %)"), std::string::npos) << run.out;
}

TEST(Clients, OpenaiPythonRunsAToolCallConversation) {
  const std::string root = testing::source_directory(), python = root + "/build/venv/bin/python";
  ASSERT_TRUE(std::filesystem::exists(python)) << "expected " << python << " with openai; run ./do setup";
  RunningServer server({});
  ASSERT_FALSE(server.url().empty());
  const Finished run = run_program({python, root + "/tests/e2e/openai_client.py", server.url()}, 300);
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  EXPECT_EQ(server.stop(), 0);
}

}  // namespace
}  // namespace wp::e2e
