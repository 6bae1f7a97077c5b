#include "model/ngram_block.h"

#include <algorithm>

#include "core/rng.h"
#include "ops/gdn.h"
#include "ops/linear.h"
#include "ops/residual.h"

namespace wp {
namespace {

bool is_prime(int64_t number) {
  if (number < 2) return false;
  for (int64_t divisor = 2; divisor * divisor <= number; ++divisor)
    if (number % divisor == 0) return false;
  return true;
}

// What a checkpoint stores against what the formula gives.
Result<void> expect_constants(const std::string& name, const std::vector<int64_t>& found,
                              const std::vector<int64_t>& expected) {
  for (size_t i = 0; i < expected.size(); ++i)
    if (found[i] != expected[i])
      return Error{ErrorCode::bad_file,
                   cat(name, "[", i, "]: expected ", expected[i], " by the hash's formula, found ", found[i])};
  return {};
}

Result<void> read_layers(const ConfigReader& config, const TrunkConfig& trunk, NgramConfig& ngram) {
  if (!config.has("ple_layer_ids")) return {};
  const Json& ids = config.at("ple_layer_ids");
  if (!ids.is_array()) return config_error("ple_layer_ids", "a list of layer numbers from 1", dump_json(ids));
  for (const Json& id : ids) {
    const int64_t number = id.is_number_integer() ? id.get<int64_t>() : 0;
    if (number < 1 || number > trunk.layers)
      return config_error("ple_layer_ids", cat("layer numbers in 1..", trunk.layers), dump_json(id));
    ngram.layers.push_back(number - 1);
  }
  std::sort(ngram.layers.begin(), ngram.layers.end());
  ngram.layers.erase(std::unique(ngram.layers.begin(), ngram.layers.end()), ngram.layers.end());
  if (ngram.layers.size() > 16) return config_error("ple_layer_ids", "at most 16 layers", cat(ngram.layers.size()));
  return {};
}

}  // namespace

Result<NgramConfig> read_ngram(const ConfigReader& config, const TrunkConfig& trunk) {
  NgramConfig ngram;
  WP_TRY(read_layers(config, trunk, ngram));
  if (ngram.layers.empty()) return ngram;
  WP_TRY(config.boolean_is("use_compressed_mapping", false));
  WP_TRY(ngram.embed_dim, config.integer("ple_embed_dim", 1, 1 << 20));
  WP_TRY(ngram.taps, config.integer_or("ple_conv_kernel_size", 4, 2, 16));
  WP_TRY(ngram.order, config.integer("ngram_size", 2, 8));
  WP_TRY(ngram.heads, config.integer("heads_per_ngram", 1, 64));
  WP_TRY(ngram.vocabulary_base, config.integer("ngram_vocab_size_base", 1, int64_t{1} << 31));
  WP_TRY(ngram.divisible_by, config.integer_or("make_ngram_vocab_size_divisible_by", 128, 1, 1 << 20));
  WP_TRY(ngram.parts, config.integer_or("split_ngram_parts", 512, 1, 1 << 16));
  WP_TRY(const int64_t seed, config.integer_or("seed", 1234, 0, INT64_MAX));
  WP_TRY(const int64_t end_of_text, config.integer("eos_token_id", 0, trunk.V - 1));
  ngram.seed = static_cast<uint64_t>(seed);
  ngram.end_of_text = static_cast<int32_t>(end_of_text);
  if (ngram.embed_dim % ngram.heads_total())
    return config_error("ple_embed_dim", cat("a multiple of ", ngram.heads_total(), " heads"), cat(ngram.embed_dim));
  return ngram;
}

NgramConstants ngram_constants(const NgramConfig& config, int64_t vocabulary, int64_t rank) {
  NgramConstants constants;
  const uint64_t half = (static_cast<uint64_t>(INT64_MAX) / static_cast<uint64_t>(vocabulary)) / 2;
  for (int64_t i = 0; i < config.order; ++i) {
    const uint64_t draw = splitmix64(config.seed + 10007u * static_cast<uint64_t>(rank) +
                                     0x9E3779B97F4A7C15ull * static_cast<uint64_t>(i + 1));
    constants.multipliers.push_back(static_cast<int64_t>(2 * (draw % half) + 1));
  }
  // Consecutive primes; a later layer goes on where the one before it stopped.
  int64_t prime = config.vocabulary_base - 1, sum = 0;
  for (int64_t i = 0; i < (rank + 1) * config.heads_total(); ++i) {
    do ++prime;
    while (!is_prime(prime));
    if (i < rank * config.heads_total()) continue;
    constants.moduli.push_back(prime);
    constants.offsets.push_back(sum);
    sum += prime;
  }
  constants.table_rows = round_up(sum, config.divisible_by);
  return constants;
}

namespace {

// The table's parts: one matrix each, all with the table's one scale where they are FP8.
Result<void> bind_shards(Binder& binder, const std::string& prefix, const NgramConfig& config, NgramBlock& block) {
  const std::string table = prefix + "ngram_embedding.";
  block.shards.resize(static_cast<size_t>(config.parts));
  for (int64_t i = 0; i < config.parts; ++i) {
    const std::string name = cat(table, "shard_", i);
    Matrix& shard = block.shards[static_cast<size_t>(i)];
    WP_TRY(const Tensor found, binder.checkpoint().bind_any(name + ".weight", {block.shard_rows, config.width()}));
    if (found.dtype != DType::f8_e4m3) {
      WP_TRY(binder.table(name, block.shard_rows, config.width(), shard));
      continue;
    }
    WP_TRY(const Tensor scale, binder.checkpoint().bind_f32(table + "weight_scale", {1}));
    shard = {.format = WeightFormat::fp8_tensor,
             .N = block.shard_rows,
             .K = config.width(),
             .data = found.data,
             .scale = scale.data,
             .scale_dtype = DType::f32};
    binder.made_table(shard);
  }
  binder.share(block.shards, block.shards_at);
  return {};
}

Result<void> bind_hash(Binder& binder, const std::string& prefix, const TrunkConfig& trunk, const NgramConfig& config,
                       int64_t rank, NgramBlock& block) {
  const NgramConstants expected = ngram_constants(config, trunk.V, rank);
  const int64_t heads = config.heads_total();
  block.hash = {.order = config.order, .heads = config.heads, .end_of_text = config.end_of_text};
  const Checkpoint& checkpoint = binder.checkpoint();
  WP_TRY(checkpoint.provide_integers(prefix + "layer_multipliers", expected.multipliers));
  WP_TRY(checkpoint.provide_integers(prefix + "ngram_heads_vocab_sizes", expected.moduli));
  WP_TRY(checkpoint.provide_integers(prefix + "ngram_heads_offsets", expected.offsets));
  WP_TRY(binder.integers(prefix + "layer_multipliers", config.order, block.hash.multipliers));
  WP_TRY(binder.integers(prefix + "ngram_heads_vocab_sizes", heads, block.hash.moduli));
  WP_TRY(binder.integers(prefix + "ngram_heads_offsets", heads, block.hash.offsets));
  WP_TRY(expect_constants(prefix + "layer_multipliers", block.hash.multipliers, expected.multipliers));
  WP_TRY(expect_constants(prefix + "ngram_heads_vocab_sizes", block.hash.moduli, expected.moduli));
  WP_TRY(expect_constants(prefix + "ngram_heads_offsets", block.hash.offsets, expected.offsets));
  if (expected.table_rows % config.parts)
    return config_error("split_ngram_parts", cat("a divisor of ", expected.table_rows, " rows"), cat(config.parts));
  block.shard_rows = expected.table_rows / config.parts;
  return {};
}

}  // namespace

Result<void> bind_ngram(Binder& binder, const std::string& prefix, const TrunkConfig& trunk, const NgramConfig& config,
                        int64_t rank, int64_t streams, StateLayout& state, NgramBlock& block) {
  const int64_t W = streams * trunk.M;
  WP_TRY(bind_hash(binder, prefix + "ple_embedding.", trunk, config, rank, block));
  WP_TRY(bind_shards(binder, prefix + "ple_embedding.", config, block));
  WP_TRY(binder.matrix(prefix + "key_proj", W, config.embed_dim, block.key));
  WP_TRY(binder.matrix(prefix + "value_proj", trunk.M, config.embed_dim, block.value));
  block.norms.epsilon = static_cast<float>(trunk.epsilon);
  WP_TRY(binder.vector(prefix + "norm_key.weight", {W}, block.norms.key));
  WP_TRY(binder.vector(prefix + "norm_query.weight", {W}, block.norms.query));
  WP_TRY(binder.vector(prefix + "norm_conv.weight", {W}, block.norms.conv));
  WP_TRY(bind_conv(binder, prefix + "conv1d.weight", W, config.taps, block.conv, block.conv_at));
  block.taps = config.taps;
  block.conv_offset = state.add((config.taps - 1) * config.order * W * 4);
  // Each layer has its own ids: it advances them when it runs, and they may lie where they are read.
  block.ids_offset = state.add((config.order - 1) * 4);
  return {};
}

NgramScratch plan_ngram(ScratchLayout& layout, const TrunkConfig& trunk, const NgramConfig& config, int64_t streams,
                        int64_t rows) {
  const int64_t W = streams * trunk.M;
  return {.rows = layout.take(DType::i64, {rows, config.heads_total()}),
          .embedding = layout.f32({rows, config.embed_dim}),
          .key = layout.f32({rows, W}),
          .gated = layout.f32({rows, W}),
          .normed = layout.f32({rows, W}),
          .mixed = layout.f32({rows, W}),
          .value = layout.f32({rows, trunk.M})};
}

void ngram_forward(Stream& stream, const Pass& pass, const NgramBlock& block, const NgramScratch& scratch,
                   const Tensor& H) {
  stream.enter("n-gram");
  const int64_t T = pass.rows();
  const Tensor rows = scratch.rows.rows(T), embedding = scratch.embedding.rows(T), key = scratch.key.rows(T);
  const Tensor value = scratch.value.rows(T), gated = scratch.gated.rows(T), normed = scratch.normed.rows(T);
  const Tensor mixed = scratch.mixed.rows(T);
  ops::ngram_rows(stream, pass.view(), block.hash, pass.tokens(), block.ids_offset, rows);
  ops::table_rows(stream, block.shards_at, block.shard_rows, rows, embedding);
  ops::matmul(stream, embedding, block.key, key);
  ops::matmul(stream, embedding, block.value, value);
  ops::ngram_gate(stream, block.norms, H, key, value, gated, normed);
  ops::conv_silu(stream, pass.view(), normed, block.conv_at, block.hash.order, block.conv_offset, mixed);
  ops::add(stream, H, gated, mixed);
}

}  // namespace wp
