// ResponseConversation: items of the Responses API, as clients and this server write them, brought into the messages of
// a chat. What one turn of the model said in several items (a thought, text, calls) is one assistant message again, so
// that it renders as it was generated. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "serve/api_error.h"

namespace wp {

// "message", "function_call"; an item without a type is a message where it has a role, a reference where it has an id
// alone. Empty: none of these.
std::string kind_of_item(const Json& item);

// The item of a stored answer of this name; nothing: there is none.
using FindItem = std::function<std::optional<Json>(const std::string& id)>;
// Puts in place of each item_reference what it names.
std::optional<ApiError> resolve_references(Json& items, const FindItem& find_item);

class ResponseConversation {
 public:
  // `where`: what a refusal calls the item, "input[3]".
  std::optional<ApiError> add(const Json& item, const std::string& where);

  Json take_messages() { return std::move(messages_); }
  // What was left out, by its kind.
  const std::vector<std::string>& skipped() const { return skipped_; }

 private:
  std::optional<ApiError> add_message(const Json& item, const std::string& where);
  std::optional<ApiError> add_reasoning(const Json& item, const std::string& where);
  std::optional<ApiError> add_call(const Json& item, const std::string& kind, const std::string& where);
  std::optional<ApiError> add_output(const Json& item, const std::string& where);
  std::optional<ApiError> read_output(const Json& output, const std::string& where, std::string* text);
  Json& turn();  // The assistant message under way.
  void skip(const std::string& kind);

  Json messages_ = Json::array();
  bool open_ = false;  // The last message is an assistant's, and may go on.
  bool said_ = false;  // It has text or calls.
  std::vector<std::string> skipped_;
};

// A thought as a client keeps it that must not read it: what comes back is the thought, to the byte.
std::string sealed_thought(const std::string& thought);

}  // namespace wp
