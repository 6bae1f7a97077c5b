// GET and DELETE /v1/responses/{id}, GET /v1/responses/{id}/input_items: what the store still has.
#include <algorithm>
#include <charconv>

#include "serve/response_object.h"
#include "serve/routes.h"

namespace wp {
namespace {

constexpr std::string_view kBase = "/v1/responses/";
constexpr std::string_view kInputItems = "/input_items";
constexpr int64_t kListMax = 100, kListUsual = 20;

ApiError no_response(std::string_view id) {
  return not_found(cat("response: expected a stored one of this key, found none named ", id.substr(0, 64)));
}

std::string_view id_in(const HttpRequest& http) { return std::string_view(http.path).substr(kBase.size()); }

// "after" of "limit=5&after=msg_1"; names and ids need no escapes.
std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view one = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (one.size() > name.size() && one.substr(0, name.size()) == name && one[name.size()] == '=')
      return one.substr(name.size() + 1);
  }
  return {};
}

// All that the response read, from the first turn on; the newest first unless asked otherwise.
void input_items(const HttpRequest& http, HttpResponse& response, const ResponseTurn::Ptr& turn) {
  int64_t limit = kListUsual;
  if (const std::string_view given = query_value(http.query, "limit"); !given.empty()) {
    const auto [end, failed] = std::from_chars(given.data(), given.data() + given.size(), limit);
    if (failed != std::errc{} || end != given.data() + given.size() || limit < 1 || limit > kListMax)
      return response.fail(
          invalid_value("limit", cat("limit: expected 1..", kListMax, ", found ", given.substr(0, 24))));
  }
  const std::string_view order = query_value(http.query, "order"), after = query_value(http.query, "after");
  if (!order.empty() && order != "asc" && order != "desc")
    return response.fail(invalid_value("order", cat("order: expected asc or desc, found ", order.substr(0, 24))));

  Json all = Json::array();
  for (const ResponseTurn::Ptr& one : turn->path(turn)) {
    for (const std::string* text : {&one->input(), &one->output()}) {
      if (one == turn && text == &one->output()) continue;  // That is what it said.
      auto list = parse_json(*text);
      for (Json& item : *list) all.push_back(std::move(item));
    }
  }
  if (order != "asc") std::reverse(all.begin(), all.end());
  size_t begin = 0;
  if (!after.empty()) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Json& item) { return item["id"] == after; });
    if (found == all.end())
      return response.fail(
          invalid_value("after", cat("after: expected the id of an item, found ", after.substr(0, 64))));
    begin = static_cast<size_t>(found - all.begin()) + 1;
  }
  const size_t end = std::min(all.size(), begin + static_cast<size_t>(limit));
  Json data(all.begin() + static_cast<int64_t>(begin), all.begin() + static_cast<int64_t>(end));
  if (data.is_null()) data = Json::array();
  const Json first = data.empty() ? Json(nullptr) : data.front()["id"];
  const Json last = data.empty() ? Json(nullptr) : data.back()["id"];
  response.send_json(200, {{"object", "list"},
                           {"data", std::move(data)},
                           {"first_id", first},
                           {"last_id", last},
                           {"has_more", end < all.size()}});
}

}  // namespace

void get_response(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  std::string_view id = id_in(http);
  const bool items = id.size() > kInputItems.size() && id.substr(id.size() - kInputItems.size()) == kInputItems;
  if (items) id.remove_suffix(kInputItems.size());
  const auto found = state.responses.find(response_domain(http, state), id);
  if (!found) return response.fail(no_response(id));
  if (items) return input_items(http, response, found->turn);
  if (query_value(http.query, "stream") == "true")
    return response.fail(unsupported_value("stream", "stream: expected false, an answer is kept whole"));
  response.send(200, "application/json", found->body);
}

void delete_response(const HttpRequest& http, HttpResponse& response, ServerState& state) {
  const std::string_view id = id_in(http);
  if (!state.responses.erase(response_domain(http, state), id)) return response.fail(no_response(id));
  response.send_json(200, {{"id", id}, {"object", "response"}, {"deleted", true}});
}

}  // namespace wp
