#include "serve/chat_messages.h"

#include <algorithm>
#include <map>

namespace wp {
namespace {

constexpr int kRepeats = 3;
constexpr size_t kBreakpointsMax = 4;
constexpr int64_t kPinShort_s = 300, kPinLong_s = 3600;

const Json* member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string at(size_t index, std::string_view field = {}) {
  return cat("messages[", index, "]", field.empty() ? "" : ".", field);
}

// One part of a content list; its text is appended.
std::optional<ApiError> append_part(const Json& part, const std::string& where, std::string* text) {
  if (part.is_string()) {
    *text += part.get_ref<const std::string&>();
    return std::nullopt;
  }
  if (!part.is_object()) return invalid_type(where, "an object", part);
  const Json* type = member(part, "type");
  if (!type || !type->is_string()) return invalid_type(where + ".type", "a string", type ? *type : Json());
  const std::string& kind = type->get_ref<const std::string&>();
  const bool refusal = kind == "refusal";
  if (kind != "text" && kind != "input_text" && kind != "output_text" && !refusal)
    return unsupported_value(where + ".type", cat(where, ".type: expected text, found ", describe(*type)));
  const Json* value = member(part, refusal ? "refusal" : "text");
  if (!value || !value->is_string()) return invalid_type(where + ".text", "a string", value ? *value : Json());
  *text += value->get_ref<const std::string&>();
  return std::nullopt;
}

std::optional<ApiError> read_content(const Json& message, size_t index, bool optional, std::string* text) {
  const Json* content = member(message, "content");
  if (!content) {
    if (optional) return std::nullopt;
    return invalid_type(at(index, "content"), "a string or a list of parts", Json());
  }
  if (content->is_string()) {
    *text = content->get_ref<const std::string&>();
    return std::nullopt;
  }
  if (!content->is_array()) return invalid_type(at(index, "content"), "a string or a list of parts", *content);
  for (size_t i = 0; i < content->size(); ++i)
    if (auto error = append_part((*content)[i], cat(at(index, "content"), "[", i, "]"), text)) return error;
  return std::nullopt;
}

// Templates print a mapping. What a client sends is the mapping's JSON text; text that is none is kept as it is.
Json arguments_mapping(const Json* arguments) {
  if (!arguments) return Json::object();
  if (arguments->is_object()) return *arguments;
  if (!arguments->is_string()) return {{"arguments", *arguments}};
  const std::string& text = arguments->get_ref<const std::string&>();
  if (text.find_first_not_of(" \n\r\t") == std::string::npos) return Json::object();
  auto parsed = parse_json(text);
  if (parsed.ok() && parsed->is_object()) return std::move(*parsed);
  return {{"arguments", text}};
}

std::optional<ApiError> read_function(const Json& function, const std::string& where, Json* out) {
  if (!function.is_object()) return invalid_type(where, "an object", function);
  const Json* name = member(function, "name");
  if (!name || !name->is_string()) return invalid_type(where + ".name", "a string", name ? *name : Json());
  const Json* arguments = member(function, "arguments");
  if (arguments && !arguments->is_string() && !arguments->is_object())
    return invalid_type(where + ".arguments", "a string", *arguments);
  *out = {{"name", *name}, {"arguments", arguments_mapping(arguments)}};
  return std::nullopt;
}

std::optional<ApiError> read_calls(const Json& message, size_t index, Json* out) {
  const Json* legacy = member(message, "function_call");
  if (legacy) {
    Json function;
    if (auto error = read_function(*legacy, at(index, "function_call"), &function)) return error;
    out->push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  const Json* calls = member(message, "tool_calls");
  if (!calls) return std::nullopt;
  if (!calls->is_array()) return invalid_type(at(index, "tool_calls"), "a list", *calls);
  for (size_t i = 0; i < calls->size(); ++i) {
    const Json& call = (*calls)[i];
    const std::string where = cat(at(index, "tool_calls"), "[", i, "]");
    if (!call.is_object()) return invalid_type(where, "an object", call);
    const Json* id = member(call, "id");
    if (id && !id->is_string()) return invalid_type(where + ".id", "a string", *id);
    const Json* function = member(call, "function");
    if (!function) return invalid_type(where + ".function", "an object", Json());
    Json made;
    if (auto error = read_function(*function, where + ".function", &made)) return error;
    Json entry = Json::object();
    if (id) entry["id"] = *id;
    entry["type"] = "function";
    entry["function"] = std::move(made);
    out->push_back(std::move(entry));
  }
  return std::nullopt;
}

std::optional<ApiError> read_reasoning(const Json& message, size_t index, Json* out) {
  for (const char* name : {"reasoning", "reasoning_content"}) {
    const Json* reasoning = member(message, name);
    if (!reasoning) continue;
    if (!reasoning->is_string()) return invalid_type(at(index, name), "a string", *reasoning);
    if (!reasoning->get_ref<const std::string&>().empty()) (*out)["reasoning_content"] = *reasoning;
  }
  return std::nullopt;
}

int64_t breakpoint_s(const Json& message) {
  int64_t seconds = cache_control_s(message);
  if (const Json* content = member(message, "content"); content && content->is_array())
    for (const Json& part : *content) seconds = std::max(seconds, cache_control_s(part));
  return seconds;
}

// Of more than kBreakpointsMax the last ones: they cover the most.
void note_breakpoint(const Json& message, NormalisedMessages* out) {
  const int64_t seconds = breakpoint_s(message);
  if (seconds == 0) return;
  out->pin_s = std::max(out->pin_s, seconds);
  if (!out->breakpoints.empty() && out->breakpoints.back() == out->messages.size()) return;
  if (out->breakpoints.size() == kBreakpointsMax) out->breakpoints.erase(out->breakpoints.begin());
  out->breakpoints.push_back(out->messages.size());
}

void look_at_calls(NormalisedMessages* out) {
  std::map<std::string, int> seen;
  std::vector<std::string> ids;
  for (const Json& message : out->messages) {
    if (const auto calls = message.find("tool_calls"); calls != message.end()) {
      for (const Json& call : *calls) {
        out->repeated_call |= ++seen[dump_json(call["function"])] >= kRepeats;
        if (call.contains("id")) ids.push_back(call["id"].get<std::string>());
      }
    }
    if (const auto id = message.find("tool_call_id"); id != message.end())
      out->unmatched_result |= std::find(ids.begin(), ids.end(), id->get_ref<const std::string&>()) == ids.end();
  }
}

}  // namespace

std::optional<ApiError> normalise_message(const Json& message, size_t index, Json* out) {
  if (!message.is_object()) return invalid_type(at(index), "an object", message);
  const Json* role_field = member(message, "role");
  if (!role_field || !role_field->is_string())
    return invalid_type(at(index, "role"), "a string", role_field ? *role_field : Json());
  std::string role = role_field->get<std::string>();
  if (role == "developer") role = "system";
  if (role == "function") role = "tool";
  const bool assistant = role == "assistant", tool = role == "tool";
  if (!assistant && !tool && role != "system" && role != "user")
    return invalid_value(
        at(index, "role"),
        cat(at(index, "role"), ": expected system, developer, user, assistant or tool, found ", describe(*role_field)));
  std::string text;
  if (auto error = read_content(message, index, assistant || tool, &text)) return error;
  *out = {{"role", role}, {"content", std::move(text)}};
  if (const Json* name = member(message, "name")) {
    if (!name->is_string()) return invalid_type(at(index, "name"), "a string", *name);
    (*out)["name"] = *name;
  }
  if (tool) {
    const Json* id = member(message, "tool_call_id");
    if (id && !id->is_string()) return invalid_type(at(index, "tool_call_id"), "a string", *id);
    if (id) (*out)["tool_call_id"] = *id;
  }
  if (!assistant) return std::nullopt;
  if (auto error = read_reasoning(message, index, out)) return error;
  Json calls = Json::array();
  if (auto error = read_calls(message, index, &calls)) return error;
  if (!calls.empty()) (*out)["tool_calls"] = std::move(calls);
  return std::nullopt;
}

int64_t cache_control_s(const Json& holder) {
  if (!holder.is_object()) return 0;
  const Json* control = member(holder, "cache_control");
  if (!control || !control->is_object()) return 0;
  const Json* ttl = member(*control, "ttl");
  return ttl && *ttl == "1h" ? kPinLong_s : kPinShort_s;
}

std::optional<ApiError> normalise_messages(const Json& messages, int32_t messages_max, NormalisedMessages* out) {
  if (messages.empty()) return invalid_value("messages", "messages: expected at least one message, found none");
  if (messages.size() > static_cast<size_t>(messages_max))
    return invalid_value("messages",
                         cat("messages: expected at most ", messages_max, " messages, found ", messages.size()));
  bool user = false, leading = true;
  for (size_t i = 0; i < messages.size(); ++i) {
    Json message;
    if (auto error = normalise_message(messages[i], i, &message)) return error;
    const std::string& role = message["role"].get_ref<const std::string&>();
    user |= role == "user";
    if (role == "system") {
      out->late_system |= !leading;
      if (leading && !out->messages.empty()) {
        std::string merged = out->messages[0]["content"].get<std::string>();
        const std::string& text = message["content"].get_ref<const std::string&>();
        if (!merged.empty() && !text.empty()) merged += "\n\n";
        out->messages[0]["content"] = merged + text;
        note_breakpoint(messages[i], out);
        continue;
      }
    } else {
      leading = false;
    }
    out->messages.push_back(std::move(message));
    note_breakpoint(messages[i], out);
  }
  if (!user) return invalid_value("messages", "messages: expected at least one message of role user, found none");
  look_at_calls(out);
  return std::nullopt;
}

namespace {

// Bytes of the line at the beginning of `text`, with the newlines behind it; 0: there is none.
size_t volatile_line_bytes(std::string_view text) {
  constexpr std::string_view kName = "x-anthropic-billing-header:";
  if (text.substr(0, kName.size()) != kName) return 0;
  size_t at = kName.size();
  const auto skip = [&](const auto& belongs) {
    const size_t begin = at;
    while (at < text.size() && belongs(text[at])) ++at;
    return at > begin;
  };
  bool any = false;
  while (at < text.size() && text[at] != '\n') {  // " key=value;"
    const bool pair = skip([](char c) { return c == ' '; }) &&
                      skip([](char c) { return (c >= 'a' && c <= 'z') || c == '_'; }) && text.substr(at, 1) == "=" &&
                      skip([](char c) { return c != ';' && c != '\n' && c != ' '; }) && text.substr(at, 1) == ";";
    if (!pair) return 0;
    any = true;
    ++at;
  }
  skip([](char c) { return c == '\n'; });
  return any ? at : 0;
}

}  // namespace

int strip_volatile_lines(Json& messages) {
  int stripped = 0;
  for (Json& message : messages) {
    if (message["role"] != "system") continue;
    std::string& text = message["content"].get_ref<std::string&>();
    const size_t bytes = volatile_line_bytes(text);
    text.erase(0, bytes);
    stripped += bytes > 0;
  }
  return stripped;
}

void tag_late_system(Json& messages) {
  for (size_t i = 1; i < messages.size(); ++i) {
    if (messages[i]["role"] != "system") continue;
    messages[i]["role"] = "user";
    messages[i]["content"] = cat("<system>\n", messages[i]["content"].get<std::string>(), "\n</system>");
  }
}

}  // namespace wp
