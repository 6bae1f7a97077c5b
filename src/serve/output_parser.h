// OutputParser: splits what a model generates into reasoning, content and tool calls as it comes (spec/api.md 2, 12 A).
// What comes out, joined, does not depend on how the text was cut. Fails soft: what is no call stays text. One owner.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/tool_call_parser.h"

namespace wp {

struct OutputRules {
  enum class Start : uint8_t {
    answer,    // The prompt has closed its thought, or the model does not think.
    thinking,  // The prompt ends inside <think>.
    either     // The prompt says nothing: an answer, unless it begins with <think>.
  };
  Start start = Start::answer;
  bool tools = false;  // Else <tool_call> is text like any other.
  bool call_in_thinking = true;
};

class OutputParser {
 public:
  // `schemas` outlives the parser.
  OutputParser(const OutputRules& rules, const ToolSchemas& schemas) : rules_(rules), schemas_(&schemas) {
    phase_ = rules.start == OutputRules::Start::thinking ? Phase::thinking
             : rules.start == OutputRules::Start::either ? Phase::opening
                                                         : Phase::answer;
    trim_ = phase_ == Phase::thinking;
  }

  void push(std::string_view text, std::vector<OutputPiece>* out);
  // The end. `complete`: the model ended by itself, so that a call which lacks closing tags only is a call, and one
  // that lacks more is text; else (cut by a limit) an unfinished call is dropped.
  void finish(bool complete, std::vector<OutputPiece>* out);

  bool in_reasoning() const { return phase_ == Phase::thinking || phase_ == Phase::call_in_thought; }
  int calls() const { return calls_; }  // Complete ones.
  const std::vector<std::string>& repairs() const { return repairs_; }

 private:
  enum class Phase : uint8_t { opening, thinking, call_in_thought, answer, call, call_tail };

  bool step(std::vector<OutputPiece>* out);  // False: needs more text.
  bool step_opening();
  bool step_thinking(std::vector<OutputPiece>* out);
  bool step_call_in_thought(std::vector<OutputPiece>* out);
  bool step_answer(std::vector<OutputPiece>* out);
  bool step_call(std::vector<OutputPiece>* out);
  bool step_call_tail();
  void begin_answer();
  void end_call();
  void put_text(OutputPiece::Kind kind, std::string_view text, std::vector<OutputPiece>* out);

  OutputRules rules_;
  const ToolSchemas* schemas_;
  Phase phase_;
  std::string pending_;        // Not understood yet.
  std::string held_;           // White space that is text only if text follows.
  bool trim_ = false;          // Nothing of this reasoning, or of the content, yet: leading newlines are dropped.
  bool content_ = false;       // Content was put out.
  bool thought_open_ = false;  // A call ended the thought; its </think> may still come.
  size_t fed_ = 0;             // call_in_thought: bytes of pending_ that the call has read.
  int attempts_ = 0;           // Calls tried inside the thought.
  std::unique_ptr<QwenXmlCall> call_;
  std::vector<OutputPiece> call_pieces_;  // call_in_thought: held until the call is complete.
  std::vector<std::string> call_repairs_;
  int calls_ = 0;
  std::vector<std::string> repairs_;
};

}  // namespace wp
