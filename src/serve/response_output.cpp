#include "serve/response_output.h"

#include "serve/response_items.h"
#include "serve/wire.h"

namespace wp {
namespace {

Json text_part(const std::string& text, Json logprobs) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", std::move(logprobs)}};
}

// The one text of a custom tool's call. A model that wrote other arguments is shown as it wrote them.
std::string custom_input(const std::string& arguments) {
  const auto parsed = parse_json(arguments);
  if (!parsed.ok()) return arguments;
  const Json* input = member_of(*parsed, "input");
  return input && input->is_string() ? input->get<std::string>() : arguments;
}

}  // namespace

Json ResponseOutput::event(const char* type, Json fields) {
  Json made = {{"type", type}, {"sequence_number", sequence_++}};
  for (auto& [name, value] : fields.items()) made[name] = std::move(value);
  return made;
}

void ResponseOutput::emit(const char* type, Json fields) {
  if (rules_.events) events_.push_back(event(type, std::move(fields)));
}

Json ResponseOutput::place() const { return {{"item_id", item_["id"]}, {"output_index", items_.size()}}; }

void ResponseOutput::push(const OutputPiece& piece, const std::string& call_id, Json logprobs) {
  using Kind = OutputPiece::Kind;
  switch (piece.kind) {
    case Kind::reasoning:
      if (open_ != Open::reasoning)
        begin(Open::reasoning, "rs_", {{"type", "reasoning"}, {"summary", Json::array()}, {"status", "in_progress"}});
      if (rules_.summary) delta("response.reasoning_summary_text.delta", piece.text, {{"summary_index", 0}});
      else delta("response.reasoning_text.delta", piece.text, {{"content_index", 0}});
      return;
    case Kind::content:
      if (open_ != Open::message)
        begin(Open::message, "msg_",
              {{"type", "message"}, {"role", "assistant"}, {"status", "in_progress"}, {"content", Json::array()}});
      for (const Json& one : logprobs) logprobs_.push_back(one);
      delta("response.output_text.delta", piece.text, {{"content_index", 0}, {"logprobs", std::move(logprobs)}});
      return;
    case Kind::call_begin: {
      close("completed");
      const ResponseTools::Tool* tool = tools_->find(piece.text);
      const std::string name = tool ? tool->name : piece.text;
      custom_ = tool && tool->custom;
      Json item = {{"type", custom_ ? "custom_tool_call" : "function_call"}, {"call_id", call_id}, {"name", name}};
      if (tool && !tool->name_space.empty()) item["namespace"] = tool->name_space;
      item[custom_ ? "input" : "arguments"] = "";
      item["status"] = "in_progress";
      return begin(Open::call, custom_ ? "ctc_" : "fc_", std::move(item));
    }
    case Kind::call_arguments:
      // A custom tool's input is known when its JSON is complete.
      if (custom_) text_ += piece.text;
      else delta("response.function_call_arguments.delta", piece.text);
      return;
    case Kind::call_end: return close_call(true);
  }
}

void ResponseOutput::begin(Open kind, const char* id_prefix, Json item) {
  close("completed");
  open_ = kind;
  item_ = {{"id", make_id(id_prefix)}};
  for (auto& [name, value] : item.items()) item_[name] = std::move(value);
  emit("response.output_item.added", {{"output_index", items_.size()}, {"item", item_}});
  Json at = place();
  if (kind == Open::message) {
    at["content_index"] = 0;
    at["part"] = text_part("", Json::array());
    emit("response.content_part.added", std::move(at));
  } else if (kind == Open::reasoning && rules_.summary) {
    at["summary_index"] = 0;
    at["part"] = {{"type", "summary_text"}, {"text", ""}};
    emit("response.reasoning_summary_part.added", std::move(at));
  }
}

void ResponseOutput::delta(const char* type, const std::string& text, Json more) {
  text_ += text;
  if (!rules_.events) return;
  Json fields = place();
  if (more.contains("content_index")) fields["content_index"] = more["content_index"];
  if (more.contains("summary_index")) fields["summary_index"] = more["summary_index"];
  fields["delta"] = text;
  if (more.contains("logprobs")) fields["logprobs"] = std::move(more["logprobs"]);
  emit(type, std::move(fields));
}

void ResponseOutput::finish(bool cut) {
  if (open_ == Open::call && cut) open_ = Open::nothing;
  close(cut ? "incomplete" : "completed");
}

void ResponseOutput::close(const char* status) {
  switch (open_) {
    case Open::nothing: return;
    case Open::reasoning: close_reasoning(); break;
    case Open::message: close_message(); break;
    case Open::call: return close_call(false);  // It turned out to be text, which follows.
  }
  done(status);
}

void ResponseOutput::close_reasoning() {
  Json fields = place();
  fields[rules_.summary ? "summary_index" : "content_index"] = 0;
  fields["text"] = text_;
  if (rules_.summary) {
    const Json part = {{"type", "summary_text"}, {"text", text_}};
    emit("response.reasoning_summary_text.done", fields);
    fields.erase("text");
    fields["part"] = part;
    emit("response.reasoning_summary_part.done", std::move(fields));
    item_["summary"].push_back(part);
  } else {
    emit("response.reasoning_text.done", std::move(fields));
    item_["content"] = Json::array({{{"type", "reasoning_text"}, {"text", text_}}});
  }
  if (rules_.encrypted) item_["encrypted_content"] = sealed_thought(text_);
}

void ResponseOutput::close_message() {
  Json fields = place();
  fields["content_index"] = 0;
  fields["text"] = text_;
  fields["logprobs"] = logprobs_;
  emit("response.output_text.done", fields);
  const Json part = text_part(text_, std::move(logprobs_));
  fields.erase("text");
  fields.erase("logprobs");
  fields["part"] = part;
  emit("response.content_part.done", std::move(fields));
  item_["content"].push_back(part);
  logprobs_ = Json::array();
}

void ResponseOutput::close_call(bool complete) {
  const char* name = custom_ ? "input" : "arguments";
  const std::string text = custom_ ? custom_input(text_) : text_;
  Json fields = place();
  if (custom_) {
    fields["delta"] = text;
    emit("response.custom_tool_call_input.delta", fields);
    fields.erase("delta");
  }
  fields[name] = text;
  emit(custom_ ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done", std::move(fields));
  item_[name] = text;
  done(complete ? "completed" : "incomplete");
}

void ResponseOutput::done(const char* status) {
  item_["status"] = status;
  emit("response.output_item.done", {{"output_index", items_.size()}, {"item", item_}});
  items_.push_back(std::move(item_));
  item_ = nullptr;
  text_.clear();
  open_ = Open::nothing;
  custom_ = false;
}

}  // namespace wp
