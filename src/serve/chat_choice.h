// ChatChoice: one choice of a chat completion: tokens in, pieces of reasoning, content and calls out, and at the end
// the message as a whole. What is streamed, joined, is what is not streamed. One connection thread.
#pragma once

#include <string>
#include <vector>

#include "serve/api_chat.h"
#include "serve/output_parser.h"
#include "serve/service.h"
#include "serve/wire.h"
#include "text/detokenizer.h"

namespace wp {

// What a choice holds, in the order in which it came: a stretch of reasoning, a stretch of content, or a call.
struct ChatPart {
  OutputPiece::Kind kind = OutputPiece::Kind::content;  // reasoning, content or call_begin.
  std::string text;                                     // A call's: its arguments.
  std::string call_id, name;
  bool complete = true;  // False: a call that a limit has cut, or that is still coming.
};

class ChatChoice {
 public:
  // All outlive the choice.
  ChatChoice(const Service& service, const ChatRequest& request, const OutputRules& rules, const ToolSchemas& schemas);

  // True: this choice has what it wants and its generation may end.
  bool push(const TokenEvent& event, std::vector<OutputPiece>* out);
  // `generated`: by the engine, the token that ended it included, which is no event.
  void finish(FinishReason reason, int64_t generated, std::vector<OutputPiece>* out);

  const char* finish_reason() const { return finish_reason_; }
  const std::string& call_id(int call) const { return parts_[calls_[static_cast<size_t>(call)]].call_id; }
  const std::vector<ChatPart>& parts() const { return parts_; }
  const std::string& stop_string() const { return detokenizer_.stop(); }  // Which ended it; empty: none.
  Json message() const;
  Json take_new_logprobs();  // Since the last call; a list.
  Json all_logprobs() const { return logprobs_; }
  int64_t tokens() const { return tokens_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  const std::vector<std::string>& repairs() const { return parser_.repairs(); }

 private:
  ChatPart& call(const OutputPiece& piece) { return parts_[calls_[static_cast<size_t>(piece.call)]]; }
  void collect(const std::vector<OutputPiece>& pieces, size_t from);

  const Service& service_;
  const ChatRequest& request_;
  Detokenizer detokenizer_;
  OutputParser parser_;
  bool ended_ = false;
  int64_t tokens_ = 0, reasoning_tokens_ = 0;
  std::vector<ChatPart> parts_;
  std::vector<size_t> calls_;  // Which parts are calls.
  Json logprobs_ = Json::array();
  size_t logprobs_taken_ = 0;
  const char* finish_reason_ = "stop";
};

// Where the rendered prompt leaves the model: inside a thought, behind one, or neither.
OutputRules::Start start_of(std::string_view prompt);

}  // namespace wp
