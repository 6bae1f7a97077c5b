#include "model/pre_norm.h"

#include <optional>

#include "model/attention_block.h"
#include "model/ffn_block.h"
#include "model/gdn_block.h"
#include "model/trunk.h"
#include "ops/linear.h"
#include "ops/residual.h"

namespace wp {
namespace {

struct Layer {
  ops::Norm mixer_norm, ffn_norm;
  std::optional<GdnBlock> gdn;  // One of the two.
  std::optional<AttentionBlock> attention;
  std::optional<MoeBlock> moe;  // One of the two.
  std::optional<SwigluBlock> dense;
};

struct Activations {
  Tensor H, x, y;  // [T, M]
  Tensor last;     // [R, M]
  GdnScratch gdn;
  AttentionScratch attention;
  MoeScratch moe;
  SwigluScratch dense;
};

class PreNorm : public Model {
 public:
  PreNorm(const PreNormFamily& family, Checkpoint checkpoint) : family_(family), trunk_(std::move(checkpoint)) {}

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
  Result<void> bind_norm(Binder& binder, const std::string& name, ops::Norm& norm) const;
  Result<void> bind_layer(Binder& binder, const std::string& prefix, bool attends, int64_t& page_bytes,
                          StateLayout& state, Layer& layer) const;
  Result<void> check_draft_head() const;
  void describe();
  void compute(Stream& stream, TrunkScratch<Activations>& scratch, const Tensor& logits) const;
  static Activations plan(ScratchLayout& layout, const void* model, const ScratchLimits& limits);

  PreNormFamily family_;
  Trunk trunk_;
  MoeConfig moe_;
  int64_t F_ = 0;
  std::vector<Layer> layers_;
  ops::Norm final_norm_;
};

Result<void> PreNorm::read_config() {
  WP_TRY(const Json* text, text_config(trunk_.checkpoint.config()));
  const ConfigReader config(*text);
  WP_TRY(trunk_.config, read_trunk(config, false));
  if (family_.experts) {
    WP_TRY(moe_, read_moe(config));
  } else {
    WP_TRY(F_, config.integer("intermediate_size", 1, 1 << 20));
  }
  return {};
}

Result<void> PreNorm::bind_norm(Binder& binder, const std::string& name, ops::Norm& norm) const {
  norm.epsilon = static_cast<float>(trunk_.config.epsilon);
  return binder.vector(name + ".weight", {trunk_.config.M}, norm.weight);
}

Result<void> PreNorm::bind_layer(Binder& binder, const std::string& prefix, bool attends, int64_t& page_bytes,
                                 StateLayout& state, Layer& layer) const {
  const TrunkConfig& trunk = trunk_.config;
  WP_TRY(bind_norm(binder, prefix + "input_layernorm", layer.mixer_norm));
  if (attends) {
    WP_TRY(bind_attention(binder, prefix + "self_attn.", trunk, {}, page_bytes, layer.attention.emplace()));
  } else {
    // The gate is silu in all of them, whatever output_gate_type says.
    WP_TRY(bind_gdn(binder, prefix + "linear_attn.", trunk, family_.interleaved, state, layer.gdn.emplace()));
  }
  WP_TRY(bind_norm(binder, prefix + "post_attention_layernorm", layer.ffn_norm));
  if (family_.experts) return bind_moe(binder, prefix + "mlp", trunk, moe_, layer.moe.emplace());
  return bind_swiglu(binder, prefix + "mlp", trunk.M, F_, layer.dense.emplace());
}

// Names and shapes of mtp.* (spec/qwen4_exp.md 6), where there are any. Nothing of it is packed.
Result<void> PreNorm::check_draft_head() const {
  const Checkpoint& checkpoint = trunk_.checkpoint;
  bool present = false;
  for (const TensorInfo& tensor : checkpoint.tensors()) present = present || tensor.name.starts_with("mtp.");
  if (!present) return {};
  Binder binder(checkpoint, DeviceKind::ref);
  Matrix fc;
  WP_TRY(binder.table("mtp.fc", trunk_.config.M, 2 * trunk_.config.M, fc));
  ops::Norm norm;
  for (const char* name : {"mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm"})
    WP_TRY(bind_norm(binder, name, norm));
  Layer layer;
  StateLayout state;
  int64_t page_bytes = 0;
  return bind_layer(binder, "mtp.layers.0.", true, page_bytes, state, layer);
}

Result<void> PreNorm::load(Device& device, const ProgressSink& progress) {
  WP_TRY(read_config());
  const std::string prefix = tensor_prefix(trunk_.checkpoint);
  Binder binder(trunk_.checkpoint, device.kind());
  WP_TRY(bind_ends(binder, prefix, trunk_));
  layers_.resize(static_cast<size_t>(trunk_.config.layers));
  for (int64_t l = 0; l < trunk_.config.layers; ++l)
    WP_TRY(bind_layer(binder, cat(prefix, "layers.", l, "."), trunk_.config.attends[static_cast<size_t>(l)],
                      trunk_.page_bytes, trunk_.state, layers_[static_cast<size_t>(l)]));
  WP_TRY(bind_norm(binder, prefix + "norm", final_norm_));
  WP_TRY(check_draft_head());
  WP_TRY(finish_trunk(binder, device, progress, trunk_));
  describe();
  return {};
}

void PreNorm::describe() {
  const TrunkConfig& trunk = trunk_.config;
  ModelInfo& info = trunk_.info;
  info.family = family_.name;
  info.description = describe_layers(trunk, "attention");
  if (family_.experts)
    info.description +=
        cat(", ", moe_.E, " experts top-", moe_.A, ", ", name(layers_[0].moe->experts[0].gate.format), " experts");
  else info.description += cat(", dense, ", name(layers_[0].dense->gate.format));
  for (const Layer& layer : layers_) {
    if (layer.gdn) info.multiply_adds_per_token += layer.gdn->multiply_adds();
    if (layer.moe) info.multiply_adds_per_token += layer.moe->multiply_adds();
    if (layer.dense) info.multiply_adds_per_token += layer.dense->multiply_adds();
    if (!layer.attention) continue;
    info.multiply_adds_per_token += layer.attention->multiply_adds();
    info.multiply_adds_per_token_and_key += layer.attention->multiply_adds_per_key();
  }
  info.multiply_adds_head = static_cast<double>(trunk.V * trunk.M);
  info.capture_receipts = static_cast<int32_t>(trunk.gdn_layers());
}

Activations PreNorm::plan(ScratchLayout& layout, const void* self, const ScratchLimits& limits) {
  const auto& model = *static_cast<const PreNorm*>(self);
  const TrunkConfig& trunk = model.trunk_.config;
  const int64_t M = trunk.M, T = limits.rows_max;
  Activations a{.H = layout.f32({T, M}),
                .x = layout.f32({T, M}),
                .y = layout.f32({T, M}),
                .last = layout.f32({limits.logit_rows_max, M})};
  // Of the rest only one is alive at a time.
  const int64_t mark = layout.mark();
  a.gdn = plan_gdn(layout, trunk, model.family_.interleaved, T);
  layout.back_to(mark);
  a.attention = plan_attention(layout, trunk, {}, T);
  layout.back_to(mark);
  if (model.family_.experts) a.moe = plan_moe(layout, M, model.moe_, T);
  else a.dense = plan_swiglu(layout, model.F_, T);
  return a;
}

void PreNorm::forward(Stream& stream, const Batch& batch, Pools& pools, Scratch& memory, const Tensor& logits) const {
  auto& scratch = static_cast<TrunkScratch<Activations>&>(memory);
  scratch.begin(stream, batch, pools);
  scratch.graphs.run(stream, batch, pools, logits, [&] { compute(stream, scratch, logits); });
}

void PreNorm::compute(Stream& stream, TrunkScratch<Activations>& scratch, const Tensor& logits) const {
  const Activations& a = scratch.a;
  Pass& pass = scratch.pass;
  const int64_t T = pass.rows(), R = pass.logit_rows().dim(0);
  const Tensor H = a.H.rows(T), x = a.x.rows(T), y = a.y.rows(T);

  stream.enter("embedding");
  ops::embed(stream, trunk_.embed, pass.tokens(), H);
  for (const Layer& layer : layers_) {
    stream.enter("norms");
    ops::rms_norm(stream, layer.mixer_norm, 1, H, x);
    if (layer.gdn) {
      gdn_forward(stream, pass, *layer.gdn, x, a.gdn, scratch.workspace, y);
      pass.sign_captures();
    } else {
      attention_forward(stream, pass, *layer.attention, scratch.rope, x, a.attention, scratch.workspace, y);
    }
    stream.enter("norms");
    ops::add(stream, H, y);

    ops::rms_norm(stream, layer.ffn_norm, 1, H, x);
    stream.enter("ffn");
    if (layer.moe) moe_forward(stream, *layer.moe, x, a.moe, scratch.workspace, y);
    else swiglu_forward(stream, *layer.dense, x, a.dense, y);
    stream.enter("norms");
    ops::add(stream, H, y);
  }
  if (R == 0) return;
  stream.enter("head");
  const Tensor last = a.last.rows(R);
  ops::gather_rows(stream, H, pass.logit_rows(), last);
  ops::rms_norm(stream, final_norm_, 1, last, last);
  ops::matmul(stream, last, trunk_.head, logits);
}

}  // namespace

Result<std::unique_ptr<Model>> load_pre_norm(const PreNormFamily& family, Checkpoint checkpoint, Device& device,
                                             const ProgressSink& progress) {
  auto model = std::make_unique<PreNorm>(family, std::move(checkpoint));
  WP_TRY(model->load(device, progress));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace wp
