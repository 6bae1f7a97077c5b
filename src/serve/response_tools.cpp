#include "serve/response_tools.h"

#include <algorithm>

namespace wp {

const Json* member_of(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(name));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

namespace {

// What a client says a custom tool reads, for the model.
std::string custom_description(const Json& tool) {
  std::string text;
  if (const Json* given = member_of(tool, "description"); given && given->is_string()) text = given->get<std::string>();
  const Json* format = member_of(tool, "format");
  const Json* definition = format ? member_of(*format, "definition") : nullptr;
  if (!definition || !definition->is_string()) return text;
  const Json* syntax = member_of(*format, "syntax");
  if (!text.empty()) text += "\n\n";
  return text + cat("The input follows this ",
                    syntax && syntax->is_string() ? syntax->get_ref<const std::string&>() : std::string("formal"),
                    " grammar:\n", definition->get_ref<const std::string&>());
}

}  // namespace

std::string ResponseTools::flat_name(std::string_view name, std::string_view name_space) {
  if (name_space.empty()) return std::string(name);
  const bool joined = name_space.size() >= 2 && name_space.substr(name_space.size() - 2) == "__";
  return cat(name_space, joined ? "" : "__", name);
}

const ResponseTools::Tool* ResponseTools::find(std::string_view flat) const {
  for (const Tool& tool : tools_)
    if (tool.flat == flat) return &tool;
  return nullptr;
}

std::optional<ApiError> ResponseTools::read(const Json& tools, std::vector<std::string>* skipped) {
  for (size_t i = 0; i < tools.size(); ++i)
    if (auto error = read_tool(tools[i], cat("tools[", i, "]"), "", skipped)) return error;
  return std::nullopt;
}

std::optional<ApiError> ResponseTools::read_tool(const Json& tool, const std::string& where,
                                                 const std::string& name_space, std::vector<std::string>* skipped) {
  if (!tool.is_object()) return invalid_type(where, "an object", tool);
  const Json* type = member_of(tool, "type");
  if (!type || !type->is_string()) return invalid_type(where + ".type", "a string", type ? *type : Json());
  const std::string& kind = type->get_ref<const std::string&>();
  const bool outer = kind == "namespace" && name_space.empty();
  if (kind != "function" && kind != "custom" && !outer) {
    skipped->push_back(cat("tool ", kind.substr(0, 64)));
    return std::nullopt;
  }
  // Some clients send the chat's form, a function inside.
  const Json* function = kind == "function" ? member_of(tool, "function") : nullptr;
  if (function && !function->is_object()) return invalid_type(where + ".function", "an object", *function);
  const Json& described = function ? *function : tool;
  const Json* name = member_of(described, "name");
  if (!name || !name->is_string() || name->get_ref<const std::string&>().empty())
    return invalid_type(where + ".name", "a name", name ? *name : Json());
  if (outer) {
    const Json* inner = member_of(tool, "tools");
    if (!inner || !inner->is_array()) return invalid_type(where + ".tools", "a list", inner ? *inner : Json());
    for (size_t i = 0; i < inner->size(); ++i)
      if (auto error = read_tool((*inner)[i], cat(where, ".tools[", i, "]"), name->get<std::string>(), skipped))
        return error;
    return std::nullopt;
  }
  add(described, {.flat = flat_name(name->get_ref<const std::string&>(), name_space),
                  .name = name->get<std::string>(),
                  .name_space = name_space,
                  .custom = kind == "custom"});
  return std::nullopt;
}

void ResponseTools::add(const Json& tool, Tool named) {
  Json function = {{"name", named.flat}};
  if (named.custom) {
    function["description"] = custom_description(tool);
    function["parameters"] = {
        {"type", "object"},
        {"properties", {{"input", {{"type", "string"}, {"description", "All that the tool reads, as it stands."}}}}},
        {"required", {"input"}}};
  } else {
    for (const char* field : {"description", "parameters"})
      if (const Json* given = member_of(tool, field)) function[field] = *given;
    if (const Json* strict = member_of(tool, "strict"); strict && *strict == true) function["strict"] = true;
  }
  functions_.push_back({{"type", "function"}, {"function", std::move(function)}});
  tools_.push_back(std::move(named));
}

std::optional<ApiError> ResponseTools::read_choice(const Json& choice, Json* lowered) {
  *lowered = choice;
  if (choice.is_string()) return std::nullopt;  // The chat's own words.
  if (!choice.is_object()) return invalid_type("tool_choice", "a string or an object", choice);
  const Json* type = member_of(choice, "type");
  if (!type || !type->is_string()) return invalid_type("tool_choice.type", "a string", type ? *type : Json());
  if (*type == "allowed_tools") {
    const Json* mode = member_of(choice, "mode");
    if (mode && *mode != "auto" && *mode != "required")
      return invalid_value("tool_choice.mode",
                           cat("tool_choice.mode: expected auto or required, found ", describe(*mode)));
    *lowered = mode ? *mode : Json("auto");
    return allow_only(choice);
  }
  if (*type != "function" && *type != "custom")
    return unsupported_value("tool_choice.type",
                             cat("tool_choice.type: expected function or custom, found ", describe(*type)));
  const Json* name = member_of(choice, "name");
  if (const Json* inner = member_of(choice, "function"); !name && inner) name = member_of(*inner, "name");
  if (!name || !name->is_string()) return invalid_type("tool_choice.name", "a string", name ? *name : Json());
  std::string flat = name->get<std::string>();
  for (const Tool& tool : tools_)
    if (tool.name == *name) flat = tool.flat;
  *lowered = {{"type", "function"}, {"function", {{"name", std::move(flat)}}}};
  return std::nullopt;
}

std::optional<ApiError> ResponseTools::allow_only(const Json& choice) {
  const Json* allowed = member_of(choice, "tools");
  if (!allowed || !allowed->is_array()) return invalid_type("tool_choice.tools", "a list", allowed ? *allowed : Json());
  Json kept = Json::array();
  std::vector<Tool> kept_tools;
  for (size_t i = 0; i < tools_.size(); ++i) {
    const bool named = std::any_of(allowed->begin(), allowed->end(), [&](const Json& one) {
      const Json* name = member_of(one, "name");
      return name && *name == tools_[i].name;
    });
    if (!named) continue;
    kept.push_back(std::move(functions_[i]));
    kept_tools.push_back(std::move(tools_[i]));
  }
  functions_ = std::move(kept);
  tools_ = std::move(kept_tools);
  return std::nullopt;
}

}  // namespace wp
