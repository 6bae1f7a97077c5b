// ToolSchemas: what the tools of one request say about their parameters, as far as converting a call's raw values needs
// it. Const once made; borrows the tools, which outlive it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "serve/api_error.h"

namespace wp {

class ToolSchemas {
 public:
  ToolSchemas() = default;
  explicit ToolSchemas(const Json& tools) : tools_(&tools) {}

  // Whether the parameter may be a string: then a raw value is one as it stands (A12). Unknown functions and
  // parameters, and schemas that say nothing, allow it.
  bool allows_string(std::string_view function, std::string_view parameter) const;

 private:
  const Json* tools_ = nullptr;
};

// Checks the shape of `tools` as clients send it: a list of {type: function, function: {name, parameters}}. The error
// holds a JSON pointer to the fault.
std::optional<ApiError> check_tools(const Json& tools, int32_t tools_max);

}  // namespace wp
