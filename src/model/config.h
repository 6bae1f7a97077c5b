// What config.json says of a text model, checked: every size within bounds, every value that this program does not
// know refused by name. Text-only files and the text_config of multimodal ones. Loading thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"

namespace wp {

// Typed members of a JSON object. Absent and null are the same.
class ConfigReader {
 public:
  explicit ConfigReader(const Json& object) : object_(&object) {}

  bool has(const char* key) const;
  const Json& at(const char* key) const { return (*object_)[key]; }
  Result<int64_t> integer(const char* key, int64_t low, int64_t high) const;
  Result<int64_t> integer_or(const char* key, int64_t otherwise, int64_t low, int64_t high) const;
  Result<double> real_or(const char* key, double otherwise, double low, double high) const;
  Result<bool> boolean_or(const char* key, bool otherwise) const;
  Result<std::string> text_or(const char* key, const char* otherwise) const;
  // An error unless the member is absent or equals one of these.
  Result<void> text_among(const char* key, std::initializer_list<const char*> known) const;
  Result<void> boolean_is(const char* key, bool only) const;

 private:
  const Json* object_;
};

// "config.json: KEY: expected ..., found ..."
Error config_error(const std::string& key, const std::string& expected, const std::string& found);

// What all families have.
struct TrunkConfig {
  int64_t M = 0, layers = 0, V = 0, context_max = 0;
  double epsilon = 1e-6;
  bool tied_head = false;
  std::vector<bool> attends;  // [layers]: attention layer, else GDN.
  int64_t HQ = 0, HK = 0, D = 0;
  int64_t rotary = 0;
  double theta = 0;
  int64_t gdn_HK = 0, gdn_HV = 0, gdn_DK = 0, gdn_DV = 0, taps = 0;

  int64_t attention_layers() const;
  int64_t gdn_layers() const { return layers - attention_layers(); }
};

struct MoeConfig {
  int64_t E = 0, A = 0, F = 0, shared_F = 0;
  bool normalise = true;
};

// The object that holds the text model's keys: config.text_config or config itself.
Result<const Json*> text_config(const Json& config);
// `sparse` families call their attention layers by changing names; others must say full_attention.
Result<TrunkConfig> read_trunk(const ConfigReader& config, bool sparse);
Result<MoeConfig> read_moe(const ConfigReader& config);

}  // namespace wp
