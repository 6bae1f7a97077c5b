#include "model/trunk.h"

#include "core/hash.h"
#include "ops/workspace.h"

namespace wp {
namespace {

// Raised when the layout of pages or states changes, so that stored ones are not read as something else.
constexpr const char* kStateFormat = "pages and states f32, no mtp rows, layout 1";

// Left in a checkpoint by those who made it: statistics of the hash, and reference outputs of test models.
bool is_no_weight(const std::string& name) {
  return name.find("hashstats_") != std::string::npos || name.starts_with("hidden.") || name == "input_ids" ||
         name == "greedy" || name == "logits" || name == "logits_cached";
}

}  // namespace

std::string tensor_prefix(const Checkpoint& checkpoint) {
  const std::string multimodal = "model.language_model.";
  return checkpoint.has(multimodal + "embed_tokens.weight") ? multimodal : "model.";
}

Result<void> bind_ends(Binder& binder, const std::string& prefix, Trunk& trunk) {
  const TrunkConfig& config = trunk.config;
  WP_TRY(binder.table(prefix + "embed_tokens", config.V, config.M, trunk.embed));
  if (!config.tied_head) return binder.matrix("lm_head", config.V, config.M, trunk.head);
  binder.checkpoint().mark_known("lm_head.");  // Some writers store the tied head a second time.
  binder.tie(trunk.embed, trunk.head);
  return {};
}

Result<void> finish_trunk(Binder& binder, Device& device, const ProgressSink& progress, Trunk& trunk) {
  const Checkpoint& checkpoint = trunk.checkpoint;
  checkpoint.mark_known("model.visual.");
  checkpoint.mark_known("visual.");
  std::string surplus;
  int64_t count = 0;
  for (const std::string& name : checkpoint.unbound()) {
    if (is_no_weight(name)) continue;
    if (count++ == 0) surplus = name;
  }
  if (count > 0)
    return Error{ErrorCode::bad_file, cat(checkpoint.path(), ": ", surplus, ": a tensor this family does not have",
                                          count > 1 ? cat(" (and ", count - 1, " more)") : std::string())};
  WP_TRY(trunk.arena, binder.pack(device, progress));
  trunk.widest = binder.widest();

  const TrunkConfig& config = trunk.config;
  ModelInfo& info = trunk.info;
  info.layers = config.layers;
  info.vocabulary = config.V;
  info.context_max = config.context_max;
  info.parameters = binder.parameters();
  info.weight_bytes = binder.weight_bytes();
  info.weight_bytes_per_token = binder.weight_bytes_per_token();
  info.page_bytes = trunk.page_bytes;
  info.anchor_bytes = trunk.state.anchor_bytes();
  info.slot_bytes = trunk.state.slot_bytes();
  info.fingerprint = hash_text(cat(kStateFormat, " ", info.page_bytes, " ", info.anchor_bytes, " ", info.slot_bytes),
                               checkpoint.fingerprint());
  return {};
}

std::string describe_layers(const TrunkConfig& config, const char* attention) {
  return cat(config.gdn_layers(), " GDN + ", config.attention_layers(), " ", attention, " layers");
}

Result<void> check_limits(const Trunk& trunk, const ScratchLimits& limits) {
  if (limits.context_max < 1 || limits.context_max > trunk.config.context_max)
    return Error{ErrorCode::bad_request, cat("context: expected 1..", trunk.config.context_max,
                                             " tokens for this model, found ", limits.context_max)};
  WP_ASSERT(limits.rows_max > 0 && limits.segments_max > 0 && limits.logit_rows_max >= 0);
  return {};
}

CommonScratch plan_common(ScratchLayout& layout, Device& device, const Trunk& trunk, const ScratchLimits& limits) {
  const TrunkConfig& config = trunk.config;
  const int64_t context_max = limits.context_max;
  const Tensor cosine = layout.f32({context_max, config.rotary / 2}),
               sine = layout.f32({context_max, config.rotary / 2});
  const int64_t bytes = ops::workspace_bytes_per_thread(context_max);
  const Tensor work = layout.take(DType::u8, {device.workspaces(), bytes});
  CommonScratch common{.rope = {.cosine = cosine.f32(), .sine = sine.f32(), .rotary = config.rotary},
                       .workspace = {.data = work.data,
                                     .bytes_per_thread = bytes,
                                     .threads = device.workspaces(),
                                     .context_max = context_max},
                       .lent = {}};
  if (!reads_host_memory(device.kind())) common.lent = layout.take(DType::u8, {limits.rows_max, trunk.widest * 2});
  return common;
}

void fill_common(const CommonScratch& common, Device& device, const TrunkConfig& config, int64_t context_max) {
  const Shape shape{context_max, config.rotary / 2};
  std::vector<float> cosine(static_cast<size_t>(shape.count())), sine(cosine.size());
  ops::fill_rope(Tensor(static_cast<void*>(cosine.data()), DType::f32, shape),
                 Tensor(static_cast<void*>(sine.data()), DType::f32, shape), config.theta);
  device.copy(const_cast<float*>(common.rope.cosine), cosine.data(), shape.count() * 4);
  device.copy(const_cast<float*>(common.rope.sine), sine.data(), shape.count() * 4);
}

}  // namespace wp
