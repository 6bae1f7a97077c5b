// Qwen3.8-Flash-Next (spec/qwen4_exp.md): residual streams mixed by hyper-connections, GDN and QSA layers, mixture of
// experts, n-gram embeddings. The draft head (mtp.*) is checked and left unused.
#include <optional>

#include "model/attention_block.h"
#include "model/families.h"
#include "model/ffn_block.h"
#include "model/gdn_block.h"
#include "model/ngram_block.h"
#include "model/trunk.h"
#include "ops/linear.h"
#include "ops/residual.h"

namespace wp {
namespace {

struct Layer {
  std::optional<NgramBlock> ngram;
  ops::GatedResidual mixer_residual, moe_residual;
  std::optional<GdnBlock> gdn;  // One of the two.
  std::optional<AttentionBlock> qsa;
  MoeBlock moe;
};

struct Qwen4Config {
  int64_t S = 0, low_rank = 0;
  IndexerConfig indexer;
  MoeConfig moe;
  NgramConfig ngram;
  kernels::Gate gate = kernels::Gate::silu;
};

struct Activations {
  Tensor H;        // [T, S * M]
  Tensor x, y;     // [T, M]
  Tensor weights;  // [T, S]
  Tensor last;     // [R, S * M]
  ops::GatedResidualScratch residual;
  GdnScratch gdn;
  AttentionScratch qsa;
  MoeScratch moe;
  NgramScratch ngram;
};

class Qwen4Exp : public Model {
 public:
  explicit Qwen4Exp(Checkpoint checkpoint) : trunk_(std::move(checkpoint)) {}

  Result<void> load(Device& device, const ProgressSink& progress);
  const ModelInfo& info() const override { return trunk_.info; }
  const Checkpoint* checkpoint() const override { return &trunk_.checkpoint; }
  Result<std::unique_ptr<Scratch>> make_scratch(Device& device, const ScratchLimits& limits) const override {
    return TrunkScratch<Activations>::make(device, trunk_, this, limits, plan);
  }
  int64_t scratch_bytes(Device& device, const ScratchLimits& limits) const override {
    return TrunkScratch<Activations>::planned_bytes(device, trunk_, this, limits, plan);
  }
  void forward(Stream& stream, const Batch& batch, Pools& pools, Scratch& scratch, const Tensor& logits) const override;

 private:
  Result<void> read_config();
  Result<void> bind_layer(Binder& binder, const std::string& prefix, bool attends, int64_t& page_bytes,
                          StateLayout& state, Layer& layer) const;
  Result<void> check_draft_head() const;
  void describe();
  void compute(Stream& stream, TrunkScratch<Activations>& scratch, const Tensor& logits) const;
  static Activations plan(ScratchLayout& layout, const void* model, const ScratchLimits& limits);

  Trunk trunk_;
  Qwen4Config config_;
  std::vector<Layer> layers_;
  ops::GatedResidual final_residual_;
};

// One wide norm, down to the low rank, up to the gates; `inject` for all but the last.
Result<void> bind_residual(Binder& binder, const std::string& prefix, const TrunkConfig& trunk,
                           const Qwen4Config& config, bool injects, ops::GatedResidual& to) {
  const int64_t W = config.S * trunk.M;
  to.epsilon = static_cast<float>(trunk.epsilon);
  WP_TRY(binder.vector(prefix + ".hc_norm.weight", {W}, to.norm));
  WP_TRY(binder.matrix(prefix + ".input_mix_weight_down", config.low_rank, W, to.down));
  WP_TRY(binder.matrix(prefix + ".input_mix_weight_up", W, config.low_rank, to.up));
  if (injects) WP_TRY(binder.matrix(prefix + ".block_inject_weight", config.S, W, to.inject));
  return {};
}

Result<void> Qwen4Exp::read_config() {
  WP_TRY(const Json* text, text_config(trunk_.checkpoint.config()));
  const ConfigReader config(*text);
  WP_TRY(trunk_.config, read_trunk(config, true));
  WP_TRY(config_.S, config.integer("hc_count", 1, 64));
  WP_TRY(config_.low_rank, config.integer("hc_lowrank", 1, 1 << 14));
  WP_TRY(config.text_among("hc_method", {"gated_residual_simple"}));
  WP_TRY(config.boolean_is("hc_per_branch_norm", true));
  WP_TRY(config_.indexer.HI, config.integer("indexer_n_heads", 1, 1024));
  WP_TRY(config_.indexer.DI, config.integer("indexer_head_dim", 2, 1024));
  WP_TRY(const int64_t index_keys, config.integer_or("indexer_kv_heads", 1, 1, 1024));
  if (index_keys != 1) return config_error("indexer_kv_heads", "1", cat(index_keys));
  WP_TRY(const int64_t ratio, config.integer_or("indexer_compress_ratio", 4, 1, 1024));
  if (ratio != kernels::kBlockTokens) return config_error("indexer_compress_ratio", "4", cat(ratio));
  WP_TRY(const int64_t budget, config.integer("indexer_budget", ratio, 1 << 20));
  if (budget % ratio) return config_error("indexer_budget", cat("a multiple of ", ratio), cat(budget));
  config_.indexer.budget = budget / ratio;
  if (trunk_.config.rotary > config_.indexer.DI)
    return config_error("indexer_head_dim", cat("at least the ", trunk_.config.rotary, " rotary dims"),
                        cat(config_.indexer.DI));
  WP_TRY(config_.moe, read_moe(config));
  WP_TRY(config_.ngram, read_ngram(config, trunk_.config));
  WP_TRY(config.text_among("output_gate_type", {"sigmoid", "silu", "swish"}));
  WP_TRY(const std::string gate, config.text_or("output_gate_type", "silu"));
  config_.gate = gate == "sigmoid" ? kernels::Gate::sigmoid : kernels::Gate::silu;
  return {};
}

Result<void> Qwen4Exp::bind_layer(Binder& binder, const std::string& prefix, bool attends, int64_t& page_bytes,
                                  StateLayout& state, Layer& layer) const {
  const TrunkConfig& trunk = trunk_.config;
  WP_TRY(bind_residual(binder, prefix + "attn_hyper_connection", trunk, config_, true, layer.mixer_residual));
  if (attends) {
    WP_TRY(bind_attention(binder, prefix + "self_attn.", trunk, config_.indexer, page_bytes, layer.qsa.emplace()));
  } else {
    WP_TRY(bind_gdn(binder, prefix + "linear_attn.", trunk, false, state, layer.gdn.emplace()));
    layer.gdn->gate = config_.gate;
  }
  WP_TRY(bind_residual(binder, prefix + "mlp_hyper_connection", trunk, config_, true, layer.moe_residual));
  return bind_moe(binder, prefix + "mlp", trunk, config_.moe, layer.moe);
}

// Names and shapes of mtp.* (spec/qwen4_exp.md 2.9), where there are any. Nothing of it is packed.
Result<void> Qwen4Exp::check_draft_head() const {
  const Checkpoint& checkpoint = trunk_.checkpoint;
  bool present = false;
  for (const TensorInfo& tensor : checkpoint.tensors()) present = present || tensor.name.starts_with("mtp.");
  if (!present) return {};
  Binder binder(checkpoint, DeviceKind::ref);
  const int64_t M = trunk_.config.M;
  Matrix matrix;
  Tensor vector;
  WP_TRY(binder.table("mtp.fc_embedding", M, M, matrix));
  WP_TRY(binder.table("mtp.fc_hidden", M, M, matrix));
  WP_TRY(binder.vector("mtp.pre_fc_norm_embedding.weight", {M}, vector));
  WP_TRY(binder.vector("mtp.pre_fc_norm_hidden.weight", {config_.S * M}, vector));
  ops::GatedResidual last;
  WP_TRY(bind_residual(binder, "mtp.hyper_connection_mixer", trunk_.config, config_, false, last));
  Layer layer;
  StateLayout state;
  int64_t page_bytes = 0;
  return bind_layer(binder, "mtp.layers.0.", true, page_bytes, state, layer);
}

Result<void> Qwen4Exp::load(Device& device, const ProgressSink& progress) {
  WP_TRY(read_config());
  const std::string prefix = tensor_prefix(trunk_.checkpoint);
  Binder binder(trunk_.checkpoint, device.kind());
  WP_TRY(bind_ends(binder, prefix, trunk_));
  layers_.resize(static_cast<size_t>(trunk_.config.layers));
  for (int64_t l = 0; l < trunk_.config.layers; ++l)
    WP_TRY(bind_layer(binder, cat(prefix, "layers.", l, "."), trunk_.config.attends[static_cast<size_t>(l)],
                      trunk_.page_bytes, trunk_.state, layers_[static_cast<size_t>(l)]));
  for (size_t rank = 0; rank < config_.ngram.layers.size(); ++rank) {
    const int64_t l = config_.ngram.layers[rank];
    WP_TRY(bind_ngram(binder, cat(prefix, "layers.", l, ".ple."), trunk_.config, config_.ngram,
                      static_cast<int64_t>(rank), config_.S, trunk_.state,
                      layers_[static_cast<size_t>(l)].ngram.emplace()));
  }
  for (Layer& layer : layers_)
    if (layer.qsa) layer.qsa->pending_offset = trunk_.state.add_pending(3 * config_.indexer.DI * 4);
  WP_TRY(bind_residual(binder, prefix + "hyper_connection_mixer", trunk_.config, config_, false, final_residual_));
  WP_TRY(check_draft_head());
  WP_TRY(finish_trunk(binder, device, progress, trunk_));
  describe();
  return {};
}

void Qwen4Exp::describe() {
  const TrunkConfig& trunk = trunk_.config;
  ModelInfo& info = trunk_.info;
  info.family = "qwen4_exp";
  info.description = cat(describe_layers(trunk, "QSA"), ", ", config_.moe.E, " experts top-", config_.moe.A, ", ",
                         name(layers_[0].moe.experts[0].gate.format), " experts");
  info.sparse_bound = config_.indexer.budget * kernels::kBlockTokens + kernels::kBlockTokens - 1;
  const auto wide = static_cast<double>(config_.S * trunk.M), low = static_cast<double>(config_.low_rank);
  for (const Layer& layer : layers_) {
    info.multiply_adds_per_token += 2 * wide * (2 * low + static_cast<double>(config_.S)) + layer.moe.multiply_adds();
    if (layer.ngram) info.multiply_adds_per_token += layer.ngram->multiply_adds();
    if (layer.gdn) info.multiply_adds_per_token += layer.gdn->multiply_adds();
    if (!layer.qsa) continue;
    info.multiply_adds_per_token += layer.qsa->multiply_adds();
    info.multiply_adds_per_token_and_key += layer.qsa->multiply_adds_per_key();
    info.multiply_adds_per_token_and_block += layer.qsa->multiply_adds_per_block();
  }
  info.multiply_adds_head = 2 * wide * low + static_cast<double>(trunk.V * trunk.M);
  info.capture_receipts = static_cast<int32_t>(trunk.gdn_layers() + static_cast<int64_t>(config_.ngram.layers.size()));
}

Activations Qwen4Exp::plan(ScratchLayout& layout, const void* self, const ScratchLimits& limits) {
  const auto& model = *static_cast<const Qwen4Exp*>(self);
  const TrunkConfig& trunk = model.trunk_.config;
  const Qwen4Config& config = model.config_;
  const int64_t M = trunk.M, W = config.S * M, T = limits.rows_max;
  const int64_t mixed_rows = std::max(T, limits.logit_rows_max);
  Activations a{.H = layout.f32({T, W}),
                .x = layout.f32({mixed_rows, M}),
                .y = layout.f32({T, M}),
                .weights = layout.f32({T, config.S}),
                .last = layout.f32({limits.logit_rows_max, W})};
  // Of the rest only one is alive at a time.
  const int64_t mark = layout.mark();
  a.residual = {.normed = layout.f32({mixed_rows, W}),
                .low = layout.f32({mixed_rows, config.low_rank + config.S}),
                .gates = layout.f32({mixed_rows, W})};
  layout.back_to(mark);
  a.gdn = plan_gdn(layout, trunk, false, T);
  layout.back_to(mark);
  a.qsa = plan_attention(layout, trunk, config.indexer, T);
  layout.back_to(mark);
  a.moe = plan_moe(layout, M, config.moe, T);
  layout.back_to(mark);
  if (!config.ngram.layers.empty()) a.ngram = plan_ngram(layout, trunk, config.ngram, config.S, T);
  return a;
}

void Qwen4Exp::forward(Stream& stream, const Batch& batch, Pools& pools, Scratch& memory, const Tensor& logits) const {
  auto& scratch = static_cast<TrunkScratch<Activations>&>(memory);
  scratch.begin(stream, batch, pools);
  scratch.graphs.run(stream, batch, pools, logits, [&] { compute(stream, scratch, logits); });
}

// Reads as the specification does (3.0). H holds the S residual streams of each row.
void Qwen4Exp::compute(Stream& stream, TrunkScratch<Activations>& scratch, const Tensor& logits) const {
  const Activations& a = scratch.a;
  Pass& pass = scratch.pass;
  const int64_t T = pass.rows(), R = pass.logit_rows().dim(0);
  const auto residual = [&](int64_t rows) {
    return ops::GatedResidualScratch{a.residual.normed.rows(rows), a.residual.low.rows(rows),
                                     a.residual.gates.rows(rows), scratch.workspace};
  };
  const Tensor H = a.H.rows(T), x = a.x.rows(T), y = a.y.rows(T), weights = a.weights.rows(T);

  stream.enter("embedding");
  ops::embed(stream, trunk_.embed, pass.tokens(), H);
  for (const Layer& layer : layers_) {
    if (layer.ngram) {
      ngram_forward(stream, pass, *layer.ngram, a.ngram, H);
      pass.sign_captures();
    }
    stream.enter("hyper-connections");
    ops::gated_residual(stream, layer.mixer_residual, H, x, weights, residual(T));
    if (layer.gdn) {
      gdn_forward(stream, pass, *layer.gdn, x, a.gdn, scratch.workspace, y);
      pass.sign_captures();
    } else {
      attention_forward(stream, pass, *layer.qsa, scratch.rope, x, a.qsa, scratch.workspace, y);
    }
    stream.enter("hyper-connections");
    ops::inject(stream, H, y, weights);

    ops::gated_residual(stream, layer.moe_residual, H, x, weights, residual(T));
    moe_forward(stream, layer.moe, x, a.moe, scratch.workspace, y);
    stream.enter("hyper-connections");
    ops::inject(stream, H, y, weights);
  }
  if (R == 0) return;
  stream.enter("head");
  const Tensor last = a.last.rows(R), last_x = a.x.rows(R);
  ops::gather_rows(stream, H, pass.logit_rows(), last);
  ops::gated_residual(stream, final_residual_, last, last_x, {}, residual(R));
  ops::matmul(stream, last_x, trunk_.head, logits);
}

}  // namespace

Result<std::unique_ptr<Model>> load_qwen4_exp(Checkpoint checkpoint, Device& device, const ProgressSink& progress) {
  auto model = std::make_unique<Qwen4Exp>(std::move(checkpoint));
  WP_TRY(model->load(device, progress));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace wp
