#include "serve/message_blocks.h"

#include <algorithm>

#include "serve/chat_messages.h"

namespace wp {
namespace {

constexpr size_t kNamesMax = 32;

const Json* member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// A member that has to be a string; "" after a refusal.
std::string_view required_string(const Json& object, const char* name, const std::string& where, LoweredMessages* out) {
  const Json* value = member(object, name);
  if (value && value->is_string()) return value->get_ref<const std::string&>();
  out->fail(invalid_type(cat(where, ".", name), "a string", value ? *value : Json()));
  return {};
}

void append(std::string* text, std::string_view more, std::string_view between) {
  if (!text->empty() && !more.empty()) *text += between;
  *text += more;
}

// Documents of plain text are text. Others would have to be looked at.
void append_document(const Json& block, const std::string& where, std::string_view between, std::string* text,
                     LoweredMessages* out) {
  const Json* source = member(block, "source");
  if (!source || !source->is_object())
    return out->fail(invalid_type(where + ".source", "an object", source ? *source : Json()));
  const Json* type = member(*source, "type");
  if (!type || *type != "text")
    return out->fail(unsupported_value(where, cat(where, ".source.type: expected text, found ",
                                                  type ? describe(*type) : "none", " (this model reads text alone)")));
  if (const Json* title = member(block, "title"); title && title->is_string())
    append(text, title->get_ref<const std::string&>(), between);
  append(text, required_string(*source, "data", where + ".source", out), between);
}

void append_blocks(const Json& blocks, const std::string& where, std::string_view between, std::string* text,
                   LoweredMessages* out);

// What a block says as text.
void append_block(const Json& block, const std::string& where, std::string_view between, std::string* text,
                  LoweredMessages* out) {
  if (block.is_string()) return append(text, block.get_ref<const std::string&>(), between);
  if (!block.is_object()) return out->fail(invalid_type(where, "an object", block));
  const std::string type(required_string(block, "type", where, out));
  if (out->error) return;
  if (type == "text") return append(text, required_string(block, "text", where, out), between);
  if (type == "image")
    return out->fail(
        unsupported_value(where, cat(where, ".type: expected text, found an image (this model reads text alone)")));
  if (type == "document") return append_document(block, where, between, text, out);
  if (type == "search_result") {
    for (const char* name : {"title", "source"})
      if (const Json* value = member(block, name); value && value->is_string())
        append(text, value->get_ref<const std::string&>(), between);
    if (const Json* content = member(block, "content"); content && content->is_array())
      append_blocks(*content, where + ".content", between, text, out);
    return;
  }
  out->ignore(cat("content[].type:", type.substr(0, 48)));
}

void append_blocks(const Json& blocks, const std::string& where, std::string_view between, std::string* text,
                   LoweredMessages* out) {
  for (size_t i = 0; i < blocks.size() && !out->error; ++i)
    append_block(blocks[i], cat(where, "[", i, "]"), between, text, out);
}

// The longest-lived cache_control of a block and what it holds; null: none.
Json breakpoint_of(const Json& block) {
  Json found = nullptr;
  int64_t longest_s = 0;
  const auto look = [&](const Json& holder) {
    const int64_t seconds = cache_control_s(holder);
    if (seconds > longest_s) found = holder["cache_control"];
    longest_s = std::max(longest_s, seconds);
  };
  look(block);
  if (block.is_object())
    if (const Json* content = member(block, "content"); content && content->is_array())
      for (const Json& inner : *content) look(inner);
  return found;
}

// One message of the chat in the making.
struct Draft {
  Json message;
  std::string text;
  bool used = false;

  void mark(Json control) {
    if (control.is_null()) return;
    if (cache_control_s(message) < cache_control_s({{"cache_control", control}}))
      message["cache_control"] = std::move(control);
  }
  void finish(LoweredMessages* out) {
    message["content"] = std::move(text);
    out->messages.push_back(std::move(message));
  }
};

void lower_result(const Json& block, const std::string& where, LoweredMessages* out) {
  Draft draft{{{"role", "tool"}}, {}};
  draft.message["tool_call_id"] = std::string(required_string(block, "tool_use_id", where, out));
  if (const Json* content = member(block, "content")) {
    if (content->is_string()) draft.text = content->get_ref<const std::string&>();
    else if (content->is_array()) append_blocks(*content, where + ".content", "\n", &draft.text, out);
    else out->fail(invalid_type(where + ".content", "a string or a list of blocks", *content));
  }
  if (const Json* failed = member(block, "is_error")) {
    if (!failed->is_boolean()) return out->fail(invalid_type(where + ".is_error", "a boolean", *failed));
    if (*failed) draft.text = draft.text.empty() ? "Error" : "Error: " + draft.text;
  }
  draft.mark(breakpoint_of(block));
  draft.finish(out);
}

// A user's text and the results of tools, as messages in their order.
void lower_user(const Json& blocks, const char* role, const std::string& where, LoweredMessages* out) {
  Draft draft{{{"role", role}}, {}};
  for (size_t i = 0; i < blocks.size() && !out->error; ++i) {
    const Json& block = blocks[i];
    const std::string at = cat(where, "[", i, "]");
    if (block.is_object() && block.value("type", Json()) == "tool_result") {
      if (std::exchange(draft.used, false)) {
        draft.finish(out);
        draft = {{{"role", role}}, {}};
      }
      lower_result(block, at, out);
      continue;
    }
    const size_t ignored = out->ignored.size();
    append_block(block, at, "\n", &draft.text, out);
    draft.used |= out->ignored.size() == ignored && !out->error;
    draft.mark(breakpoint_of(block));
  }
  if (draft.used || blocks.empty()) draft.finish(out);
}

void lower_call(const Json& block, const std::string& where, Json* calls, LoweredMessages* out) {
  const std::string id(required_string(block, "id", where, out)), name(required_string(block, "name", where, out));
  const Json* input = member(block, "input");
  if (input && !input->is_object()) return out->fail(invalid_type(where + ".input", "an object", *input));
  calls->push_back({{"id", id},
                    {"type", "function"},
                    {"function", {{"name", name}, {"arguments", input ? *input : Json::object()}}}});
}

// An assistant's text is what it was, without anything between its pieces: so it is found again in the cache.
void lower_assistant(const Json& blocks, const std::string& where, LoweredMessages* out) {
  Draft draft{{{"role", "assistant"}}, {}};
  std::string thoughts;
  Json calls = Json::array();
  for (size_t i = 0; i < blocks.size() && !out->error; ++i) {
    const Json& block = blocks[i];
    const std::string at = cat(where, "[", i, "]");
    const Json type = block.is_object() ? block.value("type", Json()) : Json();
    // Whoever signed it: a thought is text here. A redacted one is not ours, and nothing to read.
    if (type == "thinking") append(&thoughts, required_string(block, "thinking", at, out), "\n\n");
    else if (type == "tool_use") lower_call(block, at, &calls, out);
    else if (type != "redacted_thinking") append_block(block, at, "", &draft.text, out);
    draft.mark(breakpoint_of(block));
  }
  if (!thoughts.empty()) draft.message["reasoning_content"] = std::move(thoughts);
  if (!calls.empty()) draft.message["tool_calls"] = std::move(calls);
  draft.finish(out);
}

}  // namespace

void add_once(std::vector<std::string>* names, std::string name) {
  if (names->size() < kNamesMax && std::find(names->begin(), names->end(), name) == names->end())
    names->push_back(std::move(name));
}

void lower_system(const Json& system, LoweredMessages* out) {
  Draft draft{{{"role", "system"}}, {}};
  if (system.is_string()) {
    draft.text = system.get_ref<const std::string&>();
  } else if (system.is_array()) {
    append_blocks(system, "system", "\n\n", &draft.text, out);
    for (const Json& block : system) draft.mark(breakpoint_of(block));
  } else {
    return out->fail(invalid_type("system", "a string or a list of blocks", system));
  }
  if (!draft.text.empty()) draft.finish(out);
}

void lower_message(const Json& message, size_t index, LoweredMessages* out) {
  const std::string where = cat("messages[", index, "]");
  if (!message.is_object()) return out->fail(invalid_type(where, "an object", message));
  const std::string role(required_string(message, "role", where, out));
  if (out->error) return;
  if (role != "user" && role != "assistant" && role != "system")
    return out->fail(invalid_value(
        where + ".role", cat(where, ".role: expected user, assistant or system, found ", describe(message["role"]))));
  const Json* content = member(message, "content");
  if (content && content->is_string()) {
    out->messages.push_back({{"role", role}, {"content", *content}});
  } else if (!content || !content->is_array()) {
    out->fail(invalid_type(where + ".content", "a string or a list of blocks", content ? *content : Json()));
  } else if (role == "assistant") {
    lower_assistant(*content, where + ".content", out);
  } else {
    lower_user(*content, role.c_str(), where + ".content", out);
  }
}

}  // namespace wp
