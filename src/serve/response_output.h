// ResponseOutput: the items of one response, and the events that tell of them (spec/api.md 8), as the model's output
// comes in pieces: an item is added, its parts follow as deltas, it is done. Sequence numbers rise by one over all
// events of a stream, those that others make included. One connection thread.
#pragma once

#include <string>
#include <vector>

#include "serve/response_tools.h"
#include "serve/tool_call_parser.h"

namespace wp {

struct ResponseOutputRules {
  bool events = true;      // Else only the items are made.
  bool summary = false;    // Thoughts are shown as their summary.
  bool encrypted = false;  // A thought's item carries encrypted_content too.
};

class ResponseOutput {
 public:
  // `tools` outlive it.
  ResponseOutput(const ResponseTools& tools, const ResponseOutputRules& rules) : tools_(&tools), rules_(rules) {}

  // `call_id`: of the call that the piece belongs to. `logprobs`: of the piece, where it is content; else empty.
  void push(const OutputPiece& piece, const std::string& call_id, Json logprobs);
  // The end. `cut`: by a limit; a call that was not complete is no item then (A10).
  void finish(bool cut);

  // An event of this stream with its number; `fields` follow type and number.
  Json event(const char* type, Json fields);
  std::vector<Json> take_events() { return std::move(events_); }
  const Json& items() const { return items_; }  // Those that are done.

 private:
  enum class Open : uint8_t { nothing, reasoning, message, call };

  void begin(Open kind, const char* id_prefix, Json item);
  void delta(const char* type, const std::string& text, Json more = Json::object());
  void close(const char* status);
  void close_reasoning();
  void close_message();
  void close_call(bool complete);
  void done(const char* status);
  void emit(const char* type, Json fields);
  Json place() const;  // item_id and output_index.

  const ResponseTools* tools_;
  ResponseOutputRules rules_;
  Json items_ = Json::array();
  std::vector<Json> events_;
  int64_t sequence_ = 0;
  Open open_ = Open::nothing;
  Json item_;                      // The one under way.
  std::string text_;               // Its text, or its arguments.
  Json logprobs_ = Json::array();  // Of its text.
  bool custom_ = false;
};

}  // namespace wp
