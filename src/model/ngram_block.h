// The n-gram embedding of a qwen4_exp layer (PLE, spec/qwen4_exp.md 3.5): its hash, table and layer. Const once bound.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/binder.h"
#include "model/config.h"
#include "model/layout.h"
#include "model/pass.h"
#include "ops/ngram.h"

namespace wp {

struct NgramConfig {
  std::vector<int64_t> layers;  // Indices from 0, ascending; empty: the model has no n-gram layer.
  int64_t embed_dim = 0, taps = 0, order = 0, heads = 0;
  int64_t vocabulary_base = 0, divisible_by = 0, parts = 0;
  uint64_t seed = 0;
  int32_t end_of_text = 0;

  int64_t heads_total() const { return heads * (order - 1); }
  int64_t width() const { return embed_dim / heads_total(); }
};

Result<NgramConfig> read_ngram(const ConfigReader& config, const TrunkConfig& trunk);

// The hash constants by formula, for layer `rank` of the n-gram layers; row count of its table.
struct NgramConstants {
  std::vector<int64_t> multipliers, moduli, offsets;
  int64_t table_rows = 0;
};
NgramConstants ngram_constants(const NgramConfig& config, int64_t vocabulary, int64_t rank);

struct NgramBlock {
  ops::NgramHash hash;
  std::vector<Matrix> shards;
  std::span<const Matrix> shards_at;  // The same, where kernels read it
  int64_t shard_rows = 0;
  Matrix key;    // [S * M, embed_dim]
  Matrix value;  // [M, embed_dim]
  ops::NgramNorms norms;
  std::vector<float> conv;  // [taps, S * M]
  Tensor conv_at;
  int64_t taps = 0;
  int64_t conv_offset = 0, ids_offset = 0;

  double multiply_adds() const { return static_cast<double>((key.N + value.N) * key.K + taps * key.N); }
};

struct NgramScratch {
  Tensor rows;           // [T, heads] i64
  Tensor embedding;      // [T, embed_dim]
  Tensor key, gated;     // [T, S * M]
  Tensor normed, mixed;  // [T, S * M]
  Tensor value;          // [T, M]
};

// `rank`: of this layer among the n-gram layers.
Result<void> bind_ngram(Binder& binder, const std::string& prefix, const TrunkConfig& trunk, const NgramConfig& config,
                        int64_t rank, int64_t streams, StateLayout& state, NgramBlock& block);
NgramScratch plan_ngram(ScratchLayout& layout, const TrunkConfig& trunk, const NgramConfig& config, int64_t streams,
                        int64_t rows);

// H [T, S * M] += the layer's output.
void ngram_forward(Stream& stream, const Pass& pass, const NgramBlock& block, const NgramScratch& scratch,
                   const Tensor& H);

}  // namespace wp
