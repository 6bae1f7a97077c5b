#include "testing/seeds.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>

#include "core/assert.h"
#include "core/cat.h"

namespace wp::testing {
namespace {

std::optional<Seed>& given_seed() {
  static std::optional<Seed> seed;
  return seed;
}

std::optional<int64_t>& given_runs() {
  static std::optional<int64_t> runs;
  return runs;
}

}  // namespace

void set_seed(Seed seed) { given_seed() = seed; }

std::vector<Seed> seeds_of_this_run() {
  if (given_seed()) return {*given_seed()};
  static const Seed fresh = std::random_device{}();
  return {1, fresh};
}

void set_runs(int64_t runs) { given_runs() = runs; }

int64_t runs_of_this_run(int64_t usual) { return given_runs().value_or(usual); }

std::string repeat_hint(Seed seed) { return cat("repeat with --seed=", seed); }

Marks::Marks(std::vector<std::string> names) {
  for (std::string& name : names) marks_.emplace_back(std::move(name), 0);
}

void Marks::reach(const std::string& name) {
  for (auto& [known, count] : marks_)
    if (known == name) {
      ++count;
      return;
    }
  WP_ASSERT(!"a mark that was not declared");
}

bool Marks::reached(const std::string& name) const {
  for (const auto& [known, count] : marks_)
    if (known == name) return count > 0;
  return false;
}

std::string Marks::missing() const {
  std::string out;
  for (const auto& [name, count] : marks_)
    if (count == 0) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string source_directory() {
  namespace fs = std::filesystem;
  // Test programs run from anywhere below the source tree; the marker is the layer list.
  for (fs::path at = fs::current_path(); !at.empty(); at = at.parent_path()) {
    if (fs::exists(at / "src" / "LAYERS")) return at.string();
    if (at == at.root_path()) break;
  }
  return ".";
}

std::string oracle_directory() {
  const std::filesystem::path path =
      std::filesystem::path(source_directory()) / ".." / "shared" / "oracle" / "fixtures";
  return std::filesystem::exists(path) ? std::filesystem::weakly_canonical(path).string() : "";
}

}  // namespace wp::testing
