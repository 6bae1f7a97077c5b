// Recorded conversations, one JSON object a line: what was said, and what the model should say at each of its turns.
// Plain values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"

namespace wp::measure {

struct ExpectedTurn {
  int64_t message_index = 0;  // Of the assistant message in `messages`; the prompt is what stands before it.
  std::string text;           // To the end mark, as the model should generate it; empty: not known.
  std::string content;
};

struct Conversation {
  std::string id;
  Json tools;     // An array, or null.
  Json messages;  // OpenAI's form.
  Json template_arguments;
  std::vector<ExpectedTurn> turns;

  // The chat template's variables for the prompt of a turn.
  Json template_variables(const ExpectedTurn& turn) const;
  // The same as a body for /v1/chat/completions, without sampling fields.
  Json request_body(const ExpectedTurn& turn) const;
};

// One line. Without `expected` every assistant message is a turn whose text is not known.
Result<Conversation> parse_conversation(std::string_view line);
// A file of them; an error names the line.
Result<std::vector<Conversation>> read_conversations(const std::string& path);

}  // namespace wp::measure
