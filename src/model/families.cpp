#include "model/families.h"

#include "ops/tables.h"

namespace wp {
namespace {

struct Family {
  const char* model_type;
  FamilyLoader load;
};

constexpr Family kFamilies[] = {
    {"qwen4_exp", load_qwen4_exp},   {"qwen4_exp_text", load_qwen4_exp}, {"qwen3_5", load_qwen3_5},
    {"qwen3_5_text", load_qwen3_5},  {"qwen3_5_moe", load_qwen3_5_moe},  {"qwen3_5_moe_text", load_qwen3_5_moe},
    {"qwen3_next", load_qwen3_next},
};

}  // namespace

std::vector<std::string> model_types() {
  std::vector<std::string> types;
  for (const Family& family : kFamilies) types.emplace_back(family.model_type);
  return types;
}

Result<std::unique_ptr<Model>> load_model(const std::string& path, Device& device, const ProgressSink& progress) {
  WP_TRY(ops::check_backend(device.kind()));
  WP_TRY(auto checkpoint, Checkpoint::open(path, progress));
  return load_model(std::move(checkpoint), device, progress);
}

Result<std::unique_ptr<Model>> load_model(Checkpoint checkpoint, Device& device, const ProgressSink& progress) {
  WP_TRY(ops::check_backend(device.kind()));
  const std::string path = checkpoint.path();
  const Json& config = checkpoint.config();
  std::string type;
  if (config.is_object() && config.contains("model_type") && config["model_type"].is_string())
    type = config["model_type"].get<std::string>();
  for (const Family& family : kFamilies) {
    if (type != family.model_type) continue;
    auto model = family.load(std::move(checkpoint), device, progress);
    if (!model.ok()) return std::move(model).error().within(path);
    return model;
  }
  std::string known;
  for (const std::string& name : model_types()) known += (known.empty() ? "" : ", ") + name;
  return Error{ErrorCode::unsupported, cat(path, ": config.json: model_type: expected one of ", known, ", found ",
                                           type.empty() ? "nothing" : type)};
}

}  // namespace wp
