#include "serve/tool_schema.h"

namespace wp {
namespace {

constexpr int kDepthMax = 16;  // Of references and combinations; a self-reference ends here.

const Json* member(const Json& value, std::string_view name) {
  if (!value.is_object()) return nullptr;
  const auto found = value.find(std::string(name));
  return found == value.end() ? nullptr : &*found;
}

// "#/$defs/Name" inside `root`; null when it leads nowhere.
const Json* resolve(const Json& root, std::string_view reference) {
  if (reference.substr(0, 2) != "#/") return reference == "#" ? &root : nullptr;
  const Json* at = &root;
  reference.remove_prefix(2);
  while (at) {
    const size_t slash = reference.find('/');
    at = member(*at, reference.substr(0, slash));
    if (slash == std::string_view::npos) break;
    reference.remove_prefix(slash + 1);
  }
  return at;
}

bool is_string_type(const Json& type) {
  if (type.is_string()) return type.get_ref<const std::string&>() == "string";
  if (type.is_array())
    for (const Json& one : type)
      if (one.is_string() && one.get_ref<const std::string&>() == "string") return true;
  return false;
}

bool allows_string_in(const Json& root, const Json& schema, int depth) {
  if (!schema.is_object()) return true;  // `true`, and what makes no sense.
  if (depth > kDepthMax) return true;
  if (const Json* reference = member(schema, "$ref"); reference && reference->is_string()) {
    const Json* target = resolve(root, reference->get_ref<const std::string&>());
    return !target || allows_string_in(root, *target, depth + 1);
  }
  if (const Json* type = member(schema, "type")) return is_string_type(*type);
  if (const Json* constant = member(schema, "const")) return constant->is_string();
  if (const Json* values = member(schema, "enum"); values && values->is_array()) {
    for (const Json& value : *values)
      if (value.is_string()) return true;
    return false;
  }
  for (const char* combination : {"anyOf", "oneOf"}) {
    const Json* choices = member(schema, combination);
    if (!choices || !choices->is_array()) continue;
    for (const Json& choice : *choices)
      if (allows_string_in(root, choice, depth + 1)) return true;
    return false;
  }
  if (const Json* all = member(schema, "allOf"); all && all->is_array()) {
    for (const Json& part : *all)
      if (!allows_string_in(root, part, depth + 1)) return false;
  }
  if (member(schema, "properties")) return false;
  if (member(schema, "items")) return false;
  return true;
}

ApiError invalid_schema(const std::string& pointer, std::string_view expected, const Json& found) {
  return {.status = 400,
          .type = "invalid_request_error",
          .code = "invalid_schema",
          .param = "tools",
          .message = cat(pointer, ": expected ", expected, ", found ", describe(found))};
}

// Properties must be schemas; what is inside them is the client's business.
std::optional<ApiError> check_parameters(const std::string& pointer, const Json& parameters) {
  if (parameters.is_null()) return std::nullopt;
  if (!parameters.is_object()) return invalid_schema(pointer, "an object", parameters);
  const Json* properties = member(parameters, "properties");
  if (!properties || properties->is_null()) return std::nullopt;
  if (!properties->is_object()) return invalid_schema(pointer + "/properties", "an object", *properties);
  for (const auto& [key, schema] : properties->items())
    if (!schema.is_object() && !schema.is_boolean())
      return invalid_schema(cat(pointer, "/properties/", key), "an object or a boolean", schema);
  return std::nullopt;
}

}  // namespace

bool ToolSchemas::allows_string(std::string_view function, std::string_view parameter) const {
  if (!tools_ || !tools_->is_array()) return true;
  for (const Json& tool : *tools_) {
    const Json* described = member(tool, "function");
    const Json* name = described ? member(*described, "name") : nullptr;
    if (!name || !name->is_string() || name->get_ref<const std::string&>() != function) continue;
    const Json* parameters = member(*described, "parameters");
    const Json* properties = parameters ? member(*parameters, "properties") : nullptr;
    const Json* schema = properties ? member(*properties, parameter) : nullptr;
    return !schema || allows_string_in(*parameters, *schema, 0);
  }
  return true;
}

std::optional<ApiError> check_tools(const Json& tools, int32_t tools_max) {
  if (!tools.is_array()) return invalid_type("tools", "a list", tools);
  if (tools.size() > static_cast<size_t>(tools_max))
    return invalid_value("tools", cat("tools: expected at most ", tools_max, " items, found ", tools.size()));
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string at = cat("tools/", i);
    const Json& tool = tools[i];
    if (!tool.is_object()) return invalid_type(cat("tools[", i, "]"), "an object", tool);
    const Json* type = member(tool, "type");
    if (!type || !type->is_string()) return invalid_type(cat("tools[", i, "].type"), "a string", type ? *type : Json());
    if (type->get_ref<const std::string&>() != "function")
      return unsupported_value(cat("tools[", i, "].type"),
                               cat("tools[", i, "].type: expected function, found ", describe(*type)));
    const Json* function = member(tool, "function");
    if (!function || !function->is_object())
      return invalid_type(cat("tools[", i, "].function"), "an object", function ? *function : Json());
    const Json* name = member(*function, "name");
    if (!name || !name->is_string() || name->get_ref<const std::string&>().empty())
      return invalid_type(cat("tools[", i, "].function.name"), "a name", name ? *name : Json());
    if (const Json* parameters = member(*function, "parameters"))
      if (auto error = check_parameters(at + "/function/parameters", *parameters)) return error;
  }
  return std::nullopt;
}

}  // namespace wp
