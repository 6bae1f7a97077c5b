// ResponseTools: the tools of a Responses body as the chat knows them, functions all: a namespace's stand under
// NAMESPACE__NAME, a custom tool is a function of one text, kinds that are run elsewhere are skipped. It also knows the
// way back, for the calls that the model makes. Const once made. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api_error.h"

namespace wp {

class ResponseTools {
 public:
  struct Tool {
    std::string flat;              // What the model calls.
    std::string name, name_space;  // What the client calls; no namespace: empty.
    bool custom = false;
  };

  // `tools`: the client's list. Names the kinds that were skipped.
  std::optional<ApiError> read(const Json& tools, std::vector<std::string>* skipped);

  const Json& functions() const { return functions_; }  // As in a chat body.
  // By what the model calls; null: it called what it was not given.
  const Tool* find(std::string_view flat) const;
  // A tool_choice as in a chat body. May leave only those functions that it allows.
  std::optional<ApiError> read_choice(const Json& choice, Json* lowered);

  static std::string flat_name(std::string_view name, std::string_view name_space);

 private:
  std::optional<ApiError> read_tool(const Json& tool, const std::string& where, const std::string& name_space,
                                    std::vector<std::string>* skipped);
  std::optional<ApiError> allow_only(const Json& choice);
  void add(const Json& tool, Tool named);

  Json functions_ = Json::array();
  std::vector<Tool> tools_;  // Beside functions_.
};

// The member, or null when it is absent or null.
const Json* member_of(const Json& object, std::string_view name);

}  // namespace wp
