#include "serve/api_responses.h"

#include <algorithm>

namespace wp {
namespace {

// Names of a chat body that mean nothing here.
constexpr const char* kChatOnly[] = {
    "messages",   "functions", "function_call",         "max_tokens",       "response_format",
    "n",          "logprobs",  "max_completion_tokens", "reasoning_effort", "stream_options",
    "modalities", "audio",     "add_generation_prompt"};
// Known, and of no effect on this server.
constexpr const char* kNoEffect[] = {"prompt_cache_retention", "prompt_cache_options", "context_management",
                                     "client_metadata",        "moderation",           "background_options",
                                     "access_programs"};

void read_input(FieldReader& reader, ResponsesRequest* out) {
  const Json* input = reader.find("input");
  if (!input) {
    if (out->previous_response_id.empty()) reader.fail(invalid_type("input", "a string or a list of items", Json()));
    return;
  }
  if (input->is_string()) out->items.push_back({{"type", "message"}, {"role", "user"}, {"content", *input}});
  else if (input->is_array()) out->items = *input;
  else reader.fail(invalid_type("input", "a string or a list of items", *input));
}

// OpenAI takes messages here too, as in `input`.
void read_instructions(FieldReader& reader, ResponsesRequest* out) {
  out->instructions = reader.string("instructions", size_t{64} << 20).value_or("");
  out->echo["instructions"] = out->instructions.empty() ? Json(nullptr) : Json(out->instructions);
}

void read_include(FieldReader& reader, ResponsesRequest* out) {
  const Json* include = reader.list("include");
  if (!include) return;
  for (const Json& one : *include) {
    if (!one.is_string()) return reader.fail(invalid_type("include", "a list of strings", one));
    out->encrypted |= one == "reasoning.encrypted_content";
    out->logprobs |= one == "message.output_text.logprobs";
  }
}

void read_reasoning(FieldReader& reader, ResponsesRequest* out) {
  Json effort = nullptr, summary = nullptr;
  if (const Json* given = reader.object("reasoning")) {
    FieldReader nested(*given, "reasoning.");
    if (const Json* value = nested.find("effort")) effort = *value;
    for (const char* name : {"generate_summary", "summary"})
      if (const auto value = nested.string(name)) summary = *value;
    if (nested.error()) return reader.fail(*nested.error());
    if (!summary.is_null() && summary != "auto" && summary != "concise" && summary != "detailed" && summary != "none")
      return reader.fail(
          invalid_value("reasoning.summary",
                        cat("reasoning.summary: expected auto, concise, detailed or none, found ", describe(summary))));
  }
  out->summary = !summary.is_null() && summary != "none";
  if (!effort.is_null()) out->chat["reasoning"] = {{"effort", effort}};
  out->echo["reasoning"] = {{"effort", std::move(effort)}, {"summary", std::move(summary)}};
}

void read_text(FieldReader& reader, ResponsesRequest* out) {
  Json format = {{"type", "text"}};
  Json verbosity = nullptr;
  if (const Json* text = reader.object("text")) {
    FieldReader nested(*text, "text.");
    if (const Json* given = nested.object("format")) format = *given;
    if (const auto given = nested.string("verbosity")) verbosity = *given;
    if (nested.error()) return reader.fail(*nested.error());
    Json lowered = format;
    if (const Json* type = member_of(format, "type"); type && *type == "json_schema") {
      lowered.erase("type");
      lowered = {{"type", "json_schema"}, {"json_schema", std::move(lowered)}};
    }
    out->chat["response_format"] = std::move(lowered);
  }
  out->echo["text"] = {{"format", std::move(format)}};
  if (!verbosity.is_null()) out->echo["text"]["verbosity"] = std::move(verbosity);
}

void read_tools(FieldReader& reader, ResponsesRequest* out) {
  const Json* tools = reader.list("tools");
  if (tools)
    if (auto error = out->tools.read(*tools, &out->skipped)) return reader.fail(std::move(*error));
  const Json* choice = reader.find("tool_choice");
  if (choice) {
    Json lowered;
    if (auto error = out->tools.read_choice(*choice, &lowered)) return reader.fail(std::move(*error));
    out->chat["tool_choice"] = std::move(lowered);
  }
  if (!out->tools.functions().empty()) out->chat["tools"] = out->tools.functions();
  const bool parallel = reader.boolean("parallel_tool_calls").value_or(true);
  out->chat["parallel_tool_calls"] = parallel;
  out->echo["tools"] = tools ? *tools : Json::array();
  out->echo["tool_choice"] = choice ? *choice : Json("auto");
  out->echo["parallel_tool_calls"] = parallel;
}

// What the chat reads under the same name, or under its own.
void read_shared(const Json& body, FieldReader& reader, ResponsesRequest* out) {
  const Json* limit = reader.find("max_output_tokens");
  if (limit) out->chat["max_completion_tokens"] = *limit;
  out->echo["max_output_tokens"] = limit ? *limit : Json(nullptr);
  const Json* top = reader.find("top_logprobs");
  out->logprobs |= top != nullptr && *top != 0;
  if (out->logprobs) out->chat["logprobs"] = true;
  if (top) out->chat["top_logprobs"] = *top;
  out->echo["top_logprobs"] = top ? *top : Json(0);
  if (const Json* options = reader.object("stream_options")) {
    FieldReader nested(*options, "stream_options.");
    nested.boolean("include_obfuscation");
    if (nested.error()) reader.fail(*nested.error());
  }
  // Progress comes with response.in_progress, which is sent in any case.
  if (const auto progress = reader.boolean("return_progress")) out->chat["return_progress"] = *progress;
  reader.integer("max_tool_calls", 0, 1 << 30);  // Of tools that the server runs; it runs none.
  for (const char* name : kNoEffect) reader.find(name);
  for (const std::string& name : reader.unknown()) {
    if (std::find(std::begin(kChatOnly), std::end(kChatOnly), name) != std::end(kChatOnly))
      out->unknown.push_back(name);
    else out->chat[name] = body[name];
  }
}

void read_echo(const Json& body, ResponsesRequest* out) {
  const auto given = [&](const char* name, Json otherwise) {
    const Json* value = member_of(body, name);
    out->echo[name] = value ? *value : std::move(otherwise);
  };
  given("truncation", "disabled");
  given("metadata", Json::object());
  given("user", nullptr);
  given("safety_identifier", nullptr);
  given("prompt_cache_key", nullptr);
  given("max_tool_calls", nullptr);
  given("service_tier", "default");
  out->echo["background"] = false;
  out->echo["store"] = out->store;
  out->echo["previous_response_id"] =
      out->previous_response_id.empty() ? Json(nullptr) : Json(out->previous_response_id);
}

}  // namespace

std::optional<ApiError> parse_responses(const Json& body, ResponsesRequest* out) {
  if (!body.is_object()) return invalid_type("body", "an object", body);
  FieldReader reader(body);
  out->previous_response_id = reader.string("previous_response_id", 1024).value_or("");
  read_input(reader, out);
  read_instructions(reader, out);
  out->store = reader.boolean("store").value_or(true);
  reader.refuse("background", "false", {false});
  reader.refuse("conversation", "none (use previous_response_id)");
  reader.refuse("prompt", "none (stored prompts are not offered)");
  read_include(reader, out);
  read_reasoning(reader, out);
  read_text(reader, out);
  read_tools(reader, out);
  read_shared(body, reader, out);
  read_echo(body, out);
  return reader.error();
}

std::optional<ApiError> lower_responses(ResponsesRequest& request, const std::vector<Json>& history,
                                        const FindItem& find_item, const ParseContext& context, ChatRequest* out) {
  const size_t items_max = static_cast<size_t>(context.limits.messages_max);
  size_t items = request.items.size();
  for (const Json& list : history) items += list.size();
  if (items > items_max)
    return invalid_value("input", cat("input: expected at most ", items_max, " items, found ", items));
  if (auto error = resolve_references(request.items, find_item)) return error;
  ResponseConversation conversation;
  for (const Json& list : history)
    for (const Json& item : list)
      if (auto error = conversation.add(item, "previous_response_id")) return error;
  for (size_t i = 0; i < request.items.size(); ++i)
    if (auto error = conversation.add(request.items[i], cat("input[", i, "]"))) return error;

  Json messages = conversation.take_messages();
  if (!request.instructions.empty())
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", request.instructions}});
  // A probe's fields are checked as anybody's.
  if (request.is_probe()) messages = Json::array({{{"role", "user"}, {"content", ""}}});
  request.skipped.insert(request.skipped.end(), conversation.skipped().begin(), conversation.skipped().end());

  Json chat = std::move(request.chat);
  chat["messages"] = std::move(messages);
  if (auto error = parse_chat(chat, context, out)) return in_responses_words(std::move(*error));
  if (context.strict_api && !request.unknown.empty())
    return invalid_value(request.unknown[0], cat(request.unknown[0], ": expected a known field"));
  out->input_name = "input";
  out->common.unknown.insert(out->common.unknown.end(), request.unknown.begin(), request.unknown.end());
  return std::nullopt;
}

ApiError in_responses_words(ApiError error) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"messages", "input"},
                                                                      {"max_completion_tokens", "max_output_tokens"},
                                                                      {"response_format.json_schema", "text.format"},
                                                                      {"response_format", "text.format"}};
  for (const auto& [chat, here] : kNames) {
    if (error.param.compare(0, chat.size(), chat) != 0) continue;
    error.param.replace(0, chat.size(), here);
    if (error.message.compare(0, chat.size(), chat) == 0) error.message.replace(0, chat.size(), here);
    break;
  }
  return error;
}

}  // namespace wp
