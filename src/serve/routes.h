// Routes: the table of what this server answers, and the way from a request to its handler: checks of Host, Origin,
// key, method and media type first. One handler per route; a handler runs on a connection thread and reaches the engine
// by submit() alone.
#pragma once

#include <string_view>
#include <vector>

#include "serve/http_message.h"
#include "serve/server_state.h"

namespace wp {

// Answers the request, whatever it is. Counts it under its route.
void answer(const HttpRequest& request, HttpResponse& response, ServerState& state);
// Whether the answer is whole, small and made at once, so that it needs no thread of its own.
bool is_quick(const HttpRequest& request);
// The table, for who checks that each row is guarded.
struct RouteName {
  std::string_view path, method;
  bool prefix;
};
std::vector<RouteName> route_names();
// Whether the request may be told more than that the server is there: its key is known, or none is asked for.
bool has_key(const HttpRequest& request, const ServerState& state);
// "r-17".
std::string next_request_id(ServerState& state);

// The handlers.
void chat_completions(const HttpRequest& request, HttpResponse& response, ServerState& state);
void messages(const HttpRequest& request, HttpResponse& response, ServerState& state);
void count_tokens(const HttpRequest& request, HttpResponse& response, ServerState& state);
void completions(const HttpRequest& request, HttpResponse& response, ServerState& state);
void responses(const HttpRequest& request, HttpResponse& response, ServerState& state);
void response_input_tokens(const HttpRequest& request, HttpResponse& response, ServerState& state);
void get_response(const HttpRequest& request, HttpResponse& response, ServerState& state);
void delete_response(const HttpRequest& request, HttpResponse& response, ServerState& state);
void models(const HttpRequest& request, HttpResponse& response, ServerState& state);
void model_by_id(const HttpRequest& request, HttpResponse& response, ServerState& state);
void tokenize(const HttpRequest& request, HttpResponse& response, ServerState& state);
void detokenize(const HttpRequest& request, HttpResponse& response, ServerState& state);
void apply_template(const HttpRequest& request, HttpResponse& response, ServerState& state);
void props(const HttpRequest& request, HttpResponse& response, ServerState& state);
void health(const HttpRequest& request, HttpResponse& response, ServerState& state);
void livez(const HttpRequest& request, HttpResponse& response, ServerState& state);
void readyz(const HttpRequest& request, HttpResponse& response, ServerState& state);
void cache_stats(const HttpRequest& request, HttpResponse& response, ServerState& state);
void cache_flush(const HttpRequest& request, HttpResponse& response, ServerState& state);
void cache_save(const HttpRequest& request, HttpResponse& response, ServerState& state);
void slots(const HttpRequest& request, HttpResponse& response, ServerState& state);
void slot_action(const HttpRequest& request, HttpResponse& response, ServerState& state);
void status(const HttpRequest& request, HttpResponse& response, ServerState& state);
void cache_tree(const HttpRequest& request, HttpResponse& response, ServerState& state);
void page(const HttpRequest& request, HttpResponse& response, ServerState& state);
void metrics(const HttpRequest& request, HttpResponse& response, ServerState& state);

}  // namespace wp
