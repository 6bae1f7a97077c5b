// One turn of a conversation, whatever the dialect: from a parsed ChatRequest to the prompt, the engine's requests, the
// run, and what the turn leaves for the next one. A dialect parses its own body, derives its run from ChatRun and says
// what is sent. One connection thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "serve/chat_choice.h"
#include "serve/generation_run.h"

namespace wp {

// The generation of a chat request: its choices and what is counted of them. A dialect says what is sent.
class ChatRun : public GenerationRun {
 public:
  // `request` outlives the run.
  ChatRun(const RunContext& run_context, const ChatRequest& request, const OutputRules& rules);
  virtual ~ChatRun() = default;

  // After run(): logs and counts how the choices ended, and sends the answer, or its end.
  void answer();

  const RequestStats& first_stats() const { return stats(0); }
  Json first_message() const { return choices_[0].message(); }  // In the internal form, which is OpenAI's.
  bool called() const;                                          // Some choice ended in a call.

 protected:
  // What a choice said, streamed or not, before it is sent.
  virtual void said(size_t, const std::vector<OutputPiece>&) {}
  // What a dialect sends. False: the client is gone. The first four only where the answer is streamed.
  virtual bool send_start(size_t choice) = 0;
  virtual bool send_progress(size_t choice, const TokenEvent& event) = 0;
  virtual bool send_pieces(size_t choice, std::vector<OutputPiece>& pieces) = 0;
  virtual bool send_finish(size_t choice) = 0;
  virtual bool send_end() = 0;  // All choices have finished.
  virtual void send_whole() = 0;

  const ChatRequest& request() const { return request_; }
  ChatChoice& choice(size_t index) { return choices_[index]; }
  const ChatChoice& choice(size_t index) const { return choices_[index]; }
  size_t choices() const { return choices_.size(); }
  Usage usage() const;  // Of all choices.

 private:
  bool started(size_t index, TokenEvent& event) override;
  bool progress(size_t index, const TokenEvent& event) override;
  bool token(size_t index, TokenEvent& event) override;
  bool finished(size_t index, FinishReason reason) override;
  bool send(size_t index, std::vector<OutputPiece>& pieces);

  const ChatRequest& request_;
  ToolSchemas schemas_;
  std::vector<ChatChoice> choices_;
};

// Makes the dialect's run once the prompt is known.
using MakeChatRun = std::function<std::unique_ptr<ChatRun>(const ChatPrompt& prompt, const OutputRules& rules)>;

// Everything after parsing, to the last byte of the answer and beyond it: a conversation that called a tool is held,
// the finished turn is left to be consolidated.
void chat_turn(const RunContext& context, const HttpRequest& http, ChatRequest& request, const MakeChatRun& make_run);

}  // namespace wp
