#include "model/config.h"

#include <algorithm>

namespace wp {
namespace {

std::string shown(const Json& value) {
  std::string text = dump_json(value);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

Error config_error(const std::string& key, const std::string& expected, const std::string& found) {
  return {ErrorCode::bad_file, cat("config.json: ", key, ": expected ", expected, ", found ", found)};
}

bool ConfigReader::has(const char* key) const {
  const auto found = object_->find(key);
  return found != object_->end() && !found->is_null();
}

Result<int64_t> ConfigReader::integer(const char* key, int64_t low, int64_t high) const {
  const std::string expected = cat("an integer in ", low, "..", high);
  if (!has(key)) return config_error(key, expected, "nothing");
  const Json& value = at(key);
  if (!value.is_number_integer()) return config_error(key, expected, shown(value));
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return config_error(key, expected, shown(value));
  const auto number = value.get<int64_t>();
  if (number < low || number > high) return config_error(key, expected, shown(value));
  return number;
}

Result<int64_t> ConfigReader::integer_or(const char* key, int64_t otherwise, int64_t low, int64_t high) const {
  if (!has(key)) return otherwise;
  return integer(key, low, high);
}

Result<double> ConfigReader::real_or(const char* key, double otherwise, double low, double high) const {
  if (!has(key)) return otherwise;
  const Json& value = at(key);
  const double number = value.is_number() ? value.get<double>() : low - 1;
  if (!(number >= low && number <= high)) return config_error(key, cat("a number in ", low, "..", high), shown(value));
  return number;
}

Result<bool> ConfigReader::boolean_or(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const Json& value = at(key);
  if (!value.is_boolean()) return config_error(key, "true or false", shown(value));
  return value.get<bool>();
}

Result<std::string> ConfigReader::text_or(const char* key, const char* otherwise) const {
  if (!has(key)) return std::string(otherwise);
  const Json& value = at(key);
  if (!value.is_string()) return config_error(key, "a string", shown(value));
  return value.get<std::string>();
}

Result<void> ConfigReader::text_among(const char* key, std::initializer_list<const char*> known) const {
  if (!has(key)) return {};
  WP_TRY(const std::string text, text_or(key, ""));
  std::string names;
  for (const char* name : known) {
    if (text == name) return {};
    names += (names.empty() ? "" : " or ") + std::string(name);
  }
  return config_error(key, names, text);
}

Result<void> ConfigReader::boolean_is(const char* key, bool only) const {
  WP_TRY(const bool value, boolean_or(key, only));
  if (value != only) return config_error(key, only ? "true" : "false", only ? "false" : "true");
  return {};
}

int64_t TrunkConfig::attention_layers() const { return std::count(attends.begin(), attends.end(), true); }

Result<const Json*> text_config(const Json& config) {
  if (!config.is_object()) return Error{ErrorCode::bad_file, "config.json: expected an object, found none"};
  const auto nested = config.find("text_config");
  if (nested == config.end()) return &config;
  if (!nested->is_object()) return config_error("text_config", "an object", shown(*nested));
  return &*nested;
}

namespace {

Result<void> read_layer_types(const ConfigReader& config, bool sparse, TrunkConfig& trunk) {
  if (!config.has("layer_types")) {
    WP_TRY(const int64_t interval, config.integer_or("full_attention_interval", 4, 1, 1024));
    for (int64_t l = 0; l < trunk.layers; ++l) trunk.attends.push_back((l + 1) % interval == 0);
    return {};
  }
  const Json& types = config.at("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != trunk.layers)
    return config_error("layer_types", cat("a list of ", trunk.layers, " names"),
                        types.is_array() ? cat(types.size(), " entries") : shown(types));
  for (const Json& type : types) {
    if (!type.is_string()) return config_error("layer_types", "names", shown(type));
    const auto name = type.get<std::string>();
    if (name != "linear_attention" && !sparse && name != "full_attention")
      return config_error("layer_types", "linear_attention or full_attention", name);
    trunk.attends.push_back(name != "linear_attention");
  }
  return {};
}

// rope_parameters, or the older pair of rope_scaling and rope_theta.
Result<void> read_rope(const ConfigReader& config, TrunkConfig& trunk) {
  double partial = 0.25;
  WP_TRY(trunk.theta, config.real_or("rope_theta", 0, 1, 1e15));
  WP_TRY(partial, config.real_or("partial_rotary_factor", partial, 0, 1));
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!config.has(key)) continue;
    if (!config.at(key).is_object()) return config_error(key, "an object", shown(config.at(key)));
    const ConfigReader rope(config.at(key));
    for (const char* type : {"rope_type", "type"}) {
      auto known = rope.text_among(type, {"default"});
      if (!known.ok()) return known;
    }
    WP_TRY(trunk.theta, rope.real_or("rope_theta", trunk.theta, 1, 1e15));
    WP_TRY(partial, rope.real_or("partial_rotary_factor", partial, 0, 1));
  }
  if (trunk.theta == 0) return config_error("rope_parameters.rope_theta", "a number in 1..1e15", "nothing");
  trunk.rotary = static_cast<int64_t>(static_cast<double>(trunk.D) * partial);
  if (trunk.rotary < 2 || trunk.rotary % 2)
    return config_error("partial_rotary_factor", cat("an even number of at least 2 of ", trunk.D, " dims"),
                        cat(trunk.rotary));
  return {};
}

}  // namespace

Result<TrunkConfig> read_trunk(const ConfigReader& config, bool sparse) {
  TrunkConfig trunk;
  WP_TRY(trunk.M, config.integer("hidden_size", 1, 1 << 16));
  WP_TRY(trunk.layers, config.integer("num_hidden_layers", 1, 1024));
  WP_TRY(trunk.V, config.integer("vocab_size", 1, 1 << 24));
  WP_TRY(trunk.context_max, config.integer("max_position_embeddings", 1, 1 << 24));
  WP_TRY(trunk.epsilon, config.real_or("rms_norm_eps", 1e-6, 0, 1));
  WP_TRY(trunk.tied_head, config.boolean_or("tie_word_embeddings", false));
  WP_TRY(config.text_among("hidden_act", {"silu", "swish"}));
  WP_TRY(config.boolean_is("attention_bias", false));
  WP_TRY(config.boolean_is("attn_output_gate", true));
  WP_TRY(trunk.HQ, config.integer("num_attention_heads", 1, 1024));
  WP_TRY(trunk.HK, config.integer("num_key_value_heads", 1, 1024));
  WP_TRY(trunk.D, config.integer_or("head_dim", 256, 2, 1024));
  if (trunk.HQ % trunk.HK)
    return config_error("num_key_value_heads", cat("a divisor of ", trunk.HQ, " query heads"), cat(trunk.HK));
  WP_TRY(read_layer_types(config, sparse, trunk));
  WP_TRY(read_rope(config, trunk));
  WP_TRY(trunk.gdn_HK, config.integer("linear_num_key_heads", 1, 1024));
  WP_TRY(trunk.gdn_HV, config.integer("linear_num_value_heads", 1, 1024));
  WP_TRY(trunk.gdn_DK, config.integer("linear_key_head_dim", 1, 1024));
  WP_TRY(trunk.gdn_DV, config.integer("linear_value_head_dim", 1, 1024));
  WP_TRY(trunk.taps, config.integer_or("linear_conv_kernel_dim", 4, 2, 16));
  if (trunk.gdn_HV % trunk.gdn_HK)
    return config_error("linear_num_key_heads", cat("a divisor of ", trunk.gdn_HV, " value heads"), cat(trunk.gdn_HK));
  return trunk;
}

Result<MoeConfig> read_moe(const ConfigReader& config) {
  MoeConfig moe;
  WP_TRY(moe.E, config.integer("num_experts", 1, 1 << 14));
  WP_TRY(moe.A, config.integer("num_experts_per_tok", 1, moe.E));
  WP_TRY(moe.F, config.integer("moe_intermediate_size", 1, 1 << 20));
  WP_TRY(moe.shared_F, config.integer("shared_expert_intermediate_size", 1, 1 << 20));
  WP_TRY(moe.normalise, config.boolean_or("norm_topk_prob", true));
  WP_TRY(const int64_t step, config.integer_or("decoder_sparse_step", 1, 1, 1 << 20));
  if (step != 1) return config_error("decoder_sparse_step", "1", cat(step));
  if (config.has("mlp_only_layers") && !config.at("mlp_only_layers").empty())
    return config_error("mlp_only_layers", "an empty list", shown(config.at("mlp_only_layers")));
  return moe;
}

}  // namespace wp
