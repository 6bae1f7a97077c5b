// QwenXmlCall: one tool call in the Qwen XML form, parsed as it is generated: the name first, then the arguments as
// JSON text, piece by piece. What comes out, joined, does not depend on how the text was cut. One owner.
//
//   <tool_call>
//   <function=NAME>
//   <parameter=KEY>
//   VALUE
//   </parameter>
//   </function>
//   </tool_call>
//
// Values are not escaped: a value may hold closing tags. A </parameter> closes it only if a new parameter, the end of
// the function, or one stray </parameter> before either of them follows (A5, A8).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/tool_schema.h"

namespace wp {

// What a choice's text turned out to be.
struct OutputPiece {
  enum class Kind : uint8_t { reasoning, content, call_begin, call_arguments, call_end };
  Kind kind = Kind::content;
  std::string text;  // reasoning, content, arguments; call_begin: the function's name.
  int call = -1;     // call_*: index of the call, from 0.
};

class QwenXmlCall {
 public:
  // `index`: of this call. `repairs` receives a word for each deviation that was put up with.
  QwenXmlCall(const ToolSchemas& schemas, int index, std::vector<std::string>& repairs)
      : schemas_(&schemas), index_(index), repairs_(&repairs) {}

  enum class State : uint8_t { more, done, not_a_call };
  // Text behind "<tool_call>". After `done`, rest() is what follows </function>; after `not_a_call`, raw() is text.
  State push(std::string_view text, std::vector<OutputPiece>* out);
  // The model ended its answer here by itself: done if nothing but closing tags is missing, else more.
  State finish(std::vector<OutputPiece>* out);

  const std::string& raw() const { return raw_; }  // All that was pushed.
  std::string_view rest() const { return std::string_view(raw_).substr(at_); }
  bool begun() const { return begun_; }  // call_begin was put out.

 private:
  enum class Phase : uint8_t { open, name, between, key, value, done, not_a_call };
  enum class Close : uint8_t { yes, stray, no, open };  // open: more text will tell.

  bool step(std::vector<OutputPiece>* out);  // False: needs more text.
  bool step_open();
  bool step_name(std::vector<OutputPiece>* out);
  bool step_between(std::vector<OutputPiece>* out);
  bool step_key(std::vector<OutputPiece>* out);
  bool step_value(std::vector<OutputPiece>* out);

  Close classify(size_t at) const;                      // A "</parameter>" at `at` of raw_.
  Close follower(size_t at, bool stray_allowed) const;  // What stands behind it.
  bool ends_answer(size_t at) const;  // Nothing but space and "</tool_call>", perhaps cut, from `at` on.
  void take_value(size_t end, bool last, std::vector<OutputPiece>* out);
  void close_value(size_t end, std::vector<OutputPiece>* out);
  void close_call(std::vector<OutputPiece>* out);
  void put(std::string_view json, std::vector<OutputPiece>* out);
  void repair(const char* kind) { repairs_->push_back(kind); }
  size_t skip_space(size_t at) const;

  const ToolSchemas* schemas_;
  int index_;
  std::vector<std::string>* repairs_;
  Phase phase_ = Phase::open;
  std::string raw_;
  size_t at_ = 0;    // Consumed so far.
  size_t scan_ = 0;  // In a value: no close begins before.
  bool begun_ = false, string_ = true, first_newline_ = false, junk_ = false;
  std::string name_, value_;  // value_: raw text of a parameter that is no string.
  std::vector<std::string> keys_;
};

// `text` as the inside of a JSON string.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace wp
