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

// The item of a stored answer that an item_reference names; nothing: there is none.
using FindItem = std::function<std::optional<Json>(const std::string& id)>;

class ResponseConversation {
 public:
  explicit ResponseConversation(FindItem find_item = {}) : find_item_(std::move(find_item)) {}

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
  std::optional<ApiError> add_reference(const Json& item, const std::string& where);
  std::optional<ApiError> read_output(const Json& output, const std::string& where, std::string* text);
  Json& turn();  // The assistant message under way.
  void skip(const std::string& kind);

  FindItem find_item_;
  Json messages_ = Json::array();
  bool open_ = false;  // The last message is an assistant's, and may go on.
  bool said_ = false;  // It has text or calls.
  std::vector<std::string> skipped_;
};

// A thought as a client keeps it that must not read it: what comes back is the thought, to the byte.
std::string sealed_thought(const std::string& thought);

}  // namespace wp
