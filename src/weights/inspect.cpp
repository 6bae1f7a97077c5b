#include "weights/inspect.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "core/matrix.h"
#include "weights/checkpoint_impl.h"

namespace wp {
namespace {

// Endings of tensors that belong to a weight of the same prefix.
constexpr std::array kCompanions = {".weight_scale",        ".weight_scale_inv", ".weight_scale_2",
                                    ".weight_global_scale", ".input_scale",      ".input_global_scale"};

bool ends_with(std::string_view name, std::string_view ending) {
  return name.size() >= ending.size() && name.substr(name.size() - ending.size()) == ending;
}

bool is_number(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
}

using ByName = std::unordered_map<std::string_view, const TensorInfo*>;

const TensorInfo* lookup(const ByName& names, std::string_view prefix, std::string_view ending) {
  const auto at = names.find(std::string(prefix).append(ending));
  return at == names.end() ? nullptr : at->second;
}

// "a.b" of "a.b.weight" and "a.b.weight_packed"; nothing for a tensor that is no linear weight by name.
std::optional<std::string_view> linear_prefix(std::string_view name) {
  for (const std::string_view ending : {".weight", ".weight_packed"})
    if (ends_with(name, ending)) return name.substr(0, name.size() - ending.size());
  return std::nullopt;
}

bool is_companion(const ByName& names, std::string_view name) {
  for (const std::string_view ending : kCompanions)
    if (ends_with(name, ending)) {
      const std::string_view prefix = name.substr(0, name.size() - ending.size());
      return lookup(names, prefix, ".weight") || lookup(names, prefix, ".weight_packed");
    }
  return false;
}

std::string plain_format(const TensorInfo& tensor) {
  return tensor.supported ? std::string(name(tensor.dtype)) : std::string(tensor.dtype_name);
}

// The weight with its companions, under its whole name.
WeightSummary summarize_weight(const ByName& names, const TensorInfo& tensor) {
  WeightSummary out{tensor.name, plain_format(tensor), tensor.shape, tensor.size_bytes, 1, tensor.file};
  const auto prefix = linear_prefix(tensor.name);
  if (!prefix || tensor.shape.rank() != 2) return out;
  for (const std::string_view ending : kCompanions)
    if (const TensorInfo* companion = lookup(names, *prefix, ending)) {
      out.size_bytes += companion->size_bytes;
      ++out.tensors_count;
    }
  const TensorInfo* scale = lookup(names, *prefix, ".weight_scale");
  const TensorInfo* inverse = lookup(names, *prefix, ".weight_scale_inv");
  if (tensor.supported && tensor.dtype == DType::u8 && scale) {
    out.format = name(WeightFormat::nvfp4);
    out.shape = {tensor.shape[0], tensor.shape[1] * 2};
  } else if (tensor.supported && tensor.dtype == DType::f8_e4m3 && (scale || inverse)) {
    const auto format = fp8_format((inverse ? inverse : scale)->shape, tensor.shape[0], tensor.shape[1]);
    if (format) out.format = name(*format);
  }
  return out;
}

std::vector<std::string_view> split(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string join(const std::vector<std::string_view>& parts, size_t begin, size_t end) {
  std::string out;
  for (size_t i = begin; i < end; ++i) out += (i > begin ? "." : "") + std::string(parts[i]);
  return out;
}

struct Place {
  std::string module;  // Up to and with the first number, or all but the last part.
  std::string weight;  // The rest, with further numbers (experts, shards) as "*".
};

Place place_of(std::string_view name) {
  auto parts = split(name);
  size_t cut = 0;
  while (cut < parts.size() && !is_number(parts[cut])) ++cut;
  cut = cut + 1 < parts.size() ? cut + 1 : parts.size() - 1;
  const std::string module = join(parts, 0, cut);
  for (size_t i = cut; i < parts.size(); ++i) {
    if (is_number(parts[i])) parts[i] = "*";
    else if (parts[i].substr(0, 6) == "shard_" && is_number(parts[i].substr(6))) parts[i] = "shard_*";
  }
  return {module, join(parts, cut, parts.size())};
}

// "model.layers.10" after "model.layers.9".
bool module_before(const ModuleSummary& a, const ModuleSummary& b) {
  const auto left = split(a.name), right = split(b.name);
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (left[i] == right[i]) continue;
    if (is_number(left[i]) && is_number(right[i]) && left[i].size() != right[i].size())
      return left[i].size() < right[i].size();
    return left[i] < right[i];
  }
  return left.size() < right.size();
}

}  // namespace

CheckpointSummary summarize(const Checkpoint& checkpoint) {
  ByName names;
  names.reserve(checkpoint.tensors().size());
  for (const TensorInfo& tensor : checkpoint.tensors()) names.emplace(tensor.name, &tensor);

  CheckpointSummary out;
  std::set<std::string_view> files;
  std::map<std::string, FormatTotal> formats;
  std::map<std::string, ModuleSummary> modules;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, size_t> rows;  // Of a module's weights.
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    files.insert(tensor.file);
    ++out.tensors_count;
    out.size_bytes += tensor.size_bytes;
    if (is_companion(names, tensor.name)) continue;
    WeightSummary weight = summarize_weight(names, tensor);
    FormatTotal& total = formats[weight.format];
    total.format = weight.format;
    ++total.weights_count;
    total.values_count += weight.shape.count();
    total.size_bytes += weight.size_bytes;
    out.values_count += weight.shape.count();

    Place place = place_of(weight.name);
    ModuleSummary& module = modules[place.module];
    module.name = place.module;
    module.size_bytes += weight.size_bytes;
    weight.name = place.weight;
    const auto [row, fresh] =
        rows.try_emplace({place.module, place.weight, weight.format, to_string(weight.shape)}, module.weights.size());
    if (fresh) {
      module.weights.push_back(std::move(weight));
    } else {
      module.weights[row->second].size_bytes += weight.size_bytes;
      module.weights[row->second].tensors_count += weight.tensors_count;
    }
  }
  out.files_count = static_cast<int64_t>(files.size());
  for (auto& [name, module] : modules) out.modules.push_back(std::move(module));
  std::sort(out.modules.begin(), out.modules.end(), module_before);
  for (auto& [name, total] : formats) out.formats.push_back(std::move(total));
  std::sort(out.formats.begin(), out.formats.end(),
            [](const FormatTotal& a, const FormatTotal& b) { return a.size_bytes > b.size_bytes; });
  return out;
}

}  // namespace wp
