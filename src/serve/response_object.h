// ResponseObject: the object of the Responses API that says what became of a request, in each of its states; and what
// of it is kept. Made once for a request; one connection thread.
#pragma once

#include <string>

#include "serve/api_responses.h"
#include "serve/http_message.h"
#include "serve/server_state.h"
#include "serve/wire.h"

namespace wp {

class ResponseObject {
 public:
  // All outlive it.
  ResponseObject(const Service& service, const ResponsesRequest& responses, const ChatRequest& chat);

  const std::string& id() const { return id_; }
  Json begun() const;  // in_progress: nothing is known of the output.
  Json failed(const ApiError& error) const;
  // completed, or incomplete where the limit cut it.
  Json ended(Json output, bool cut, const Usage& usage) const;
  // What the store keeps of it. `previous`: the turn that it continues.
  ResponseStore::Entry entry(const Json& ended, ResponseTurn::Ptr previous) const;

 private:
  Json make(const char* status) const;

  const ResponsesRequest& responses_;
  std::string id_;
  Json base_;
};

// Whose responses a request may read: those of its key. Where no key is asked for all are one.
std::string response_domain(const HttpRequest& http, const ServerState& state);

}  // namespace wp
