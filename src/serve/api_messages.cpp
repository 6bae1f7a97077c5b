#include "serve/api_messages.h"

#include <limits>

#include "serve/message_blocks.h"

namespace wp {
namespace {

// What means the same in both dialects, and extensions of this server.
constexpr const char* kSame[] = {"temperature",
                                 "top_p",
                                 "top_k",
                                 "stream",
                                 "min_p",
                                 "seed",
                                 "presence_penalty",
                                 "frequency_penalty",
                                 "repetition_penalty",
                                 "logit_bias",
                                 "ignore_eos",
                                 "min_tokens",
                                 "stop_token_ids",
                                 "stop_in_reasoning",
                                 "chat_template_kwargs",
                                 "cache_prompt",
                                 "cache_salt",
                                 "prompt_cache_key"};

// Hints to a hosted service.
constexpr const char* kNoEffect[] = {"metadata", "context_management", "service_tier", "container",
                                     "speed",    "inference_geo",      "diagnostics",  "betas"};

void lower_stops(FieldReader& reader, Json* lowered) {
  const Json* stops = reader.list("stop_sequences");
  if (!stops) return;
  for (const Json& stop : *stops)
    if (!stop.is_string()) return reader.fail(invalid_type("stop_sequences", "a list of strings", stop));
  (*lowered)["stop"] = *stops;
}

// Without the field Anthropic's models do not think, and clients take the first block for the answer.
void lower_thinking(FieldReader& reader, Json* lowered, MessagesRequest* out) {
  (*lowered)["enable_thinking"] = false;
  const Json* thinking = reader.object("thinking");
  if (!thinking) {
    const Json* given = reader.object("chat_template_kwargs");
    if (given && given->contains("enable_thinking")) lowered->erase("enable_thinking");
    return;
  }
  FieldReader nested(*thinking, "thinking.");
  const std::string type = nested.string("type").value_or("");
  if (nested.integer("budget_tokens", 0, std::numeric_limits<int32_t>::max()))
    add_once(&out->ignored, "thinking.budget_tokens");
  if (nested.error()) return reader.fail(*nested.error());
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    return reader.fail(
        invalid_value("thinking.type", cat("thinking.type: expected enabled, disabled or adaptive, found ",
                                           describe(thinking->value("type", Json())))));
  if (type == "enabled") (*lowered)["enable_thinking"] = true;
  if (type != "adaptive") return;
  lowered->erase("enable_thinking");  // The template's own choice.
  add_once(&out->ignored, "thinking.type:adaptive");
}

// {name, description, input_schema} as {type: function, function: {name, description, parameters}}.
void lower_tools(FieldReader& reader, Json* lowered, MessagesRequest* out) {
  const Json* tools = reader.list("tools");
  if (!tools) return;
  Json made = Json::array();
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string where = cat("tools[", i, "]");
    if (!tool.is_object()) return reader.fail(invalid_type(where, "an object", tool));
    FieldReader nested(tool, where + ".");
    const std::string type = nested.string("type").value_or("custom");
    const auto name = nested.string("name", 1024);
    const auto description = nested.string("description", SIZE_MAX);
    const Json* schema = nested.object("input_schema");
    if (nested.error()) return reader.fail(*nested.error());
    if (type != "custom") {  // A service that the hosted API runs, or a tool that only its models know.
      add_once(&out->ignored, cat("tools[].type:", type.substr(0, 48)));
      continue;
    }
    if (!name) return reader.fail(invalid_type(where + ".name", "a string", Json()));
    Json function = {{"name", *name}};
    if (description) function["description"] = *description;
    function["parameters"] = schema ? *schema : Json{{"type", "object"}, {"properties", Json::object()}};
    Json entry = {{"type", "function"}, {"function", std::move(function)}};
    if (const Json* control = nested.find("cache_control")) entry["cache_control"] = *control;
    made.push_back(std::move(entry));
  }
  if (!made.empty()) (*lowered)["tools"] = std::move(made);
}

void lower_tool_choice(FieldReader& reader, Json* lowered) {
  const Json* choice = reader.object("tool_choice");
  if (!choice) return;
  FieldReader nested(*choice, "tool_choice.");
  const std::string type = nested.string("type").value_or("");
  const auto name = nested.string("name", 1024);
  if (nested.boolean("disable_parallel_tool_use").value_or(false)) (*lowered)["parallel_tool_calls"] = false;
  if (nested.error()) return reader.fail(*nested.error());
  if (type == "auto" || type == "none") (*lowered)["tool_choice"] = type;
  else if (type == "any") (*lowered)["tool_choice"] = "required";
  else if (type == "tool" && name) (*lowered)["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
  else
    reader.fail(
        invalid_value("tool_choice.type", cat("tool_choice.type: expected auto, any, none, or tool with a name, found ",
                                              describe(choice->value("type", Json())))));
}

// An answer that has to be of a form must not come unbound.
void refuse_formats(FieldReader& reader) {
  reader.refuse("output_format", "none (constrained output is not offered)");
  const Json* config = reader.object("output_config");
  if (!config) return;
  FieldReader nested(*config, "output_config.");
  nested.refuse("format", "none (constrained output is not offered)");
  if (nested.error()) reader.fail(*nested.error());
}

void lower_messages(FieldReader& reader, Json* lowered, MessagesRequest* out) {
  LoweredMessages made;
  if (const Json* system = reader.find("system")) lower_system(*system, &made);
  const Json* messages = reader.list("messages");
  if (!messages) return reader.fail(invalid_type("messages", "a list", Json()));
  if (messages->empty())
    return reader.fail(invalid_value("messages", "messages: expected at least one message, found none"));
  for (size_t i = 0; i < messages->size() && !made.error; ++i) lower_message((*messages)[i], i, &made);
  if (made.error) return reader.fail(std::move(*made.error));
  for (std::string& kind : made.ignored) add_once(&out->ignored, std::move(kind));
  // A breakpoint for the whole request stands at its end.
  const Json* control = reader.object("cache_control");
  if (control && !made.messages.empty()) made.messages.back()["cache_control"] = *control;
  out->prefill = !made.messages.empty() && made.messages.back()["role"] == "assistant";
  (*lowered)["messages"] = std::move(made.messages);
}

// The words of the dialect that the client spoke.
ApiError translated(ApiError error) {
  const auto replace = [&](std::string_view from, std::string_view to) {
    if (const size_t at = error.message.find(from); at != std::string::npos) error.message.replace(at, from.size(), to);
  };
  replace("/function/parameters", "/input_schema");
  replace(".function.name", ".name");
  if (const size_t at = error.param.find(".function.name"); at != std::string::npos)
    error.param.replace(at, 14, ".name");
  if (error.param == "stop") {
    replace("stop:", "stop_sequences:");
    error.param = "stop_sequences";
  }
  return error;
}

}  // namespace

std::optional<ApiError> parse_messages(const Json& body, const ParseContext& context, MessagesRequest* out) {
  if (!body.is_object()) return invalid_type("body", "an object", body);
  FieldReader reader(body);
  Json lowered = Json::object();
  const std::string model = reader.string("model", 1024).value_or("");
  const auto max_tokens = reader.integer("max_tokens", 1, std::numeric_limits<int32_t>::max());
  for (const char* name : kSame)
    if (const Json* value = reader.find(name)) lowered[name] = *value;
  lower_stops(reader, &lowered);
  lower_thinking(reader, &lowered, out);
  lower_tools(reader, &lowered, out);
  lower_tool_choice(reader, &lowered);
  refuse_formats(reader);
  for (const char* name : kNoEffect)
    if (reader.find(name)) add_once(&out->ignored, name);
  if (reader.ok()) lower_messages(reader, &lowered, out);
  if (reader.error()) return reader.error();

  if (auto error = parse_chat(lowered, context, &out->chat)) return translated(std::move(*error));
  CommonFields& fields = out->chat.common;
  fields.model = model;
  // Clients ask for the most that Anthropic's models can say; here it is bounded by what the context leaves.
  fields.max_tokens = max_tokens;
  fields.max_tokens_bounded = true;
  out->chat.call_id_prefix = "toolu_";
  finish_fields(reader, context, &fields);
  return reader.error();
}

}  // namespace wp
