#include "serve/routes.h"

#include <algorithm>
#include <iterator>

#include "core/log.h"
#include "serve/http_target.h"

namespace wp {
namespace {

using Handler = void (*)(const HttpRequest&, HttpResponse&, ServerState&);

struct Route {
  std::string_view path;
  std::string_view method;  // GET takes HEAD too.
  const char* name;         // In metrics and logs.
  Handler handler;
  bool open = false;    // No key is asked for.
  bool prefix = false;  // Everything below the path.
  bool waits = false;   // For the engine, or works long: not on the I/O thread. Every POST does.
};

constexpr Route kRoutes[] = {
    {"/v1/chat/completions", "POST", "chat", chat_completions},
    {"/v1/completions", "POST", "completions", completions},
    {"/v1/responses", "POST", "responses", responses},
    {"/v1/responses/input_tokens", "POST", "responses-input-tokens", response_input_tokens},
    {"/v1/responses/", "GET", "responses-get", get_response, false, true, true},
    {"/v1/responses/", "DELETE", "responses-delete", delete_response, false, true},
    {"/v1/messages", "POST", "messages", messages},
    {"/v1/messages/count_tokens", "POST", "count-tokens", count_tokens},
    {"/v1/models", "GET", "models", models},
    {"/v1/models/", "GET", "models", model_by_id, false, true},
    {"/models", "GET", "models", models},
    {"/props", "GET", "props", props},
    {"/health", "GET", "health", health, true},
    {"/livez", "GET", "livez", livez, true},
    {"/readyz", "GET", "readyz", readyz, true},
    {"/metrics", "GET", "metrics", metrics},
    {"/status", "GET", "status", status},
    {"/cache", "GET", "cache", cache_stats},
    {"/cache/tree", "GET", "cache-tree", cache_tree, false, false, true},
    {"/cache/flush", "POST", "cache-flush", cache_flush},
    {"/cache/save", "POST", "cache-save", cache_save},
    {"/slots", "GET", "slots", slots},
    {"/slots/", "POST", "slot-action", slot_action, false, true},
    {"/tokenize", "POST", "tokenize", tokenize},
    {"/detokenize", "POST", "detokenize", detokenize},
    {"/apply-template", "POST", "apply-template", apply_template},
    {"/", "GET", "page", page, true},
};

// Known elsewhere, not offered here; a path below one of them is the same.
constexpr std::string_view kKnownElsewhere[] = {"/v1/responses/compact",
                                                "/v1/embeddings",
                                                "/v1/rerank",
                                                "/v1/score",
                                                "/v1/moderations",
                                                "/v1/audio",
                                                "/v1/images",
                                                "/v1/files",
                                                "/v1/uploads",
                                                "/v1/batches",
                                                "/v1/fine_tuning",
                                                "/v1/assistants",
                                                "/v1/threads",
                                                "/v1/realtime",
                                                "/v1/vector_stores",
                                                "/v1/evals",
                                                "/v1/containers",
                                                "/v1/videos",
                                                "/v1/conversations",
                                                "/v1/organization",
                                                "/infill",
                                                "/embedding",
                                                "/embeddings",
                                                "/completion",
                                                "/rerank",
                                                "/lora-adapters"};

bool below(std::string_view path, std::string_view parent) {
  return path.substr(0, parent.size()) == parent && (path.size() == parent.size() || path[parent.size()] == '/');
}

bool leads_to(const Route& route, std::string_view path) {
  if (!route.prefix) return path == route.path;
  return path.size() > route.path.size() && path.substr(0, route.path.size()) == route.path;
}

bool takes(const Route& route, std::string_view method) {
  return method == route.method || (method == "HEAD" && route.method == "GET");
}

// The first that leads to the path, or the one of several that takes the method.
const Route* find_route(std::string_view path, std::string_view method) {
  const Route* found = nullptr;
  for (const Route& route : kRoutes) {
    if (!leads_to(route, path) || (found && route.path != found->path)) continue;
    if (takes(route, method)) return &route;
    if (!found) found = &route;
  }
  return found;
}

ApiError forbidden(const char* code, std::string message) {
  return {.status = 403, .type = "permission_error", .code = code, .message = std::move(message)};
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned char differs = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    differs |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  return differs == 0;
}

bool holds(const std::vector<std::string>& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// A browser that was led here by a foreign page sends that page's name, or its own name for this address.
std::optional<ApiError> check_origin(const HttpRequest& request, const ServerState& state) {
  const ServerOptions& options = state.options;
  const std::string_view host_header = request.header("host");
  if (request.http11 && host_header.empty()) return invalid_value("host", "host: expected a Host header, found none");
  const std::string host = host_of(host_header);
  if (options.api_keys.empty() && state.loopback && !host.empty() && !is_loopback_name(host) && host != options.host &&
      !holds(options.allowed_hosts, host))
    return forbidden("forbidden_host", cat("host: expected a loopback name, found ", host.substr(0, 64)));
  const std::string_view origin = request.header("origin");
  if (origin.empty() || holds(options.allowed_origins, origin)) return std::nullopt;
  const size_t scheme = origin.find("://");
  if (scheme != std::string_view::npos && !host_header.empty() && origin.substr(scheme + 3) == host_header)
    return std::nullopt;  // Our own page.
  return forbidden("forbidden_origin", cat("origin: expected this server's own, found ", origin.substr(0, 64)));
}

std::optional<ApiError> check_key(const HttpRequest& request, const ServerState& state) {
  if (state.options.api_keys.empty()) return std::nullopt;
  const std::string_view given = request.key();
  bool known = false;
  for (const std::string& key : state.options.api_keys) known |= equal_in_constant_time(given, key);
  if (known) return std::nullopt;
  return ApiError{.status = 401,
                  .type = "invalid_request_error",
                  .code = "invalid_api_key",
                  .message = cat("authorization: expected a known key, found ", given.empty() ? "none" : "another")};
}

// A form or a plain text is what a foreign page can make a browser send unasked. A form's type, or none, is let through
// where no browser is: `curl -d` sends it, and browsers name the page's origin with every POST.
std::optional<ApiError> check_media_type(const HttpRequest& request) {
  std::string type(request.header("content-type").substr(0, request.header("content-type").find(';')));
  for (char& c : type)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  const bool no_browser = request.header("origin").empty();
  if (no_browser && (type.empty() || type == "application/x-www-form-urlencoded")) return std::nullopt;
  if (type == "application/json" || (type.size() > 5 && type.substr(type.size() - 5) == "+json")) return std::nullopt;
  return ApiError{.status = 415,
                  .type = "invalid_request_error",
                  .code = "unsupported_media_type",
                  .message = cat("content-type: expected application/json, found ",
                                 type.empty() ? "none" : std::string_view(type).substr(0, 64))};
}

std::string allowed_methods(const Route& route) {
  std::string methods;
  for (const Route& one : kRoutes)
    if (one.path == route.path) methods += cat(one.method, one.method == "GET" ? ", HEAD, " : ", ");
  return methods + "OPTIONS";
}

void add_cors(const HttpRequest& request, HttpResponse& response, const ServerState& state) {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !holds(state.options.allowed_origins, origin)) return;
  response.add_header("access-control-allow-origin", origin);
  response.add_header("vary", "origin");
  if (request.method != "OPTIONS") return;
  response.add_header("access-control-allow-methods", "GET, POST, DELETE, OPTIONS");
  response.add_header("access-control-allow-headers", "authorization, content-type, x-session-id");
}

// What keeps a request from its handler; nothing when it may go on to `*route`.
std::optional<ApiError> refuse(const HttpRequest& request, const ServerState& state, const Route** route) {
  if (auto error = check_origin(request, state)) return error;
  *route = find_route(request.path, request.method);
  const bool preflight = request.method == "OPTIONS";
  if (!preflight && !(*route && (*route)->open))
    if (auto error = check_key(request, state)) return error;
  if (preflight && (*route || request.path == "*")) return std::nullopt;
  if (!*route || !takes(**route, request.method))
    for (const std::string_view known : kKnownElsewhere)
      if (below(request.path, known)) return not_implemented(known);
  if (!*route) {
    return not_found(cat("path: expected a known route, found ", request.path.substr(0, 64)));
  }
  if (!takes(**route, request.method))
    return method_not_allowed(request.method.substr(0, 16), allowed_methods(**route));
  if ((*route)->method == "POST") return check_media_type(request);
  return std::nullopt;
}

}  // namespace

std::vector<RouteName> route_names() {
  std::vector<RouteName> names;
  for (const Route& route : kRoutes) names.push_back({route.path, route.method, route.prefix});
  return names;
}

bool has_key(const HttpRequest& request, const ServerState& state) { return !check_key(request, state); }

std::string next_request_id(ServerState& state) { return cat("r-", ++state.requests); }

bool is_quick(const HttpRequest& request) {
  const Route* route = find_route(request.path, request.method);
  return request.method != "POST" && !(route && route->waits);
}

void answer(const HttpRequest& request, HttpResponse& response, ServerState& state) {
  const Route* route = nullptr;
  if (const auto error = refuse(request, state, &route)) {
    log_debug("http_refused", {{"id", request.id}, {"status", error->status}, {"code", error->code}});
    response.fail(*error);
    state.metrics.count_http(route ? route->name : "none", error->status);
    return;
  }
  add_cors(request, response, state);
  if (request.method == "OPTIONS") {
    response.add_header("allow", route ? allowed_methods(*route) : "GET, HEAD, POST, OPTIONS");
    response.send(204, "", "");
    state.metrics.count_http(route ? route->name : "none", 204);
    return;
  }
  route->handler(request, response, state);
  // A handler that met a client which had left may have said nothing.
  if (!response.answered()) response.close();
  if (route->method != "POST") state.metrics.count_http(route->name, response.status());  // Others count themselves.
}

}  // namespace wp
