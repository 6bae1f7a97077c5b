#include "measure/conversation.h"

#include "measure/reference.h"

namespace wp::measure {
namespace {

Json messages_before(const Json& messages, int64_t index) {
  Json out = Json::array();
  for (int64_t i = 0; i < index; ++i) out.push_back(messages[static_cast<size_t>(i)]);
  return out;
}

Error expected(std::string_view what) { return {ErrorCode::bad_request, cat("expected ", what, ", found none")}; }

std::string text_member(const Json& object, const char* name) {
  return object.contains(name) && object[name].is_string() ? object[name].get<std::string>() : "";
}

}  // namespace

Json Conversation::template_variables(const ExpectedTurn& turn) const {
  Json variables = template_arguments.is_object() ? template_arguments : Json::object();
  variables["messages"] = messages_before(messages, turn.message_index);
  if (tools.is_array() && !tools.empty()) variables["tools"] = tools;
  variables["add_generation_prompt"] = true;
  return variables;
}

Json Conversation::request_body(const ExpectedTurn& turn) const {
  Json body = Json::object();
  body["messages"] = messages_before(messages, turn.message_index);
  if (tools.is_array() && !tools.empty()) body["tools"] = tools;
  if (template_arguments.is_object() && !template_arguments.empty()) body["chat_template_kwargs"] = template_arguments;
  return body;
}

Result<Conversation> parse_conversation(std::string_view line) {
  WP_TRY(const Json record, parse_json(line));
  if (!record.is_object()) return expected("an object");
  Conversation made;
  made.id = text_member(record, "id");
  if (made.id.empty()) return expected("an id");
  if (!record.contains("messages") || !record["messages"].is_array()) return expected("a list of messages");
  made.messages = record["messages"];
  for (const Json& message : made.messages)
    if (!message.is_object()) return expected("messages that are objects");
  if (record.contains("tools")) made.tools = record["tools"];
  if (!made.tools.is_null() && !made.tools.is_array()) return expected("a list of tools");
  if (record.contains("chat_template_kwargs")) made.template_arguments = record["chat_template_kwargs"];
  if (!made.template_arguments.is_null() && !made.template_arguments.is_object())
    return expected("chat_template_kwargs that are an object");
  const int64_t count = static_cast<int64_t>(made.messages.size());
  if (!record.contains("expected")) {
    for (int64_t i = 1; i < count; ++i)
      if (text_member(made.messages[i], "role") == "assistant") made.turns.push_back({.message_index = i});
    return made;
  }
  if (!record["expected"].is_array()) return expected("a list of expected turns");
  int64_t before = 0;
  for (const Json& turn : record["expected"]) {
    if (!turn.is_object() || !turn.contains("index") || !turn["index"].is_number_integer())
      return expected("an index in each expected turn");
    const int64_t index = turn["index"].get<int64_t>();
    if (index <= before - (before == 0) || index < 1 || index >= count)
      return Error{ErrorCode::bad_request, cat("expected turn indices that ascend below ", count, ", found ", index)};
    before = index;
    made.turns.push_back(
        {.message_index = index, .text = text_member(turn, "text"), .content = text_member(turn, "content")});
  }
  return made;
}

Result<std::vector<Conversation>> read_conversations(const std::string& path) {
  WP_TRY(const std::string text, read_text_file(path));
  std::vector<Conversation> conversations;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto conversation = parse_conversation(line);
    if (!conversation.ok()) return std::move(conversation).error().within(cat(path, ":", number));
    conversations.push_back(std::move(*conversation));
  }
  if (conversations.empty()) return Error{ErrorCode::bad_request, cat(path, ": expected conversations, found none")};
  return conversations;
}

}  // namespace wp::measure
