// main() of fuzz programs where libFuzzer is not linked: runs every file of the corpus folders given, then random
// mutations of them and random bytes, from a seed that it prints. Usage: X_fuzz [--seed=N] [--runs=N] [CORPUS...]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

Bytes mutate(const std::vector<Bytes>& corpus, wp::Rng& rng) {
  Bytes out;
  if (!corpus.empty() && !rng.percent(10)) out = corpus[rng.between(0, static_cast<int64_t>(corpus.size()) - 1)];
  for (int64_t edits = rng.between(1, 8); edits > 0; --edits) {
    const int64_t at = out.empty() ? 0 : rng.between(0, static_cast<int64_t>(out.size()) - 1);
    switch (rng.between(0, 5)) {
      case 0: out.insert(out.begin() + at, static_cast<uint8_t>(rng.next())); break;
      case 1:
        if (!out.empty()) out[at] ^= static_cast<uint8_t>(1u << rng.between(0, 7));
        break;
      case 2:
        if (!out.empty())
          out.erase(out.begin() + at, out.begin() + std::min<int64_t>(out.size(), at + rng.between(1, 16)));
        break;
      case 3:
        if (!out.empty()) out[at] = static_cast<uint8_t>(rng.next());
        break;
      case 4: {
        if (corpus.empty()) break;
        const Bytes& other = corpus[rng.between(0, static_cast<int64_t>(corpus.size()) - 1)];
        if (other.empty()) break;
        const int64_t from = rng.between(0, static_cast<int64_t>(other.size()) - 1);
        const int64_t count = std::min<int64_t>(static_cast<int64_t>(other.size()) - from, rng.between(1, 64));
        out.insert(out.begin() + at, other.begin() + from, other.begin() + from + count);
        break;
      }
      default: {
        static const char* const kPieces[] = {"{",  "}",  "[",    "\"", "\\u0000", "<tool_call>", "</think>",
                                              "{{", "{%", "\xff", "-1", "1e308",   "\n"};
        const char* piece = kPieces[rng.between(0, std::size(kPieces) - 1)];
        out.insert(out.begin() + at, piece, piece + std::strlen(piece));
      }
    }
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  wp::Seed seed = std::random_device{}();
  int64_t runs = 20000;
  std::vector<Bytes> corpus;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seed=", 7) == 0) seed = std::strtoull(argv[i] + 7, nullptr, 10);
    else if (std::strncmp(argv[i], "--runs=", 7) == 0) runs = std::atoll(argv[i] + 7);
    else if (std::filesystem::is_directory(argv[i]))
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) corpus.push_back(read_file(entry.path()));
    else corpus.push_back(read_file(argv[i]));
  }
  std::printf("seed %llu, %lld runs, %zu corpus files\n", static_cast<unsigned long long>(seed),
              static_cast<long long>(runs), corpus.size());
  std::fflush(stdout);
  for (const Bytes& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  wp::Rng rng(seed);
  for (int64_t run = 0; run < runs; ++run) {
    const Bytes input = mutate(corpus, rng);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("done\n");
  return 0;
}
