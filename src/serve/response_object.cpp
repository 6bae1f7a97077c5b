#include "serve/response_object.h"

#include "core/log.h"

namespace wp {
namespace {

// As it was written, or the server's own in the fewest digits that mean it.
Json shown(float value) { return Json::parse(fmt::format("{}", value), nullptr, false); }

// Items as they are listed: each with a type and an id, a message's content as parts.
Json listed(const Json& items) {
  Json list = Json::array();
  for (const Json& item : items) {
    const std::string kind = kind_of_item(item);
    Json made = {{"id", nullptr}, {"type", kind}};
    for (const auto& [name, value] : item.items()) made[name] = value;
    if (!member_of(made, "id")) made["id"] = make_id(kind == "message" ? "msg_" : "item_");
    if (kind == "message") {
      if (Json& content = made["content"]; content.is_string()) {
        const char* type = made["role"] == "assistant" ? "output_text" : "input_text";
        content = Json::array({{{"type", type}, {"text", std::string(content)}}});
      }
      if (!member_of(made, "status")) made["status"] = "completed";
    }
    list.push_back(std::move(made));
  }
  return list;
}

}  // namespace

std::string response_domain(const HttpRequest& http, const ServerState& state) {
  return state.options.api_keys.empty() ? "" : std::string(http.key());
}

ResponseObject::ResponseObject(const Service& service, const ResponsesRequest& responses, const ChatRequest& chat)
    : responses_(responses), id_(make_id("resp_")) {
  base_ = {{"id", id_},
           {"object", "response"},
           {"created_at", unix_time_s()},
           {"status", nullptr},
           {"completed_at", nullptr},
           {"error", nullptr},
           {"incomplete_details", nullptr},
           {"model", service.model_name},
           {"output", Json::array()},
           {"usage", nullptr},
           {"temperature", shown(chat.common.sampling.temperature)},
           {"top_p", shown(chat.common.sampling.top_p)}};
  for (const auto& [name, value] : responses.echo.items()) base_[name] = value;
}

Json ResponseObject::make(const char* status) const {
  Json made = base_;
  made["status"] = status;
  return made;
}

Json ResponseObject::begun() const { return make("in_progress"); }

Json ResponseObject::failed(const ApiError& error) const {
  Json made = make("failed");
  made["error"] = {{"code", "server_error"}, {"message", error.message}};
  return made;
}

Json ResponseObject::ended(Json output, bool cut, const Usage& usage) const {
  Json made = make(cut ? "incomplete" : "completed");
  if (cut) made["incomplete_details"] = {{"reason", "max_output_tokens"}};
  else made["completed_at"] = unix_time_s();
  made["output"] = std::move(output);
  made["usage"] = {{"input_tokens", usage.prompt_tokens},
                   {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                   {"output_tokens", usage.completion_tokens},
                   {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
                   {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  return made;
}

ResponseStore::Entry ResponseObject::entry(const Json& ended, ResponseTurn::Ptr previous) const {
  ResponseStore::Entry made{.id = id_,
                            .body = dump_json(ended),
                            .input = dump_json(listed(responses_.items)),
                            .output = dump_json(ended["output"]),
                            .item_ids = {},
                            .previous = std::move(previous)};
  for (const Json& item : ended["output"]) made.item_ids.push_back(item["id"]);
  return made;
}

}  // namespace wp
