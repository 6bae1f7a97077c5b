#include "serve/response_items.h"

#include <algorithm>

#include "serve/response_tools.h"

namespace wp {
namespace {

// No secret from the one who runs the server: it keeps other servers' sealed thoughts apart from ours.
constexpr std::string_view kSeal = "warmpath:";
constexpr const char* kNotShown = "[not shown: this model reads text only]";

std::optional<std::string> opened_thought(const Json* sealed) {
  if (!sealed || !sealed->is_string()) return std::nullopt;
  const std::string& text = sealed->get_ref<const std::string&>();
  if (text.compare(0, kSeal.size(), kSeal) != 0) return std::nullopt;
  return text.substr(kSeal.size());
}

// The text of a part; `kinds` are those that have some.
std::optional<ApiError> part_text(const Json& part, const std::string& where, std::initializer_list<const char*> kinds,
                                  std::string* text) {
  if (part.is_string()) {
    *text += part.get_ref<const std::string&>();
    return std::nullopt;
  }
  if (!part.is_object()) return invalid_type(where, "an object", part);
  const Json* type = member_of(part, "type");
  if (!type || !type->is_string()) return invalid_type(where + ".type", "a string", type ? *type : Json());
  if (std::none_of(kinds.begin(), kinds.end(), [&](const char* kind) { return *type == kind; }))
    return unsupported_value(where + ".type",
                             cat(where, ".type: expected ", *kinds.begin(), ", found ", describe(*type)));
  const char* name = *type == "refusal" ? "refusal" : "text";
  const Json* value = member_of(part, name);
  if (!value || !value->is_string()) return invalid_type(cat(where, ".", name), "a string", value ? *value : Json());
  *text += value->get_ref<const std::string&>();
  return std::nullopt;
}

std::optional<ApiError> content_text(const Json& content, const std::string& where,
                                     std::initializer_list<const char*> kinds, std::string* text) {
  if (content.is_string()) {
    *text += content.get_ref<const std::string&>();
    return std::nullopt;
  }
  if (!content.is_array()) return invalid_type(where, "a string or a list of parts", content);
  for (size_t i = 0; i < content.size(); ++i)
    if (auto error = part_text(content[i], cat(where, "[", i, "]"), kinds, text)) return error;
  return std::nullopt;
}

// A string member that may be absent.
std::optional<ApiError> read_string(const Json& item, const char* name, const std::string& where, std::string* out) {
  const Json* value = member_of(item, name);
  if (!value) return std::nullopt;
  if (!value->is_string()) return invalid_type(cat(where, ".", name), "a string", *value);
  *out = value->get<std::string>();
  return std::nullopt;
}

std::optional<ApiError> need_string(const Json& item, const char* name, const std::string& where, std::string* out) {
  if (!member_of(item, name)) return invalid_type(cat(where, ".", name), "a string", Json());
  return read_string(item, name, where, out);
}

}  // namespace

std::string kind_of_item(const Json& item) {
  const Json* type = member_of(item, "type");
  if (type && type->is_string()) return type->get<std::string>();
  if (type) return "";
  return member_of(item, "role") ? "message" : member_of(item, "id") ? "item_reference" : "";
}

std::string sealed_thought(const std::string& thought) { return cat(kSeal, thought); }

void ResponseConversation::skip(const std::string& kind) {
  if (std::find(skipped_.begin(), skipped_.end(), kind) == skipped_.end() && skipped_.size() < 64)
    skipped_.push_back(kind);
}

Json& ResponseConversation::turn() {
  if (!open_) messages_.push_back({{"role", "assistant"}, {"content", ""}});
  if (!open_) said_ = false;
  open_ = true;
  return messages_.back();
}

std::optional<ApiError> ResponseConversation::add(const Json& item, const std::string& where) {
  if (!item.is_object()) return invalid_type(where, "an object", item);
  const Json* type = member_of(item, "type");
  if (type && !type->is_string()) return invalid_type(where + ".type", "a string", *type);
  const std::string kind = kind_of_item(item);
  if (kind == "message") return add_message(item, where);
  if (kind == "reasoning") return add_reasoning(item, where);
  if (kind == "function_call" || kind == "custom_tool_call" || kind == "local_shell_call")
    return add_call(item, kind, where);
  if (kind == "function_call_output" || kind == "custom_tool_call_output" || kind == "local_shell_call_output")
    return add_output(item, where);
  if (kind.empty()) return invalid_type(where + ".type", "a string", Json());
  skip(cat("item ", kind.substr(0, 64)));
  return std::nullopt;
}

std::optional<ApiError> ResponseConversation::add_message(const Json& item, const std::string& where) {
  std::string role;
  if (auto error = need_string(item, "role", where, &role)) return error;
  const bool assistant = role == "assistant";
  if (!assistant && role != "user" && role != "system" && role != "developer")
    return invalid_value(where + ".role", cat(where, ".role: expected user, assistant, system or developer, found ",
                                              describe(item["role"])));
  const Json* content = member_of(item, "content");
  if (!content && !assistant) return invalid_type(where + ".content", "a string or a list of parts", Json());
  std::string text;
  if (content)
    if (auto error =
            content_text(*content, where + ".content", {"input_text", "output_text", "text", "refusal"}, &text))
      return error;
  if (!assistant) {
    open_ = false;
    messages_.push_back({{"role", role}, {"content", std::move(text)}});
    return std::nullopt;
  }
  // Text behind a call goes on; text behind text is another turn, as in a chat.
  if (open_ && said_ && !messages_.back().contains("tool_calls")) open_ = false;
  Json& message = turn();
  message["content"] = message["content"].get<std::string>() + text;
  said_ = true;
  return std::nullopt;
}

std::optional<ApiError> ResponseConversation::add_reasoning(const Json& item, const std::string& where) {
  std::string sealed, read, summary;
  if (auto error = read_string(item, "encrypted_content", where, &sealed)) return error;
  if (const Json* content = member_of(item, "content"))
    if (auto error = content_text(*content, where + ".content", {"reasoning_text", "text"}, &read)) return error;
  if (const Json* parts = member_of(item, "summary")) {
    if (!parts->is_array()) return invalid_type(where + ".summary", "a list", *parts);
    if (auto error = content_text(*parts, where + ".summary", {"summary_text", "text"}, &summary)) return error;
  }
  const auto opened = opened_thought(member_of(item, "encrypted_content"));
  const std::string& thought = opened ? *opened : !read.empty() ? read : summary;
  if (open_ && said_) open_ = false;  // A thought begins a turn.
  if (thought.empty()) return std::nullopt;
  Json& message = turn();
  const std::string before = message.value("reasoning_content", "");
  message["reasoning_content"] = before.empty() ? thought : cat(before, "\n", thought);
  return std::nullopt;
}

std::optional<ApiError> ResponseConversation::add_call(const Json& item, const std::string& kind,
                                                       const std::string& where) {
  std::string id, name, name_space;
  Json arguments;
  if (auto error = read_string(item, "id", where, &id)) return error;
  if (auto error = read_string(item, "call_id", where, &id)) return error;
  if (kind == "local_shell_call") {
    const Json* action = member_of(item, "action");
    if (!action || !action->is_object()) return invalid_type(where + ".action", "an object", action ? *action : Json());
    name = "local_shell";
    arguments = *action;
    arguments.erase("type");
  } else {
    const bool custom = kind == "custom_tool_call";
    std::string text;
    if (auto error = need_string(item, "name", where, &name)) return error;
    if (auto error = read_string(item, "namespace", where, &name_space)) return error;
    if (auto error = need_string(item, custom ? "input" : "arguments", where, &text)) return error;
    if (custom) arguments = {{"input", std::move(text)}};
    else arguments = std::move(text);
  }
  Json call = Json::object();
  if (!id.empty()) call["id"] = id;
  call["type"] = "function";
  call["function"] = {{"name", ResponseTools::flat_name(name, name_space)}, {"arguments", std::move(arguments)}};
  turn()["tool_calls"].push_back(std::move(call));
  said_ = true;
  return std::nullopt;
}

std::optional<ApiError> ResponseConversation::add_output(const Json& item, const std::string& where) {
  std::string id, text;
  if (auto error = read_string(item, "id", where, &id)) return error;
  if (auto error = read_string(item, "call_id", where, &id)) return error;
  const Json* output = member_of(item, "output");
  if (!output) return invalid_type(where + ".output", "a string or a list of parts", Json());
  if (auto error = read_output(*output, where + ".output", &text)) return error;
  open_ = false;
  Json message = {{"role", "tool"}, {"content", std::move(text)}};
  if (!id.empty()) message["tool_call_id"] = id;
  messages_.push_back(std::move(message));
  return std::nullopt;
}

// What a tool shows cannot be taken back by the client: an image is named where it stood.
std::optional<ApiError> ResponseConversation::read_output(const Json& output, const std::string& where,
                                                          std::string* text) {
  if (!output.is_array()) return content_text(output, where, {}, text);
  for (size_t i = 0; i < output.size(); ++i) {
    const Json* type = member_of(output[i], "type");
    if (type && (*type == "input_image" || *type == "input_file")) {
      *text += kNotShown;
      skip(type->get<std::string>());
      continue;
    }
    if (auto error = part_text(output[i], cat(where, "[", i, "]"), {"input_text", "output_text", "text"}, text))
      return error;
  }
  return std::nullopt;
}

std::optional<ApiError> resolve_references(Json& items, const FindItem& find_item) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_object() || kind_of_item(items[i]) != "item_reference") continue;
    const std::string where = cat("input[", i, "]");
    std::string id;
    if (auto error = need_string(items[i], "id", where, &id)) return error;
    auto found = find_item ? find_item(id) : std::nullopt;
    if (!found)
      return invalid_value(
          where + ".id", cat(where, ".id: expected an item of a stored response, found none named ", id.substr(0, 64)));
    items[i] = std::move(*found);
  }
  return std::nullopt;
}

}  // namespace wp
