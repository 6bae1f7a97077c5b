#include "serve/api_chat.h"

#include "serve/tool_schema.h"

namespace wp {
namespace {

// "functions" of the older interface.
Json lower_functions(const Json& functions) {
  Json tools = Json::array();
  for (const Json& function : functions) tools.push_back({{"type", "function"}, {"function", function}});
  return tools;
}

void read_tool_choice(FieldReader& reader, const char* name, bool* none) {
  const Json* choice = reader.find(name);
  if (!choice) return;
  if (!choice->is_string() && !choice->is_object())
    return reader.fail(invalid_type(name, "a string or an object", *choice));
  const std::string text = choice->is_string() ? choice->get<std::string>() : "a named tool";
  if (text == "auto") return;
  if (text == "none") {
    *none = true;
    return;
  }
  if (choice->is_object() || text == "required")
    return reader.fail(unsupported_value(name, cat(name, ": expected auto or none, found ", text)));
  reader.fail(invalid_value(name, cat(name, ": expected auto or none, found ", describe(*choice))));
}

void read_tools(FieldReader& reader, const ParseContext& context, ChatRequest* out) {
  Json tools = nullptr;
  if (const Json* functions = reader.list("functions")) tools = lower_functions(*functions);
  if (const Json* given = reader.list("tools")) tools = *given;
  bool none = false;
  read_tool_choice(reader, "function_call", &none);
  read_tool_choice(reader, "tool_choice", &none);
  out->parallel_calls = reader.boolean("parallel_tool_calls").value_or(true);
  if (tools.is_null() || !reader.ok()) return;
  if (auto error = check_tools(tools, context.limits.tools_max)) return reader.fail(std::move(*error));
  // Without the list in its prompt a model calls nothing.
  if (none || tools.empty()) return;
  // A breakpoint at a tool is one at the end of them all; the hint is no part of the tool.
  for (Json& tool : tools) {
    out->tools_pin_s = std::max(out->tools_pin_s, cache_control_s(tool));
    tool.erase("cache_control");
  }
  out->tools = std::move(tools);
  out->calls_allowed = true;
}

// OpenAI's words for effort, in those of the template; none turns the thought off.
void set_effort(FieldReader& reader, const std::string& param, const Json& value, Json* variables) {
  if (!value.is_string()) return reader.fail(invalid_type(param, "a string", value));
  const std::string& effort = value.get_ref<const std::string&>();
  if (effort == "none") (*variables)["enable_thinking"] = false;
  else if (effort == "minimal" || effort == "low") (*variables)["reasoning_effort"] = "low";
  else if (effort == "medium") (*variables)["reasoning_effort"] = "medium";
  else if (effort == "high" || effort == "xhigh") (*variables)["reasoning_effort"] = "xhigh";
  else
    reader.fail(invalid_value(
        param, cat(param, ": expected none, minimal, low, medium, high or xhigh, found ", describe(value))));
}

void read_thinking(FieldReader& reader, ChatRequest* out) {
  Json& variables = out->variables;
  if (const Json* given = reader.object("chat_template_kwargs")) {
    for (const auto& [key, value] : given->items()) {
      const std::string param = cat("chat_template_kwargs.", key);
      if (key == "chat_template" || key == "messages" || key == "tools" || key == "add_generation_prompt")
        return reader.fail(unsupported_value(param, cat(param, ": expected a variable of the template's own")));
      if (value.is_null()) continue;
      if (key == "enable_thinking" && !value.is_boolean()) return reader.fail(invalid_type(param, "a boolean", value));
      if (key == "reasoning_effort") set_effort(reader, param, value, &variables);
      else variables[key] = value;
    }
  }
  if (const Json* reasoning = reader.object("reasoning")) {
    FieldReader nested(*reasoning, "reasoning.");
    if (const Json* effort = nested.find("effort")) set_effort(reader, "reasoning.effort", *effort, &variables);
  }
  if (const Json* effort = reader.find("reasoning_effort")) set_effort(reader, "reasoning_effort", *effort, &variables);
  if (const auto enabled = reader.boolean("enable_thinking")) variables["enable_thinking"] = *enabled;
}

void read_response_format(FieldReader& reader) {
  const Json* format = reader.object("response_format");
  if (!format) return;
  FieldReader nested(*format, "response_format.");
  const auto type = nested.string("type");
  if (nested.error()) return reader.fail(*nested.error());
  if (!type) return reader.fail(invalid_type("response_format.type", "a string", Json()));
  if (*type == "text") return;
  const bool known = *type == "json_object" || *type == "json_schema";
  const std::string message = cat("response_format.type: expected text, found ", describe(Json(*type)));
  reader.fail(known ? unsupported_value("response_format", message) : invalid_value("response_format.type", message));
}

void read_logprobs(FieldReader& reader, SamplingParams* sampling) {
  const bool wanted = reader.boolean("logprobs").value_or(false);
  const auto top = reader.integer("top_logprobs", 0, 20);
  if (top && *top > 0 && !wanted)
    reader.fail(invalid_value("top_logprobs", "top_logprobs: expected logprobs true beside it, found it absent"));
  if (wanted) sampling->top_logprobs = static_cast<int32_t>(top.value_or(0));
}

ApiError zero_tokens(const char* param, const ParseContext& context) {
  return invalid_value(param, cat(param, ": expected 1..", context.context_tokens, ", found 0"));
}

}  // namespace

std::optional<ApiError> parse_chat(const Json& body, const ParseContext& context, ChatRequest* out) {
  if (!body.is_object()) return invalid_type("body", "an object", body);
  FieldReader reader(body);
  const Json* messages = reader.list("messages");
  if (!messages && reader.ok()) reader.fail(invalid_type("messages", "a list", Json()));
  read_common(reader, context, &out->common);
  if (out->common.max_tokens && *out->common.max_tokens == 0)
    reader.fail(zero_tokens(reader.find("max_completion_tokens") ? "max_completion_tokens" : "max_tokens", context));
  read_tools(reader, context, out);
  read_thinking(reader, out);
  read_response_format(reader);
  read_logprobs(reader, &out->common.sampling);
  out->stop_in_reasoning = reader.boolean("stop_in_reasoning").value_or(false);
  out->add_generation_prompt = reader.boolean("add_generation_prompt").value_or(true);
  reader.refuse("continue_final_message", "false", {false});
  reader.refuse("modalities", "[\"text\"]", {Json::array({"text"})});
  reader.refuse("audio", "none (text only)");
  finish_fields(reader, context, &out->common);
  if (reader.error()) return reader.error();
  return normalise_messages(*messages, context.limits.messages_max, &out->history);
}

Json template_variables(const ChatRequest& request, Json messages) {
  Json variables = request.variables;
  variables["messages"] = std::move(messages);
  if (!request.tools.is_null()) variables["tools"] = request.tools;
  variables["add_generation_prompt"] = request.add_generation_prompt;
  return variables;
}

}  // namespace wp
