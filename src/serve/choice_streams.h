// ChoiceStreams: the token streams of one HTTP request, one for each choice, read as one; and the loop around them that
// notices a client that left, a server that is cut, and silence. One connection thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "serve/http_message.h"
#include "serve/server_state.h"

namespace wp {

class ChoiceStreams {
 public:
  // All or none: a refusal drops those that were submitted before it.
  static Result<ChoiceStreams> submit(Engine& engine, std::vector<GenerateRequest> requests);

  size_t live() const { return live_; }
  // The next event of any choice; false when none came in time. Their order within a choice is kept.
  bool next(int64_t timeout_ns, size_t* choice, TokenEvent* event);
  void cancel(size_t choice) { streams_[choice].cancel(); }  // Its `finished` still comes.

 private:
  std::vector<TokenStream> streams_;
  std::vector<bool> ended_;
  size_t live_ = 0, turn_ = 0;
};

enum class Ending : uint8_t { finished, client_gone, cut };

class ChoiceHandler {
 public:
  virtual ~ChoiceHandler() = default;
  virtual bool on_event(size_t choice, TokenEvent& event) = 0;  // False: the client is gone.
  virtual bool on_silence() = 0;                                // Nothing came for a moment. False: the client is gone.
};

// Until every choice has finished, the client has left (seen within 50 ms, streamed or not) or the server is cut.
Ending drive(ChoiceStreams& streams, HttpResponse& response, ServerState& state, ChoiceHandler& handler);

}  // namespace wp
