// GenerationRun: one HTTP request's generation from submit to the last choice, whatever the dialect: phases for the
// log, statistics, keep-alive, and every way it can end. A dialect derives from it and says what to send. One
// connection thread.
#pragma once

#include <optional>
#include <vector>

#include "serve/api_sampling.h"
#include "serve/choice_streams.h"
#include "serve/request_log.h"
#include "serve/sse.h"
#include "serve/wire.h"

namespace wp {

struct RunContext {
  const Service& service;
  ServerState& state;
  HttpResponse& response;
  RequestLog& log;
};

class GenerationRun : private ChoiceHandler {
 public:
  // `streamed`: answer by events.
  GenerationRun(const RunContext& context, bool streamed, size_t choices);

  // Everything to the end. False: the client left, or the refusal has been answered; nothing is left to send.
  bool run(std::vector<GenerateRequest> requests);

 protected:
  // What a dialect sends. False: the client is gone.
  virtual bool started(size_t choice, TokenEvent& event) = 0;
  virtual bool progress(size_t choice, const TokenEvent& event) = 0;
  virtual bool token(size_t choice, TokenEvent& event) = 0;
  virtual bool finished(size_t choice, FinishReason reason) = 0;
  // Nothing to send for now: whatever keeps a stream's client waiting.
  virtual bool keep_alive() { return events_.ping_when_due(); }
  // The generation failed: a status, or where the stream has begun what the dialect ends a broken one with.
  virtual void failed(const ApiError& error);

  // This choice has all it wants (a stop string, its one call): its generation ends, `finished` comes with stop.
  void stop_choice(size_t choice);
  bool is_streamed() const { return streamed_; }
  SseWriter& events() { return events_; }
  const RequestStats& stats(size_t choice) const { return stats_[choice]; }
  int64_t elapsed_ns() const { return context_.state.clock.now_ns() - begin_ns_; }
  const RunContext& context() const { return context_; }

 private:
  bool on_event(size_t choice, TokenEvent& event) override;
  bool on_silence() override;
  bool on_finished(size_t choice, TokenEvent& event);

  RunContext context_;
  bool streamed_;
  SseWriter events_;
  int64_t begin_ns_;
  ChoiceStreams streams_;
  std::vector<RequestStats> stats_;
  std::vector<bool> stopped_;
  std::vector<int64_t> last_token_ns_;
  std::optional<ApiError> failure_;
};

// The request without its dialect's parts. Choice `index` of several draws from a seed of its own.
GenerateRequest make_request(const RunContext& context, const HttpRequest& http, const CommonFields& fields,
                             std::vector<TokenId> tokens, uint64_t seed, int64_t index, int64_t count);
// The cache domain of a request: of its salt, and of its key where keys share nothing.
uint64_t cache_domain(const Service& service, const HttpRequest& http, uint64_t salted);
// The request's seed, or one drawn for it.
uint64_t request_seed(const RunContext& context, const CommonFields& fields);
// Whether `prompt_tokens` leave room for what is asked, and how much may be generated.
std::optional<ApiError> fit_context(const Service& service, const CommonFields& fields, int64_t prompt_tokens,
                                    std::string_view param, int64_t* max_tokens);

// The service when inference may begin; else the refusal is answered: loading, or draining.
std::shared_ptr<const Service> require_service(ServerState& state, HttpResponse& response);
// The same for what a draining server still answers.
std::shared_ptr<const Service> loaded_service(ServerState& state, HttpResponse& response);
// The body as JSON; else the refusal is answered.
bool read_json(const HttpRequest& request, HttpResponse& response, Json* body);
// Names unknown members once in the log; refuses a foreign model name where the server is strict.
bool accept_fields(const RunContext& context, const HttpRequest& request, const CommonFields& fields);
// Tokens a choice shows no text for: those that end it, and control tokens that are no markup of thoughts and calls.
bool is_silent(const Service& service, const CommonFields& fields, TokenId token);

}  // namespace wp
